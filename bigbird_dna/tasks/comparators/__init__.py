"""Comparators on the data sets of promoters and chromatin: fitted, and their predictions written."""
