"""Explanations of predictions by the bases of a sequence."""
