"""Figures by how similar the nearest training window is."""
