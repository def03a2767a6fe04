"""Benchmarks of this package beside other implementations of the same work: `bigbird-dna benchmark`."""
