"""Plots, tables and metrics from the files of a run; imports neither models nor torch."""
