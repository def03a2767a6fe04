"""Experiments of the papers and what only these need: the core finds it by name alone."""
