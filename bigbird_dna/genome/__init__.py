"""The genome layer: files of sequences and sites, turned into intervals and clean sequence.

Coordinates are 0-based and half-open on the forward strand; they are converted once, where a file
is read.
"""
