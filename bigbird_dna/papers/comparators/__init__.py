"""Comparators of the papers' tables: predictors of windows that need no language model, a file each."""
