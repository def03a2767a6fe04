"""Baselines without neural networks: n-grams over tokens, k-mers of bases."""
