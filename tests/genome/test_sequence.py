"""The sequence policy, letter by letter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import clean, count_ambiguous_bytes, fraction_n, reverse_complement
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
