"""Label bins with the peaks of tracks, and store labels with one bit each.

There are N rows (bins), T tracks and K = ceil(T / 8) bytes per row. Track t is bit t % 8, counted from the
lowest, of byte t // 8; the bits above T are zero.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from bigbird_dna.disk.arrays import open_npz
from bigbird_dna.disk.atomic import atomic_path, reading
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import (
    Intervals,
    Positions,
)

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


def positive_bins(
    intervals: Intervals, length: int, size: int, rule: Literal["half", "any"]
) -> Positions:
    """Return the indices of the positive bins of `size` bp of a contig of `length` bp, ascending.

    A bin is positive if more than half of it is in the intervals, or any base.
    """
    first = intervals.starts // size
    last = np.minimum((intervals.ends - 1) // size, length // size - 1)
    touched = np.maximum(last - first + 1, 0)
    before = np.repeat(first - (np.cumsum(touched) - touched), touched)
    numbers = np.sort(
        before + np.arange(len(before)), kind="stable"
    )  # `np.unique` is much slower
    numbers = numbers[np.diff(numbers, prepend=-1) > 0]
    covered = intervals.covered(numbers * size, (numbers + 1) * size)
    least = size // 2 + 1 if rule == "half" else 1
    return np.asarray(numbers[covered >= least])
