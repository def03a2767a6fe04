"""Effects of variants against whole contigs that are edited, with predictors that any base can change."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import ModelError
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.genome.variants import Note, window_offsets
from bigbird_dna.genome.vcf import Variant
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from bigbird_dna.scoring.effects import TrackEffects, escape
from bigbird_dna.scoring.variants import Effects, ScoredAllele, scored_batches
from tests.golden.messages import fails
from tests.toys import hashed, random_dna, texts

WINDOW, COUNT = 64, 3
UP, DOWN = 9, 5


class Tracks(LoadedChromatinModel):
    """Predicts three tracks that any base can change."""

    def window_probabilities(self, windows: Sequence[str], **_: Any) -> np.ndarray:
        return hashed(windows, 1, 3)


def track_effects(window: int = WINDOW, count: int = COUNT, **options: Any) -> Effects:
    tracks = tuple(NamedTrack(track=name, group="TF") for name in "abc")
    own = ChromatinSettings(
        window=window, bin=2, pooling="bin", bin_layers=0, members=1, tracks=tracks
    )
    model = Tracks(nn.Module(), None, EncoderConfig(), own)  # type: ignore[arg-type]
    return TrackEffects(model, "*", count, **options)


KINDS = {
    "tracks": track_effects(),
}


def record(contig: str, pos: int, ref: str, alts: str) -> Variant:
    return Variant(contig, pos - 1, ref, tuple(alts.split(",")))


def score(
    records: Sequence[Variant],
    reference: Any,
    kind: Effects = KINDS["tracks"],
    max_n: float = 1.0,
) -> list[ScoredAllele]:
    """Effects of all alleles."""
    find_contig = reference.contigs.keys() & {record.contig for record in records}
    found = scored_batches(
        records,
        reference,
        lambda name: name if name in find_contig else None,
        kind,
        max_n,
    )
    return [allele for _, batch in found for alleles in batch for allele in alleles]


def same(first: ScoredAllele, second: ScoredAllele) -> bool:
    """Whether two effects are equal to the last bit."""
    return first == second


class Case(NamedTuple):
    """A contig, 0-based start, REF and ALT of a variant, and the contig once it is in place."""

    sequence: str
    start: int
    ref: str
    alt: str
    edited: str

    @property
    def record(self) -> Variant:
        return record("c", self.start + 1, self.ref, self.alt)


@st.composite
def variants(draw: st.DrawFn) -> Case:
    """In or near a repeat."""
    unit = draw(st.sampled_from(["A", "AC", "GAT"]))
    sequence = (
        draw(st.text("ACGT", min_size=5, max_size=40))
        + unit * draw(st.integers(0, 12))
        + draw(st.text("ACGT", min_size=1, max_size=40))
    )
    start = draw(st.integers(0, len(sequence) - 1))
    ref = sequence[start : start + draw(st.integers(1, 5))]
    alt = draw(st.text("ACGT", min_size=1, max_size=5) | st.just(ref + unit))
    assume(ref != alt)
    edited = sequence[:start] + alt + sequence[start + len(ref) :]
    return Case(sequence, start, ref, alt, edited)


@settings(max_examples=100, deadline=None)
@given(variants())
def test_effect_is_that_of_the_edited_contig(case: Case) -> None:
    """Means over both strands and all offsets of windows cut from either contig, by hand."""
    sequence, edited = case.sequence, case.edited
    (allele,) = score([case.record], texts(c=sequence))
    # The first base that differs, once what both contigs end with is put aside.
    shorter = min(len(sequence), len(edited))
    end = 0
    while end < shorter and sequence[-1 - end] == edited[-1 - end]:
        end += 1
    short, long = sorted(
        (sequence[: len(sequence) - end], edited[: len(edited) - end]), key=len
    )
    first = next((i for i, base in enumerate(short) if base != long[i]), len(short))
    means = []
    for contig in (sequence, edited):
        padded = "N" * WINDOW + contig + "N" * (WINDOW * 2)
        windows = []
        for offset in window_offsets(COUNT):
            left = WINDOW + first - (WINDOW - (len(long) - first)) // 2 - offset
            windows.append(padded[left : left + WINDOW])
        windows += [reverse_complement(window) for window in windows]
        means.append(hashed(windows, 3).mean(axis=0, dtype=np.float64))
    largest, track, *values = allele.row
    delta, log_odds = values[::2], values[1::2]
    np.testing.assert_allclose(delta, means[1] - means[0], rtol=0, atol=1e-12)
    odds = [np.log(mean) - np.log1p(-mean) for mean in means]
    np.testing.assert_allclose(log_odds, odds[1] - odds[0], rtol=0, atol=1e-9)
    assert abs(largest) == np.abs(delta).max() and delta["abc".index(track)] == largest


@settings(max_examples=150, deadline=None)
@given(variants(), st.sampled_from(list(KINDS)))
def test_exchanging_ref_and_alt_negates_every_effect(case: Case, kind: str) -> None:
    (forth,) = score([case.record], texts(c=case.sequence), KINDS[kind])
    back_again = record("c", case.start + 1, case.alt, case.ref)
    (back,) = score([back_again], texts(c=case.edited), KINDS[kind])
    assert forth.notes == back.notes
    if forth.row is None or back.row is None:
        assert forth == back
    else:
        assert np.array_equal(forth.row[2:], -np.array(back.row[2:]))


@settings(max_examples=100, deadline=None)
@given(variants(), st.integers(0, 9), st.integers(0, 9), st.data())
def test_padding_and_alignment_change_nothing(
    case: Case, before: int, after: int, data: st.DataObject
) -> None:
    sequence, start, ref, alt, edited = case
    before = min(before, start)
    end = start + len(ref)
    head, tail = sequence[start - before : start], sequence[end : end + after]
    padded = record("c", start - before + 1, head + ref + tail, head + alt + tail)
    # Another place of a repeat that gives the same contig is the same variant.
    moved = [
        record("c", s + 1, sequence[s : s + len(ref)], edited[s : s + len(alt)])
        for s in range(len(sequence) - len(ref) + 1)
        if edited[:s] == sequence[:s]
        and edited[s + len(alt) :] == sequence[s + len(ref) :]
    ]
    chosen = data.draw(st.sampled_from(moved))
    plain, *others = score([case.record, padded, chosen], texts(c=sequence))
    assert all(same(plain, other) for other in others)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_that_are_no_probabilities_are_refused(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (np.nan, np.inf, 1.5, -0.1):

        def wrong(
            _: object, windows: Sequence[str], value: float = value, **__: Any
        ) -> Any:
            return np.full((len(windows), 1, 3), value, np.float32)

        monkeypatch.setattr(Tracks, "window_probabilities", wrong)
        with fails(ModelError):
            score([record("c", 30, "T", "C")], texts(c="T" * 60), KINDS[kind])


def random_records(sequence: str, count: int, seed: int) -> list[Variant]:
    rng = np.random.default_rng(seed)
    records = []
    for start in rng.integers(0, len(sequence) - 5, count).tolist():
        ref = sequence[start : start + int(rng.integers(1, 4))]
        alts = [
            random_dna(int(rng.integers(1, 4)), start + number)
            for number in range(int(rng.integers(1, 4)))
        ]
        records.append(record("c", start + 1, ref, ",".join([*alts, "*"])))
    return records


@pytest.mark.parametrize("kind", KINDS)
def test_order_and_batches_change_nothing(kind: str) -> None:
    sequence = random_dna(400, 1)
    reference = texts(c=sequence)
    records = random_records(sequence, 60, 2)
    expected = [score([record], reference, KINDS[kind]) for record in records]
    order = np.random.default_rng(3).permutation(len(records))
    found = iter(score([records[index] for index in order], reference, KINDS[kind]))
    for index in order:
        assert [next(found) for _ in expected[index]] == expected[index]


def test_edges_and_n_are_noted() -> None:
    sequence = random_dna(60, 6) + "N" * 30 + random_dna(60, 7)
    reference = texts(c=sequence, tiny="ACGTA")
    window = 24
    kind = track_effects(window, 1)

    def effect(contig: str, pos: int, max_n: float) -> ScoredAllele:
        ref = reference.sequences[contig][pos - 1]
        alt = "C" if ref == "A" else "A"
        (found,) = score([record(contig, pos, ref, alt)], reference, kind, max_n)
        return found

    left = (window - 1) // 2
    for pos, beyond in (
        (1, left),
        (left, 1),
        (left + 1, 0),
        (150 - window + left + 1, 0),
        (150, 12),
    ):
        notes = (Note.CONTIG_EDGE,) if beyond else ()
        scored = effect("c", pos, beyond / window)
        assert scored.notes == notes and scored.row is not None
        if beyond:
            unscored = effect("c", pos, (beyond - 0.5) / window)
            assert unscored == ScoredAllele((Note.TOO_MANY_N, Note.CONTIG_EDGE))
    assert effect("c", 60, 12 / window).notes == ()
    assert effect("c", 60, 11 / window) == ScoredAllele((Note.TOO_MANY_N,))
    assert effect("tiny", 3, 1.0).notes == (Note.CONTIG_EDGE,)
    long, symbolic = score(
        [record("tiny", 1, "A", f"A{'ACGT' * 10},<DEL>")], reference, kind
    )
    assert long == ScoredAllele((Note.TOO_LONG,))
    assert symbolic == ScoredAllele((Note.SYMBOLIC,))


def test_log_odds_of_certain_predictions_are_finite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def certain(_: object, windows: Sequence[str], **__: Any) -> np.ndarray:
        values = [[[float("C" in text or "G" in text)] * 3] for text in windows]
        return np.array(values, np.float32)

    monkeypatch.setattr(Tracks, "window_probabilities", certain)
    (allele,) = score([record("c", 60, "T", "C")], texts(c="T" * 120))
    assert allele.row[2::2] == [1.0] * 3
    assert allele.row[3::2] == pytest.approx([2 * np.log(1e6)] * 3, rel=1e-5)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_escaped_names_can_be_read_back(name: str) -> None:
    text = escape(name)
    assert unquote(text) == name
    assert text != "." and not set(text) & set(' ;=,"\\\t\n\r')


# At sites
