"""Windows around loci and along contigs, on both strands."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.genome.sequence import (
    Interval,
    Locus,
    centred_tiles,
    inside,
    reverse_complement,
    window_around,
)
from tests.golden.messages import fails

CONTIG = "ACGTTGCAGGATCCATTAGC" * 5


@given(st.integers(20, 79), st.sampled_from("+-"), st.integers(0, 20), st.integers(1, 20))
def test_the_locus_is_base_number_upstream_of_its_window(position, strand, upstream, downstream):
    window = window_around(Locus("1", position, strand, "x"), upstream, downstream)
    sequence = CONTIG[window.start : window.end]
    base = CONTIG[position]
    if strand == "-":
        sequence, base = reverse_complement(sequence), reverse_complement(base)
    assert len(window) == upstream + downstream
    assert window.strand == strand
    assert sequence[upstream] == base


def test_the_window_of_the_paper_lies_5000_before_and_3000_after():
    assert window_around(Locus("1", 10_000, "+", "x"), 5000, 3000) == Interval("1", 5000, 13_000)
    minus = window_around(Locus("1", 10_000, "-", "x"), 5000, 3000)
    assert minus == Interval("1", 7001, 15_001, "-")


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (Interval("1", 0, 10), True),
        (Interval("1", -1, 9), False),
        (Interval("1", 1, 11), False),
        (Interval("2", 0, 1), False),
    ],
)
def test_inside(interval, expected):
    assert inside(interval, {"1": 10}) is expected


@given(st.integers(1, 2000), st.integers(1, 300), st.integers(1, 400))
def test_tiles_mirror_themselves_and_leave_no_gap_above_a_stride(length, size, stride):
    starts = list(centred_tiles(length, size, stride))
    span = length - size
    assert starts == sorted(set(starts))
    if span <= 0:
        (start,) = starts
        left_margin, right_margin = -start, start + size - length
        assert 0 <= left_margin - right_margin <= 1
        return
    assert starts[0] == 0
    assert starts[-1] == span
    assert [span - start for start in reversed(starts)] == starts
    assert all(0 < b - a <= stride for a, b in pairwise(starts))
    left = [start for start in starts if start <= (span - stride) / 2]
    assert left == list(range(0, len(left) * stride, stride))


@pytest.mark.parametrize(
    ("length", "size", "stride", "expected"),
    [
        (100, 100, 10, [0]),
        (100, 40, 30, [0, 30, 60]),
        (100, 40, 60, [0, 60]),
        (101, 41, 25, [0, 25, 35, 60]),
        (100, 40, 25, [0, 25, 35, 60]),
        (110, 40, 40, [0, 30, 40, 70]),
        (40, 100, 10, [-30]),
        (40, 101, 10, [-31]),
    ],
)
def test_tiles_by_hand(length, size, stride, expected):
    assert list(centred_tiles(length, size, stride)) == expected


@pytest.mark.parametrize("arguments", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_tiles_want_positive_sizes(arguments):
    with fails(ValueError):
        list(centred_tiles(*arguments))
