"""Scores along sequences, tracks of regions, effects of variants: scorers, and the models of `load`."""
