"""Mechanisms that a configuration can name: a file each, found by being here. See `config.mechanisms`."""
