"""Comparators of the papers' tables: predictors of windows without a language model, one file each."""
