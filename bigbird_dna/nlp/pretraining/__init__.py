"""Masked-language modelling on documents, in bits per character (App. E.1)."""
