"""Training and evaluation data sets, and the prediction files that evaluations read."""
