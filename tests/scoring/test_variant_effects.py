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
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack, PromoterSettings
from bigbird_dna.scoring import variants as scoring
from bigbird_dna.scoring.effects import (
    NO_SITE,
    Effects,
    ScoredAllele,
    SiteEffects,
    TrackEffects,
    TssSites,
    escape,
)
from bigbird_dna.scoring.variants import score_records
from tests.golden.messages import fails
from tests.toys import hashed, random_dna, texts

WINDOW, COUNT = 64, 3
UP, DOWN = 9, 5


class Tracks(LoadedChromatinModel):
    """Predicts three tracks that any base can change."""

    def window_probabilities(self, windows: Sequence[str], **_: Any) -> np.ndarray:
        return hashed(windows, 1, 3)


class Promoters(LoadedPromoterModel):
    """Predicts what any base can change."""

    def window_probabilities(self, windows: Sequence[str], **_: Any) -> np.ndarray:
        return hashed(windows)


def track_effects(window: int = WINDOW, count: int = COUNT, **options: Any) -> Effects:
    tracks = tuple(NamedTrack(track=name, group="TF") for name in "abc")
    own = ChromatinSettings(
        window=window, bin=2, pooling="bin", bin_layers=0, members=1, tracks=tracks
    )
    model = Tracks(nn.Module(), None, EncoderConfig(), own)  # type: ignore[arg-type]
    return TrackEffects(model, None, count, **options)


def site_effects(stride: int = 1, sites: TssSites | None = None) -> Effects:
    own = PromoterSettings(
        upstream=UP, downstream=DOWN, pooling="cls", jitter=0, views=1
    )
    model = Promoters(nn.Module(), None, EncoderConfig(), own)  # type: ignore[arg-type]
    return SiteEffects(model, stride, sites)


KINDS = {
    "tracks": track_effects(),
    **{f"sites, {stride} bp": site_effects(stride) for stride in (1, 2, 7)},
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
    found = score_records(records, reference, kind, max_n)
    return [allele for alleles in found for allele in alleles]


def same(first: ScoredAllele, second: ScoredAllele) -> bool:
    """Whether two effects are equal to the last bit."""
    if first.effect is None or second.effect is None:
        return first == second
    return first.notes == second.notes and all(
        np.array_equal(one, other)
        for one, other in zip(first.effect, second.effect, strict=True)
    )


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
    effect = allele.effect
    np.testing.assert_allclose(effect.delta, means[1] - means[0], rtol=0, atol=1e-12)
    odds = [np.log(mean) - np.log1p(-mean) for mean in means]
    np.testing.assert_allclose(effect.log_odds, odds[1] - odds[0], rtol=0, atol=1e-9)
    assert abs(effect.delta[effect.largest]) == np.abs(effect.delta).max()


@settings(max_examples=150, deadline=None)
@given(variants(), st.sampled_from(list(KINDS)))
def test_exchanging_ref_and_alt_negates_every_effect(case: Case, kind: str) -> None:
    (forth,) = score([case.record], texts(c=case.sequence), KINDS[kind])
    back_again = record("c", case.start + 1, case.alt, case.ref)
    (back,) = score([back_again], texts(c=case.edited), KINDS[kind])
    assert forth.notes == back.notes
    if forth.effect is None or back.effect is None:
        assert forth == back
    elif kind == "tracks":
        assert np.array_equal(forth.effect.delta, -back.effect.delta)
        assert np.array_equal(forth.effect.log_odds, -back.effect.log_odds)
    else:
        assert forth.effect.ref == back.effect.alt
        assert forth.effect.alt == back.effect.ref


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
        monkeypatch.setattr(Promoters, "window_probabilities", wrong)
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
def test_order_and_batches_change_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequence = random_dna(400, 1)
    reference = texts(c=sequence)
    records = random_records(sequence, 60, 2)
    expected = score_records(records, reference, KINDS[kind], 1.0)
    order = np.random.default_rng(3).permutation(len(records))
    for size in (1, 7, 1000):
        monkeypatch.setattr(scoring, "RECORDS_AT_ONCE", size)
        turned = [records[index] for index in order]
        found = score_records(turned, reference, KINDS[kind], 1.0)
        for index, alleles in zip(order, found, strict=True):
            assert all(map(same, alleles, expected[index]))


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
        assert scored.notes == notes and scored.effect is not None
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
    assert allele.effect.delta.tolist() == [1.0] * 3
    assert allele.effect.log_odds == pytest.approx(2 * np.log(1e6), rel=1e-5)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_escaped_names_can_be_read_back(name: str) -> None:
    text = escape(name)
    assert unquote(text) == name
    assert text != "." and not set(text) & set(' ;=,"\\\t\n\r')


# At sites


def window(contig: str, place: int, strand: str) -> tuple[str, int, int]:
    """The window of a TSS, and where it lies; beyond the contig there is N."""
    first, end = (
        (place - UP, place + DOWN)
        if strand == "+"
        else (place - DOWN + 1, place + UP + 1)
    )
    text = "".join(
        contig[i] if 0 <= i < len(contig) else "N" for i in range(first, end)
    )
    return (text if strand == "+" else reverse_complement(text)), first, end


def touches(first: int, end: int, start: int, changed: int) -> bool:
    """Whether a window has a changed base, or both neighbors of the place between two."""
    return (
        (first < start + changed and start < end) if changed else (first < start < end)
    )


def oracle(sequence: str, edited: str) -> dict[tuple[int, str], tuple[float, float]]:
    """Scores of both alleles at every site that counts, by the reference's position and strand."""
    same_end = 0
    while (
        same_end < min(len(sequence), len(edited))
        and sequence[-1 - same_end] == edited[-1 - same_end]
    ):
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
            i, j = (
                k if length and k < length else length - 1 if length else None
                for length in (n, m)
            )
            if strand == "-":
                i, j = (
                    None if x is None else size - 1 - x for x, size in ((i, n), (j, m))
                )
            beside = 0 if strand == "+" else -1
            pairs.append(
                (
                    start + (beside if i is None else i),
                    start + (beside if j is None else j),
                )
            )
        for number, (i, j) in enumerate(pairs):
            if not (0 <= i < len(sequence) and 0 <= j < len(edited)):
                continue
            (ref, *place), (alt, *_) = (
                window(sequence, i, strand),
                window(edited, j, strand),
            )
            if number < len(sequence) - n and not touches(*place, start, n):
                continue
            # Where several bases stand for one, that with the largest change counts.
            both = tuple(hashed([ref, alt]).tolist())
            kept = found.get((i, strand), both)
            found[i, strand] = max(both, kept, key=lambda pair: abs(pair[1] - pair[0]))
    return found


@settings(max_examples=150, deadline=None)
@given(variants())
def test_the_effect_is_the_largest_change_between_the_edited_contigs(
    case: Case,
) -> None:
    (allele,) = score([case.record], texts(c=case.sequence), site_effects())
    expected = oracle(case.sequence, case.edited)
    largest = max(expected.values(), key=lambda both: abs(both[1] - both[0]))
    effect = allele.effect
    assert (effect.ref, effect.alt) == largest
    assert expected[effect.position, effect.strand] == largest


@settings(max_examples=150, deadline=None)
@given(
    variants(),
    st.lists(st.tuples(st.integers(0, 80), st.sampled_from("+-")), max_size=5),
)
def test_given_sites_are_the_only_ones(case: Case, places: Any) -> None:
    def effect_at(*sites: tuple[int, Any]) -> ScoredAllele:
        kind = site_effects(sites=TssSites({"c": sites}))
        return score([case.record], texts(c=case.sequence), kind)[0]

    allele = effect_at(*places)
    alone = [effect_at(place).effect for place in places]
    scored = [effect for effect in alone if effect is not None]
    expected = oracle(case.sequence, case.edited)
    for effect in scored:
        assert (effect.position, effect.strand) in expected
    if not scored:
        assert allele == ScoredAllele((NO_SITE,))
        assert not set(places) & set(expected)
    else:
        assert abs(allele.effect.delta) == max(abs(one.delta) for one in scored)


def test_a_substitution_is_seen_from_the_other_strand_as_well() -> None:
    sequence = random_dna(200, 1)
    place = 90
    other = "A" if sequence[place] != "A" else "C"
    kind = site_effects(2)
    given_here = record("c", place + 1, sequence[place], other)
    (here,) = score([given_here], texts(c=sequence), kind)
    turned = reverse_complement(sequence)
    there = len(sequence) - 1 - place
    mirrored = record("c", there + 1, turned[there], reverse_complement(other))
    (seen,) = score([mirrored], texts(c=turned), kind)
    assert (here.effect.ref, here.effect.alt) == (seen.effect.ref, seen.effect.alt)
    assert here.effect.position == len(sequence) - 1 - seen.effect.position
    assert here.effect.strand != seen.effect.strand


def test_what_cannot_be_scored_at_sites_says_why() -> None:
    sequence = random_dna(60, 2) + "N" * 30 + random_dna(60, 3)
    reference = texts(c=sequence)
    rows = [
        record("c", 31, sequence[30], sequence[30] + random_dna(UP + DOWN + 1, 5)),
        record("c", 1, sequence[0], "A" if sequence[0] != "A" else "C"),
    ]
    long, edge = score(rows, reference, site_effects())
    assert long == ScoredAllele((Note.TOO_LONG,))
    assert edge.notes == (Note.CONTIG_EDGE,) and edge.effect is not None
    beside_gap = record("c", 60, sequence[59], "A" if sequence[59] != "A" else "C")
    sites = TssSites({"c": [(60 + UP - 1, "+")]})
    (at_gap,) = score([beside_gap], reference, site_effects(sites=sites), max_n=0.25)
    assert at_gap == ScoredAllele((Note.TOO_MANY_N,))
    (elsewhere,) = score([beside_gap], reference, site_effects(), max_n=0.25)
    assert elsewhere.effect is not None
