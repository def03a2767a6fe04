"""Summarization: a sparse encoder, a decoder with full attention, and beam search (App. E.5)."""
