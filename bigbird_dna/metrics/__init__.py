"""Metrics with their intervals; of NumPy alone."""
