"""Simulate a demo genome with known truth: sequence, promoters, tracks and variants, determined by a seed.

Modules: `sequence` (parameters, motifs and background sequence), `plan` (loci made of motifs, and their
positions), `truth` (tracks and variants), and `writing` (contigs and files).
"""
