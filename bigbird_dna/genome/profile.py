"""K-mer profiles: whether a DNA input is like the sequence that a model was trained on.

A profile has the frequency of each 5-mer; a 5-mer and its reverse complement are one feature, so both strands
have the same profile. The distance of two profiles p and q is their symmetric chi-square distance,
Σ (p − q)² / (p + q) / 2, from 0 to 1.

The distance at which an input counts as dissimilar depends on its amount of sequence: small amounts have
large distances by chance, and parts of a genome differ. It is therefore measured on the training sequence:
the largest, at several amounts, of

* the distances of contiguous segments from the rest of the training sequence, and of validation segments,
* the mean distance of random selections from the quarter of 500-bp blocks with the lowest GC content, and
  with the highest: like inputs that are no random part of a genome, such as all intergenic sequences,
* the distances of random selections from each group of the training windows, such as all promoters.

For segments and groups, the limit is also at least four standard deviations above the mean.

Axes: N positions, B blocks, F 5-mers.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bigbird_dna.config.section import Section
from bigbird_dna.genome.sequence import (
    Interval,
    base_codes,
    canonical_kmers,
    known_before,
    words_ending,
)

K = 5
FILE = "training_profile.json"
"""The file of a model directory with the profile of its training sequence."""
AMOUNTS = (10_000, 20_000, 50_000, 100_000, 200_000, 500_000)
"""Amounts of sequence in bp at which distances are measured; a smaller input is not compared."""
MOST_BASES = 2_000_000
"""Number of known bases of an input that are counted, from its start."""
SAMPLED_BASES, SAMPLED_PARTS = 16_000_000, 64
"""Bases and parts of a larger training sequence from which its profile is made."""

_BLOCK = 500  # 5-mers
_SEGMENTS = 10  # fewest disjoint segments of an amount
_STEPS = 4  # starts of segments within the length of one
_EXTREME = 4  # the quarter of all blocks with the lowest or highest GC content
_DRAWS = 100  # random selections of blocks
_DEVIATIONS = 4  # above the mean: few segments do not have the largest distance yet
_WORD = 16  # bases of the words whose repetition is measured
_BUFFER = 1 << 16  # letters counted together

Numbers = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]
Fraction = Annotated[float, Field(ge=0, le=1)]


class _Features(NamedTuple):
    """The features F: 5-mers, of which one and its reverse complement are the same feature."""

    of_kmers: NDArray[np.int16]  # (4^5,)
    names: tuple[str, ...]  # (F,)
    gc: Floats  # (F,)


@cache
def _features() -> _Features:
    of_kmers = canonical_kmers(K).astype(np.int16)
    kmers = np.array(list(map("".join, product("ACGT", repeat=K))))
    names = kmers[np.unique(of_kmers, return_index=True)[1]]
    gc = (np.char.count(names, "G") + np.char.count(names, "C")) / K
    return _Features(of_kmers, tuple(names.tolist()), gc)


def _feature_sequence(letters: str) -> NDArray[np.int16]:
    """Return the features of the 5-mers without N of a text, in its order."""
    codes = base_codes(letters)
    words = words_ending(codes, K)[known_before(codes) >= K]
    return _features().of_kmers[words]


def profile_distance(first: Floats, second: Floats) -> Any:
    """Return the symmetric chi-square distance of counts or frequencies (…, F), (…)."""
    p = first / np.maximum(first.sum(axis=-1, keepdims=True), 1e-300)
    q = second / np.maximum(second.sum(axis=-1, keepdims=True), 1e-300)
    return ((p - q) ** 2 / np.maximum(p + q, 1e-300)).sum(axis=-1) / 2


def gc_content(counts: Floats) -> float:
    """Return the GC content of counts or frequencies of 5-mers (F,)."""
    return float(counts @ _features().gc / counts.sum())


class KmerCounts(NamedTuple):
    """Counts of the features of an input, and its amount of sequence.

    `amount` is the number of bp of sequence without repetition that would be as variable: (Σ c)² / Σ c², with
    the counts c of 16-mers. A thousand variants of one sequence have the amount of one.
    """

    counts: Floats  # (F,)
    amount: float


def count_kmers(sequences: Iterable[str]) -> KmerCounts:
    """Count the 5-mers of sequences over A C G T N, reading no further than `MOST_BASES`."""
    texts, size = list[str](), 0
    for sequence in sequences:
        texts.append(sequence[: MOST_BASES + K])
        size += len(sequence)
        if size >= MOST_BASES:
            break
    text = "N".join(texts)
    features = _feature_sequence(text)[:MOST_BASES]
    counts = np.bincount(features, minlength=len(_features().names))
    codes = base_codes(text)
    words = words_ending(codes, _WORD)[known_before(codes) >= _WORD]
    # Fibonacci hashing to 20 bits.
    hashes = words.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(44)
    repeats = np.unique(hashes, return_counts=True)[1].astype(np.float64)
    amount = float(repeats.sum() ** 2 / max(repeats @ repeats, 1))
    return KmerCounts(counts.astype(np.float64), amount)


class Limit(Section):
    """The largest distance of parts of the training sequence that have this amount of sequence."""

    bases: Annotated[int, Field(gt=0)]
    distance: Fraction


class ProfileDifference(NamedTuple):
    """Distance of an input, the limit at its amount of sequence, and the GC content of both."""

    distance: float
    limit: float
    gc: float
    training_gc: float


class TrainingProfile(Section, strict=False):
    """The profile of the sequence that a model was trained on, with the distances of its parts."""

    format: Literal[1] = 1
    kind: Literal["genome", "sequences"]
    assembly: str | None  # None: training sequences without a genome
    species: str | None
    bases: Annotated[int, Field(gt=0)]
    gc: Fraction
    frequencies: dict[str, Fraction]
    limits: tuple[Limit, ...]

    def _faults(self) -> Iterator[str]:
        if tuple(self.frequencies) != _features().names:
            yield f"frequencies must have each {K}-mer or its reverse complement, in alphabetical order"
        if abs(sum(self.frequencies.values()) - 1) > 1e-3:
            yield "the sum of frequencies must be 1"
        amounts = [limit.bases for limit in self.limits]
        if not amounts or amounts != sorted(set(amounts)):
            yield "limits must have ascending numbers of bases"

    @property
    def name(self) -> str:
        """The assembly and species, for messages; "" without a genome."""
        return ", ".join(filter(None, (self.assembly, self.species)))

    def compare(self, measured: KmerCounts) -> ProfileDifference | None:
        """Compare an input; None if it is too short.

        Between two amounts, limits are interpolated on a logarithmic axis, which is never below the curve.
        """
        amount, bases = measured.amount, [limit.bases for limit in self.limits]
        if amount < bases[0]:
            return None
        limit = np.interp(
            np.log(amount), np.log(bases), [limit.distance for limit in self.limits]
        )
        distance = profile_distance(
            measured.counts, np.array([*self.frequencies.values()])
        )
        return ProfileDifference(
            float(distance), float(limit), gc_content(measured.counts), self.gc
        )


def spaced_parts(intervals: Sequence[Interval], bases: int) -> list[Interval]:
    """Return about `bases` bp of intervals: all, or `SAMPLED_PARTS` parts at equal distances."""
    ends = np.cumsum([len(interval) for interval in intervals])
    if not len(ends) or ends[-1] <= bases:
        return [*intervals]
    size = bases // SAMPLED_PARTS
    parts = []
    for offset in np.linspace(0, ends[-1], SAMPLED_PARTS, endpoint=False).astype(int):
        number = int(np.searchsorted(ends, offset, side="right"))
        interval = intervals[number]
        start = interval.end - int(ends[number] - offset)
        parts.append(Interval(interval.contig, start, min(start + size, interval.end)))
    return parts


def training_profile(
    sequences: Iterable[str],
    *,
    held_out: Iterable[str] = (),
    groups: Iterable[Iterable[str]] = (),
    assembly: str | None = None,
    species: str | None = None,
) -> TrainingProfile | None:
    """Return the profile of training sequences of A C G T N, at most `SAMPLED_BASES` of them in memory.

    `held_out` are validation sequences, `groups` groups of training windows. `assembly` and `species` name
    the genome of the sequences, if any. None for less than ten segments of the smallest amount.
    """
    blocks = _blocks(sequences)
    amounts = [
        amount for amount in AMOUNTS if len(blocks) * _BLOCK >= _SEGMENTS * amount
    ]
    if not amounts:
        return None
    total: Floats = blocks.sum(axis=0, dtype=np.float64)
    order = np.argsort(blocks @ _features().gc, kind="stable")
    extreme = len(blocks) // _EXTREME
    extremes = blocks[order[:extreme]], blocks[order[-extreme:]]
    group_blocks = [counts for counts in map(_blocks, groups) if len(counts)]
    sums, held_out_sums = _running_sums(blocks), _running_sums(_blocks(held_out))
    limits = []
    for amount in amounts:
        size, rng = amount // _BLOCK, np.random.default_rng(0)
        inner, outer = _segments(sums, size), _segments(held_out_sums, size)
        segments = np.append(
            profile_distance(inner, total - inner), profile_distance(outer, total)
        )
        distances = [segments.max()]
        for counts in extremes:
            distances.append(profile_distance(_draw(counts, size, rng), total).mean())
        samples = [segments]
        for counts in group_blocks:
            samples.append(profile_distance(_draw(counts, size, rng), total))
        distances += [one.mean() + _DEVIATIONS * one.std() for one in samples]
        limit = round(min(float(max(distances)), 1.0), 6)
        limits.append(Limit(bases=amount, distance=limit))
    frequencies = (total / total.sum()).round(8).tolist()
    return TrainingProfile(
        kind="sequences" if assembly is None else "genome",
        assembly=assembly,
        species=species,
        bases=len(blocks) * _BLOCK,
        gc=round(gc_content(total), 6),
        frequencies=dict(zip(_features().names, frequencies, strict=True)),
        limits=tuple(limits),
    )


def _blocks(sequences: Iterable[str]) -> Numbers:
    """Return the counts (B, F) in consecutive blocks of 5-mers, which may extend over several sequences."""
    features = [np.empty(0, np.int16)]
    texts, size = list[str](), 0
    for sequence in sequences:
        texts.append(sequence)
        size += len(sequence)
        if size >= _BUFFER:
            features.append(_feature_sequence("N".join(texts)))
            texts, size = [], 0
    features.append(_feature_sequence("N".join(texts)))
    joined = np.concatenate(features)
    blocks = joined[: len(joined) // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
    counts = np.zeros((len(blocks), len(_features().names)), np.uint16)
    for number, block in enumerate(blocks):
        counts[number] = np.bincount(block, minlength=counts.shape[1])
    return counts


def _running_sums(blocks: Numbers) -> Numbers:
    return np.concatenate(
        [np.zeros_like(blocks[:1], np.int32), np.cumsum(blocks, axis=0, dtype=np.int32)]
    )


def _segments(sums: Numbers, size: int) -> Floats:
    """Return the counts of overlapping segments of `size` consecutive blocks."""
    starts = np.arange(0, len(sums) - size, max(size // _STEPS, 1))
    return np.asarray(sums[starts + size] - sums[starts], np.float64)


def _draw(blocks: Numbers, size: int, rng: np.random.Generator) -> Floats:
    """Return the counts of random selections of `size` blocks, with replacement: a group may be small."""
    rows = (rng.integers(len(blocks), size=size) for _ in range(_DRAWS))
    return np.asarray([blocks[some].sum(axis=0) for some in rows], np.float64)
