"""How like held-out windows are to those that models learn from, in files."""
