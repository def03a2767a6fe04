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
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bigbird_dna.config.section import Section
from bigbird_dna.genome.sequence import (
    Interval,
    base_codes,
    canonical_kmers,
    clean_bytes,
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
_DEVIATIONS = (
    4  # of distances above their mean: few segments have not the largest distance yet
)
_WORD, _BUCKETS = (
    16,
    1 << 20,
)  # bases of the words whose repetition is measured; number of their hashes
_BUFFER = 1 << 16  # letters counted together

Numbers = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]
Share = Annotated[float, Field(ge=0, le=1)]


@cache
def _features() -> tuple[NDArray[np.int16], tuple[str, ...], Floats]:
    """Return the feature of each 5-mer (4^5,), and the name and GC content of each feature (F,)."""
    of_kmers = canonical_kmers(K).astype(np.int16)
    first = np.unique(of_kmers, return_index=True)[1]
    digits = first[:, None] >> np.arange(2 * K - 2, -1, -2) & 3
    names = ("".join("ACGT"[digit] for digit in row) for row in digits.tolist())
    return of_kmers, tuple(names), np.isin(digits, (1, 2)).mean(axis=1)


class _Words(NamedTuple):
    """The 5-mers of a text without N, as features (N,), and hashes of its longer words."""

    features: NDArray[np.int16]
    hashes: NDArray[np.int64]


def _words(letters: str, skipped: int = 0) -> _Words:
    """Return the words that end after the first `skipped` letters."""
    codes = base_codes(letters)
    words, known = words_ending(codes, _WORD)[skipped:], known_before(codes)[skipped:]
    hashed = words[known >= _WORD].astype(np.uint64) * np.uint64(
        0x9E3779B97F4A7C15
    ) >> np.uint64(44)
    return _Words(_features()[0][words[known >= K] % 4**K], hashed.astype(np.int64))


def profile_distance(first: Floats, second: Floats) -> Any:
    """Return the symmetric chi-square distance of counts or frequencies (…, F), (…)."""
    p, q = (
        one / np.maximum(one.sum(axis=-1, keepdims=True), 1e-300)
        for one in (first, second)
    )
    return ((p - q) ** 2 / np.maximum(p + q, 1e-300)).sum(axis=-1) / 2


def gc_content(counts: Floats) -> float:
    """Return the GC content of counts or frequencies of 5-mers (F,)."""
    return float(counts @ _features()[2] / counts.sum())


class KmerCounts:
    """Counts of the 5-mers of records that are read as a stream, up to `MOST_BASES`, in constant memory."""

    def __init__(self) -> None:
        self.counts: Floats = np.zeros(len(_features()[1]))
        self._repeats = np.zeros(_BUCKETS, np.int32)
        self._held: list[str] = []
        self._size = self._skipped = (
            0  # letters in `_held`; those of them that were counted before
        )

    def add(self, letters: bytes, first: bool = True) -> None:
        """Count DNA letters of any case; `first` unless they continue the previous ones."""
        if self.is_full:
            return
        self._hold("N" * first)
        for start in range(0, len(letters), _BUFFER):
            self._hold(clean_bytes(letters[start : start + _BUFFER]).decode("ascii"))
            if self._size >= _BUFFER:
                self._count()

    def _hold(self, letters: str) -> None:
        self._held.append(letters)
        self._size += len(letters)

    def _count(self) -> None:
        text = "".join(self._held)
        found = _words(text, self._skipped)
        features = found.features[: MOST_BASES - self.bases]
        self.counts += np.bincount(features, minlength=len(self.counts))
        np.add.at(
            self._repeats, found.hashes, np.int32(1)
        )  # other types are far slower
        self._held = [text[-_WORD + 1 :]]
        self._size = self._skipped = len(self._held[0])

    @property
    def bases(self) -> int:
        """Number of counted 5-mers."""
        return int(self.counts.sum())

    @property
    def is_full(self) -> bool:
        """Whether further sequence would not be counted."""
        return self.bases >= MOST_BASES

    def finish(self) -> None:
        """Count the last letters."""
        self._count()

    @property
    def amount(self) -> float:
        """Number of bp of sequence without repetition that would be as variable: (Σ c)² / Σ c², with the
        counts c of 16-mers. A thousand variants of one sequence have the amount of one."""
        counts = self._repeats.astype(np.float64)
        return float(counts.sum() ** 2 / max(counts @ counts, 1))


class Limit(Section):
    """The largest distance of parts of the training sequence that have this amount of sequence."""

    bases: Annotated[int, Field(gt=0)]
    distance: Share


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
    gc: Share
    frequencies: dict[str, Share]
    limits: tuple[Limit, ...]

    def _faults(self) -> Iterator[str]:
        if tuple(self.frequencies) != _features()[1]:
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

    def compare(self, found: KmerCounts) -> ProfileDifference | None:
        """Compare an input; None if it is too short.

        Between two amounts, limits are interpolated on a logarithmic axis, which is never below the curve.
        """
        amount, bases = found.amount, [limit.bases for limit in self.limits]
        if amount < bases[0]:
            return None
        limit = np.interp(
            np.log(amount), np.log(bases), [limit.distance for limit in self.limits]
        )
        distance = profile_distance(
            found.counts, np.array([*self.frequencies.values()])
        )
        return ProfileDifference(
            float(distance), float(limit), gc_content(found.counts), self.gc
        )


def spaced_parts(intervals: Sequence[Interval], bases: int) -> list[Interval]:
    """Return about `bases` bp of intervals: all, or `SAMPLED_PARTS` parts at equal distances."""
    ends = np.cumsum([len(one) for one in intervals])
    if not len(ends) or ends[-1] <= bases:
        return [*intervals]
    parts = []
    for place in (
        np.linspace(0, ends[-1], SAMPLED_PARTS, endpoint=False).astype(int).tolist()
    ):
        number = int(np.searchsorted(ends, place, side="right"))
        one = intervals[number]
        start = one.end - (int(ends[number]) - place)
        parts.append(
            Interval(one.contig, start, min(start + bases // SAMPLED_PARTS, one.end))
        )
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
    total = blocks.sum(axis=0, dtype=np.float64)
    order = np.argsort(blocks @ _features()[2], kind="stable")
    extreme = len(blocks) // _EXTREME
    extremes = blocks[order[:extreme]], blocks[order[-extreme:]]
    grouped_blocks = [one for one in map(_blocks, groups) if len(one)]
    sums, others = _running_sums(blocks), _running_sums(_blocks(held_out))
    limits = []
    for amount in amounts:
        size, rng = amount // _BLOCK, np.random.default_rng(0)
        own, held = _segments(sums, size), _segments(others, size)
        segments = np.append(
            profile_distance(own, total - own), profile_distance(held, total)
        )
        drawn = [profile_distance(_draw(one, size, rng), total) for one in extremes]
        grouped = [
            profile_distance(_draw(one, size, rng), total) for one in grouped_blocks
        ]
        found = [segments.max(), *(one.mean() for one in drawn)]
        found += [one.mean() + _DEVIATIONS * one.std() for one in (segments, *grouped)]
        limits.append(
            Limit(bases=amount, distance=round(min(float(max(found)), 1.0), 6))
        )
    shares = (total / total.sum()).round(8).tolist()
    return TrainingProfile(
        kind="sequences" if assembly is None else "genome",
        assembly=assembly,
        species=species,
        bases=len(blocks) * _BLOCK,
        gc=round(gc_content(total), 6),
        frequencies=dict(zip(_features()[1], shares, strict=True)),
        limits=tuple(limits),
    )


def _blocks(sequences: Iterable[str]) -> Numbers:
    """Return the counts (B, F) in consecutive blocks of 5-mers, which may extend over several sequences."""
    found, count = [np.empty(0, np.int16)], len(_features()[1])
    held, size = list[str](), 0
    for sequence in sequences:
        held, size = [*held, sequence], size + len(sequence)
        if size >= _BUFFER:
            found.append(_words("N".join(held)).features)
            held, size = [], 0
    features = np.concatenate([*found, _words("N".join(held)).features])
    blocks = features[: len(features) // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
    counts = np.zeros((len(blocks), count), np.uint16)
    for number in range(0, len(blocks), 1024):
        some = blocks[number : number + 1024]
        places = np.arange(len(some))[:, None] * count + some
        found_here = np.bincount(places.ravel(), minlength=len(some) * count)
        counts[number : number + 1024] = found_here.reshape(-1, count)
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
