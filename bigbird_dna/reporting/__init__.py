"""Figures, tables and metrics from the files of a run; needs no model and no torch."""
