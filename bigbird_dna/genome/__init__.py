"""Read files of sequences and genomic sites as intervals and clean sequences.

Coordinates are 0-based and half-open on the forward strand; each reader converts those of its file.
"""
