"""A demo genome with known truth: sequence, promoters, tracks and variants, all a function of a seed.

The modules go from small to large: `motifs` (every number, instances and matches), `sequence` (what
lies under everything), `promoters` and `plan` (loci made of motifs, and their places), `tracks` and
`variants` (labels that follow), and `writing` (all of it by contig, and the files).
"""
