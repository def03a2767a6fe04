"""Tasks on text (secondary), with the same encoder, training loop and model directories as on DNA.

Only its own commands import this package. It needs the libraries of the extra `nlp`.
"""
