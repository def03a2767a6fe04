"""Scores along sequences, tracks of regions and effects of variants: scorers, and the models of `load`."""
