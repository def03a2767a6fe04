"""A demo genome with known truth: sequence, promoters, tracks and variants, all a function of a seed.

The modules go from small to large: `sequence` (every number, motifs, and what lies under everything), `plan`
(loci made of motifs, and their places), `truth` (labels that follow), and `writing` (by contig, and files).
"""
