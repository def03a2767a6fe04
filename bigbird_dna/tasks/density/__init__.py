"""Densities of images and text: causal models of bytes with any attention that has a causal form."""
