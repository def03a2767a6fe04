"""Training and evaluation data sets, and the files of predictions that evaluations read."""
