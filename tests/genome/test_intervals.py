"""Intervals and loci refuse what is no place."""

import pytest

from bigbird_dna.genome.sequence import Interval, Locus
from tests.golden.messages import fails


def test_an_interval_has_its_half_open_length_and_may_reach_beyond_the_contig():
    assert len(Interval("1", -3, 4)) == 7
    assert len(Interval("1", 5, 5)) == 0
    assert bool(Interval("1", 5, 5))


def test_intervals_order_by_contig_and_position():
    intervals = [Interval("2", 0, 1), Interval("1", 5, 9), Interval("1", 5, 6)]
    assert sorted(intervals) == [intervals[2], intervals[1], intervals[0]]


@pytest.mark.parametrize("strand", ["", ".", "plus"])
def test_a_strand_is_plus_or_minus(strand):
    with fails(ValueError):
        Interval("1", 0, 1, strand)
    with fails(ValueError):
        Locus("1", 0, strand, "x")


def test_an_interval_does_not_end_before_it_starts():
    with fails(ValueError):
        Interval("1", 5, 4)
