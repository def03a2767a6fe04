"""Effects of variants on promoters against whole contigs that are edited as text."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import ModelError
from bigbird_dna.genome.sequence import Strand, reverse_complement
from bigbird_dna.genome.variants import Note
from bigbird_dna.genome.vcf import VcfRecord
from bigbird_dna.scoring.variant_effects import score_records
from bigbird_dna.scoring.variant_sites import NO_SITE, PromoterEffect, SiteEffects, TssSites
from tests.golden.messages import fails
from tests.scoring.test_variant_effects import record, variants
from tests.toys import random_dna, texts

UP, DOWN = 9, 5


def hashed(sequences: Sequence[str]) -> np.ndarray:
    """(N,) numbers from 0 to 1 that change with every letter, its place, and the strand."""
    return (np.array([zlib.crc32(text.encode()) for text in sequences]) / 2**32).astype(np.float32)


def effects(
    records: Sequence[VcfRecord],
    reference: Any,
    sites: TssSites | None = None,
    stride: int = 1,
    **options: Any,
) -> list[PromoterEffect]:
    options = {"predict": hashed, "max_n": 1.0, **options}
    found = score_records(records, reference, SiteEffects(UP, DOWN, stride, sites), **options)
    return [effect for row in found for effect in row.effects]


def window(contig: str, place: int, strand: str) -> tuple[str, int, int]:
    """The window of a TSS, and where it lies; beyond the contig there is N."""
    first, end = (place - UP, place + DOWN) if strand == "+" else (place - DOWN + 1, place + UP + 1)
    text = "".join(contig[i] if 0 <= i < len(contig) else "N" for i in range(first, end))
    return (text if strand == "+" else reverse_complement(text)), first, end


def touches(first: int, end: int, start: int, changed: int) -> bool:
    """Whether a window has a changed base, or both neighbours of the place between two."""
    return (first < start + changed and start < end) if changed else (first < start < end)


def oracle(sequence: str, edited: str) -> dict[tuple[int, str], tuple[float, float]]:
    """Scores of both alleles at every site that counts, by the reference's position and strand."""
    same_end = 0
    while same_end < min(len(sequence), len(edited)) and sequence[-1 - same_end] == edited[-1 - same_end]:
        same_end += 1
    n, m = len(sequence) - same_end, len(edited) - same_end
    start = 0
    while start < min(n, m) and sequence[start] == edited[start]:
        start += 1
    n, m = n - start, m - start
    found = {}
    for strand in "+-":
        pairs = [(i, i) for i in range(start)]
        pairs += [(start + n + i, start + m + i) for i in range(same_end)]
        for k in range(max(n, m)):  # in transcription order
            i, j = (k if length and k < length else length - 1 if length else None for length in (n, m))
            if strand == "-":
                i, j = (None if x is None else size - 1 - x for x, size in ((i, n), (j, m)))
            beside = 0 if strand == "+" else -1
            pairs.append((start + (beside if i is None else i), start + (beside if j is None else j)))
        for number, (i, j) in enumerate(pairs):
            if not (0 <= i < len(sequence) and 0 <= j < len(edited)):
                continue
            (ref, *place), (alt, *_) = window(sequence, i, strand), window(edited, j, strand)
            if number < len(sequence) - n and not touches(*place, start, n):
                continue
            # Where several bases stand for one, that with the largest change counts.
            scores = tuple(hashed([ref, alt]).tolist())
            kept = found.get((i, strand), scores)
            found[i, strand] = max(scores, kept, key=lambda both: abs(both[1] - both[0]))
    return found


@settings(max_examples=150, deadline=None)
@given(variants())
def test_the_effect_is_the_largest_change_between_the_edited_contigs(case: tuple[str, int, str, str]) -> None:
    sequence, start, ref, alt = case
    edited = sequence[:start] + alt + sequence[start + len(ref) :]
    (effect,) = effects([record("c", start + 1, ref, alt)], texts(c=sequence))
    expected = oracle(sequence, edited)
    largest = max(expected.values(), key=lambda both: abs(both[1] - both[0]))
    assert effect.largest is not None
    assert (effect.largest.ref, effect.largest.alt) == largest
    assert expected[effect.largest.position, effect.largest.strand] == largest


@settings(max_examples=150, deadline=None)
@given(variants(), st.lists(st.tuples(st.integers(0, 80), st.sampled_from("+-")), max_size=5))
def test_given_sites_are_the_only_ones(case: tuple[str, int, str, str], places: Any) -> None:
    sequence, start, ref, alt = case
    edited = sequence[:start] + alt + sequence[start + len(ref) :]
    (effect,) = effects([record("c", start + 1, ref, alt)], texts(c=sequence), TssSites({"c": places}))
    alone = [
        effects([record("c", start + 1, ref, alt)], texts(c=sequence), TssSites({"c": [place]}))[0]
        for place in places
    ]
    scored = [one.largest for one in alone if one.largest is not None]
    expected = oracle(sequence, edited)
    for one in scored:
        assert (one.position, one.strand) in expected
    if not scored:
        assert effect == PromoterEffect((NO_SITE,), None)
        assert not set(places) & set(expected)
    else:
        assert effect.largest is not None
        assert abs(effect.largest.delta) == max(abs(one.delta) for one in scored)


@settings(max_examples=100, deadline=None)
@given(variants(), st.sampled_from([1, 2, 7]))
def test_exchanging_ref_and_alt_negates_the_change(case: tuple[str, int, str, str], stride: int) -> None:
    sequence, start, ref, alt = case
    edited = sequence[:start] + alt + sequence[start + len(ref) :]
    (forth,) = effects([record("c", start + 1, ref, alt)], texts(c=sequence), stride=stride)
    (back,) = effects([record("c", start + 1, alt, ref)], texts(c=edited), stride=stride)
    assert forth.notes == back.notes
    if forth.largest is None or back.largest is None:
        assert forth.largest is back.largest
    else:
        assert (forth.largest.ref, forth.largest.alt) == (back.largest.alt, back.largest.ref)


def test_a_substitution_is_seen_from_the_other_strand_as_well() -> None:
    sequence = random_dna(200, 1)
    place = 90
    other = "A" if sequence[place] != "A" else "C"
    (here,) = effects([record("c", place + 1, sequence[place], other)], texts(c=sequence), stride=3)
    turned = reverse_complement(sequence)
    there = len(sequence) - 1 - place
    mirrored = record("c", there + 1, turned[there], reverse_complement(other))
    (seen,) = effects([mirrored], texts(c=turned), stride=3)
    assert here.largest is not None and seen.largest is not None
    assert (here.largest.ref, here.largest.alt) == (seen.largest.ref, seen.largest.alt)
    assert here.largest.position == len(sequence) - 1 - seen.largest.position
    assert here.largest.strand != seen.largest.strand


def test_what_cannot_be_scored_says_why() -> None:
    sequence = random_dna(60, 2) + "N" * 30 + random_dna(60, 3)
    reference = texts(c=sequence)
    wrong = "A" if sequence[30] != "A" else "C"
    rows = [
        record("c", 31, sequence[30], "<DEL>"),
        record("d", 31, "A", "C"),
        record("c", 31, wrong, "G" if sequence[30] != "G" else "T"),
        record("c", 31, sequence[30], sequence[30] + random_dna(UP + DOWN + 1, 5)),
        record("c", 1, sequence[0], "A" if sequence[0] != "A" else "C"),
    ]
    found = effects(rows, reference)
    notes = [effect.notes for effect in found]
    assert notes == [
        (Note.SYMBOLIC,),
        (Note.CONTIG_UNKNOWN,),
        (Note.REF_MISMATCH,),
        (Note.TOO_LONG,),
        (Note.CONTIG_EDGE,),
    ]
    assert [effect.largest is None for effect in found] == [True] * 4 + [False]
    base = sequence[60 - 1]
    beside_gap = record("c", 60, base, "A" if base != "A" else "C")
    sites = TssSites({"c": [(60 + UP - 1, "+")]})
    assert effects([beside_gap], reference, sites, max_n=0.25) == [PromoterEffect((Note.TOO_MANY_N,), None)]
    assert effects([beside_gap], reference, max_n=0.25)[0].largest is not None


@pytest.mark.parametrize("strand", ["+", "-"])
def test_a_deleted_site_is_looked_for_at_the_next_base_downstream(strand: Strand) -> None:
    sequence = random_dna(39, 4) + "C" + "GATTACA" + "T" + random_dna(39, 8)  # nothing could be moved
    edited = sequence[:40] + sequence[47:]
    row = record("c", 40, sequence[39:47], sequence[39])
    (effect,) = effects([row], texts(c=sequence), TssSites({"c": [(43, strand)]}))
    beside = 40 if strand == "+" else 39
    expected = hashed([window(sequence, 43, strand)[0], window(edited, beside, strand)[0]])
    assert effect.largest is not None
    assert effect.largest == (43, strand, *expected.tolist())


def test_batches_change_nothing_and_damage_is_noticed() -> None:
    sequence = random_dna(400, 9)
    rows = [
        record("c", place, sequence[place - 1], "A" if sequence[place - 1] != "A" else "C")
        for place in range(50, 300, 11)
    ]
    one, other = (effects(rows, texts(c=sequence), batch_sequences=size) for size in (7, 4096))
    assert one == other
    with fails(ModelError):
        effects(rows, texts(c=sequence), predict=lambda some: np.full(len(some), np.nan, np.float32))
