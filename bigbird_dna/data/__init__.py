"""Data sets of training and evaluation, below what trains and what reports."""
