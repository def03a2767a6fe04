"""Sequences of the user's own, instead of loci on a genome: their records, what is alike, and splits."""
