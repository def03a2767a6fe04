"""Label bins with the peaks of tracks, and store labels with one bit each.

There are N rows (bins), T tracks and K = ceil(T / 8) bytes per row. Track t is bit t % 8, counted from the
lowest, of byte t // 8; the bits above T are zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bigbird_dna.disk.arrays import open_npz
from bigbird_dna.disk.atomic import atomic_path, reading
from bigbird_dna.errors import DataError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    Interval,
    Intervals,
    Positions,
    unknown_runs,
    window_start,
)
from bigbird_dna.genome.splits import EXCLUDED, GAP, Splits

Bytes = npt.NDArray[np.uint8]

_ROWS = 65_536  # unpacked per batch
# Row b contains the bits of byte b.
_BITS = np.unpackbits(
    np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"
)


@dataclass(frozen=True, eq=False)
class PackedLabels:
    """Labels (N, T) of zeros and ones, stored as `packed` (N, K)."""

    packed: Bytes
    tracks: int

    @classmethod
    def empty(cls, rows: int, tracks: int) -> Self:
        """Return zero labels that are efficient to fill track by track: contiguous bytes per eight tracks."""
        return cls(np.zeros((-(-tracks // 8), rows), np.uint8).T, tracks)

    def mark(self, track: int, rows: Any) -> None:
        """Make a track positive in the given rows: indices (each once), a mask or a slice."""
        self.packed[rows, track // 8] |= np.uint8(1 << track % 8)

    @classmethod
    def from_dense(cls, labels: npt.ArrayLike) -> Self:
        """Pack labels (N, T); any nonzero value becomes one."""
        dense = np.asarray(labels)
        return cls(np.packbits(dense != 0, axis=1, bitorder="little"), dense.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """(N, T)."""
        return len(self.packed), self.tracks

    def __len__(self) -> int:
        return len(self.packed)

    def rows(self, index: Any = slice(None)) -> Bytes:
        """Return the labels of rows given by indices, a mask or a slice, (n, T) uint8."""
        return np.unpackbits(
            self.packed[index], axis=1, count=self.tracks, bitorder="little"
        )

    def positives(self, index: Any = None) -> npt.NDArray[np.int64]:
        """Return the number of positive rows of each track, among all rows or those of `index`, (T,)."""
        packed = self.packed if index is None else self.packed[index]
        found = [np.bincount(column, minlength=256) @ _BITS for column in packed.T]
        return np.concatenate([np.zeros(0, np.int64), *found])[: self.tracks]

    def any(self) -> npt.NDArray[np.bool_]:
        """Return whether each row has a positive track, (N,)."""
        return np.asarray(self.packed.any(axis=1))

    def take(self, index: Any) -> Self:
        """Return the labels of the rows of `index`."""
        return type(self)(np.ascontiguousarray(self.packed[index]), self.tracks)

    def select(self, tracks: npt.NDArray[np.intp]) -> Self:
        """Return the labels of the given tracks, in the given order."""
        if np.array_equal(tracks, np.arange(self.tracks)):
            return self
        packed = np.zeros((len(self), -(-len(tracks) // 8)), np.uint8)
        for start in range(0, len(self), _ROWS):
            block = slice(start, start + _ROWS)
            packed[block] = self.from_dense(self.rows(block)[:, tracks]).packed
        return type(self)(packed, len(tracks))

    def save(self, path: Path) -> None:
        """Write `packed` and `tracks` as a compressed `.npz`; the same labels give the same bytes."""
        with atomic_path(path) as temporary:
            np.savez_compressed(
                temporary, packed=self.packed, tracks=np.array(self.tracks)
            )

    @classmethod
    def load(cls, path: Path, rows: int | None = None) -> Self:
        """Read a file of `save`; if given, it must have labels of `rows` bins."""
        with (
            reading(path, "damaged or not a file of packed labels", Exception),
            open_npz(path) as arrays,
        ):
            packed, tracks = arrays["packed"], int(arrays["tracks"])
        expected = (len(packed) if rows is None else rows, -(-tracks // 8))
        if packed.dtype != np.uint8 or packed.shape != expected:
            raise DataError(
                f"{path}: not packed labels of shape {expected}, but {packed.dtype} {packed.shape}"
            )
        return cls(packed, tracks)


Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Labeling:
    """Parameters for labeling bins and for selecting bins and tracks."""

    bin_size: int = 200
    rule: Literal["half", "any"] = "half"
    """when a bin is positive: more than half of it is in peaks (DeepSEA: above 100 of 200 bp), or any base"""
    widen: int = 0
    """bp added to each side of a peak"""
    window: int
    """bp of the widest window that a model will see around a bin, including shifts; it determines the gap
    between training and held-out bins, and `max_n` applies to it"""
    max_n: float
    """maximum fraction of N in the window of a bin, otherwise it is dropped; bases beyond the contig are N"""
    negative_fraction: float = 0.0
    """fraction of the bins without any positive track that is kept: 0 as in DeepSEA, 1 keeps all"""
    min_positives: int
    """minimum positives per track in training; other tracks are excluded and listed in `dataset.json`"""
    min_held_out: int = 0
    """minimum positives per track in each held-out split that has bins"""
    seed: int = 0
    """seed for sampling bins without a positive track"""

    def positive_bins(self, intervals: Intervals, length: int) -> Positions:
        """Return the indices of the positive bins of a contig of `length` bp, ascending."""
        size = self.bin_size
        first = intervals.starts // size
        last = np.minimum((intervals.ends - 1) // size, length // size - 1)
        touched = np.maximum(last - first + 1, 0)
        before = np.repeat(first - (np.cumsum(touched) - touched), touched)
        numbers = np.sort(
            before + np.arange(len(before)), kind="stable"
        )  # `np.unique` is much slower
        numbers = numbers[np.diff(numbers, prepend=-1) > 0]
        covered = intervals.covered(numbers * size, (numbers + 1) * size)
        least = size // 2 + 1 if self.rule == "half" else 1
        return np.asarray(numbers[covered >= least])


DROPPED = ("excluded", "gap", "blacklist", "too many N")
"""Reasons for dropping a bin that has a positive track or was sampled."""


class LabeledBins(NamedTuple):
    """Candidate bins of a contig, N rows, and the number of dropped bins per reason."""

    starts: Positions
    splits: npt.NDArray[np.int8]
    sampled: Flags  # kept even without a positive track
    packed: Bytes  # labels as in `PackedLabels`
    dropped: list[int]  # counts per reason of `DROPPED`


def label_contig(
    reference: Reference,
    contig: str,
    peaks: Sequence[Mapping[str, Intervals]],
    blacklist: Intervals,
    splits: Splits,
    labeling: Labeling,
) -> LabeledBins:
    """Label the bins of a contig with the `peaks` of each track, which are by contig as in `place_peaks`.

    Bins on the `blacklist` are dropped.
    """
    length, size = reference.contigs[contig], labeling.bin_size
    count = length // size
    number = list(reference.contigs).index(contig)
    draws = np.random.default_rng((labeling.seed, number)).random(count)
    sampled = draws < labeling.negative_fraction
    labels = PackedLabels.empty(count, len(peaks))
    for track, intervals in enumerate(peaks):
        if contig in intervals:
            labels.mark(track, labeling.positive_bins(intervals[contig], length))
    candidates = np.flatnonzero(labels.any() | sampled)
    starts = candidates * size
    assigned = splits.assign(contig, starts, size, labeling.window)
    free = np.flatnonzero(assigned >= 0)
    allowed = free[~blacklist.overlap(starts[free], starts[free] + size)]
    used = allowed[_known_enough(reference, contig, starts[allowed], labeling)]
    dropped = [
        int(np.count_nonzero(assigned == EXCLUDED)),
        int(np.count_nonzero(assigned == GAP)),
        len(free) - len(allowed),
        len(allowed) - len(used),
    ]
    rows = candidates[used]
    packed = labels.take(rows).packed
    return LabeledBins(starts[used], assigned[used], sampled[rows], packed, dropped)


def _known_enough(
    reference: Reference, contig: str, starts: Positions, labeling: Labeling
) -> Flags:
    """Return whether the fraction of N in the window of each bin is at most `max_n`."""
    if labeling.max_n == 1 or not len(starts):
        return np.ones(len(starts), np.bool_)
    length, window = reference.contigs[contig], labeling.window
    opens = window_start(starts, labeling.bin_size, window)
    first, last = np.clip(opens, 0, length), np.clip(opens + window, 0, length)
    begin, end = int(first.min()), int(last.max())
    runs = unknown_runs(reference.fetch(Interval(contig, begin, end)))
    unknown = Intervals(runs.starts + begin, runs.ends + begin)
    known = last - first - unknown.covered(first, last)
    return np.asarray(window - known <= labeling.max_n * window)
