"""Probabilities that hold: maps from a model's probabilities to the share of positives among rows like it."""
