"""Metrics with their intervals; depends on NumPy only."""
