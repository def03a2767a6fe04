"""Calibration: maps from a model's probabilities to the fraction of positives among similar rows."""
