"""Attention mechanisms, one file each, discovered by being in this package. See `config.mechanisms`."""
