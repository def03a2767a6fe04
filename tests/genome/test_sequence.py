"""Letters, intervals and windows of a sequence."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import (
    Interval,
    Locus,
    centred_tiles,
    clean,
    count_ambiguous_bytes,
    fraction_n,
    inside,
    reverse_complement,
    window_around,
)
from tests.golden.messages import fails

IUPAC = set("RYSWKMBDHV")

dna = st.text("ACGTN")
any_case = st.text("ACGTNRYSWKMBDHVacgtnryswkmbdhv")


def slow_clean(text):
    return "".join("N" if letter.upper() in IUPAC else letter.upper() for letter in text)


@given(any_case)
def test_clean_agrees_with_the_letter_by_letter_rule(text):
    assert clean(text, "x") == slow_clean(text)
    ambiguous = sum(letter.upper() in IUPAC for letter in text)
    assert count_ambiguous_bytes(text.encode()) == ambiguous


@given(st.text("ACGTn"), st.characters().filter(lambda c: c.upper() not in "ACGTNRYSWKMBDHV"))
def test_any_other_character_is_an_error_with_its_place(before, bad):
    with fails(DataError, len(before) + 1):
        clean(before + bad + "ACGT-U", "here")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ACGU", "position 4: 'U' is not a DNA letter (is this RNA?)"),
        ("MKVLA", "position 4: 'L' is not a DNA letter (is this a protein?)"),
        ("AC-GT", "position 3: '-' is not a DNA letter"),
        ("AC GT", "position 3: ' ' is not a DNA letter"),
        ("ACÄGT", "position 3: 'Ä' is not a DNA letter"),
        ("AC\x00", "position 3: byte 0x00 is not a DNA letter"),
    ],
)
def test_errors_say_what_the_letter_hints_at(text, message):
    with fails(DataError, message):
        clean(text, "record 'a'")


@given(dna)
def test_reverse_complement_pairs_the_bases_in_reverse(sequence):
    pairs = {"A": "T", "C": "G", "G": "C", "T": "A", "N": "N"}
    assert reverse_complement(sequence) == "".join(pairs[base] for base in reversed(sequence))
    assert reverse_complement(reverse_complement(sequence)) == sequence


@pytest.mark.parametrize(("sequence", "share"), [("", 0.0), ("ACGT", 0.0), ("NNAC", 0.5), ("N", 1)])
def test_fraction_n(sequence, share):
    assert fraction_n(sequence) == share


def test_an_interval_has_its_half_open_length_and_may_reach_beyond_the_contig():
    assert len(Interval("1", -3, 4)) == 7
    assert len(Interval("1", 5, 5)) == 0
    assert bool(Interval("1", 5, 5))


@pytest.mark.parametrize("strand", ["", ".", "plus"])
def test_a_strand_is_plus_or_minus(strand):
    with fails(ValueError):
        Interval("1", 0, 1, strand)
    with fails(ValueError):
        Locus("1", 0, strand, "x")


def test_an_interval_does_not_end_before_it_starts():
    with fails(ValueError):
        Interval("1", 5, 4)


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
