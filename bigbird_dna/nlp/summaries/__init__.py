"""Summarisation: a sparse encoder and a decoder with full attention (App. E.5)."""
