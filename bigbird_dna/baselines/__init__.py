"""Comparators that need no neural network: n-grams of tokens, k-mers of bases."""
