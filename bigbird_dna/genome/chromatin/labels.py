"""Labels of many bins and tracks, one bit each.

N rows (bins), T tracks, K = ceil(T / 8) bytes a row. Track t is bit t % 8, counted from the lowest,
of byte t // 8; the bits above T are zero.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bigbird_dna.arrays import open_npz
from bigbird_dna.errors import DataError
from bigbird_dna.files import atomic_path, reading

Bytes = npt.NDArray[np.uint8]

_ROWS = 65_536  # unpacked at a time
# Row b: the bits of byte b.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")


@dataclass(frozen=True, eq=False)
class PackedLabels:
    """Labels (N, T) of zeros and ones, stored as `packed` (N, K)."""

    packed: Bytes
    tracks: int

    def __post_init__(self) -> None:
        wanted = (self.packed.shape[0], -(-self.tracks // 8))
        if self.packed.ndim != 2 or self.packed.dtype != np.uint8 or self.packed.shape != wanted:
            raise ValueError(
                f"packed labels of {self.tracks} tracks are uint8 {wanted}, "
                f"not {self.packed.dtype} {self.packed.shape}"
            )

    @classmethod
    def from_dense(cls, labels: npt.ArrayLike) -> Self:
        """Pack labels (N, T); whatever isn't zero is one."""
        dense = np.asarray(labels)
        return cls(np.packbits(dense != 0, axis=1, bitorder="little"), dense.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """(N, T)."""
        return len(self.packed), self.tracks

    def __len__(self) -> int:
        return len(self.packed)

    def rows(self, index: Any = slice(None)) -> Bytes:
        """The labels of the rows that an array of numbers, a mask or a slice chooses, (n, T) uint8."""
        return np.unpackbits(self.packed[index], axis=1, count=self.tracks, bitorder="little")

    def positives(self, index: Any = None) -> npt.NDArray[np.int64]:
        """How many rows (all, or the chosen) each track is positive in, (T,)."""
        packed = self.packed if index is None else self.packed[index]
        found = [np.bincount(column, minlength=256) @ _BITS for column in packed.T]
        return np.concatenate([np.zeros(0, np.int64), *found])[: self.tracks]

    def any(self) -> npt.NDArray[np.bool_]:
        """Whether a row has a positive track, (N,)."""
        return np.asarray(self.packed.any(axis=1))

    def take(self, index: Any) -> Self:
        """The labels of some rows."""
        return type(self)(self.packed[index], self.tracks)

    def select(self, tracks: npt.NDArray[np.intp]) -> Self:
        """The labels of some tracks, in the order given."""
        if np.array_equal(tracks, np.arange(self.tracks)):
            return self
        packed = np.zeros((len(self), -(-len(tracks) // 8)), np.uint8)
        for start in range(0, len(self), _ROWS):
            block = slice(start, start + _ROWS)
            packed[block] = self.from_dense(self.rows(block)[:, tracks]).packed
        return type(self)(packed, len(tracks))

    def save(self, path: Path) -> None:
        """Write `packed` and `tracks` as a compressed `.npz`, the same bytes every time."""
        with atomic_path(path) as temporary:
            np.savez_compressed(temporary, packed=self.packed, tracks=np.array(self.tracks))

    @classmethod
    def load(cls, path: Path, rows: int | None = None) -> Self:
        """Read what `save` wrote; `rows`, where it is known, is looked at before the labels are read.

        Raises
        ------
        DataError
            The file is missing, damaged, or holds something else or other rows.
        """
        with reading(path, "damaged or not a file of packed labels", Exception), open_npz(path) as stored:
            found = stored.header("packed").shape[:1]
            if rows is not None and found != (rows,):
                count = found[0] if found else 0
                raise DataError(
                    f"{path}: the files don't belong together: labels of {count:,} bins, {rows:,} bins"
                )
            labels = cls(stored.read("packed"), int(stored.read("tracks")))
        spare = labels.tracks % 8
        if spare and labels.packed.size and (labels.packed[:, -1] >> spare).any():
            raise DataError(f"{path}: damaged: bits are set beyond track {labels.tracks}")
        return labels


class LabelBuilder:
    """Labels that are filled in track by track.

    The bytes of one group of eight tracks lie side by side here, (K, N), so that a track touches
    N bytes.
    """

    def __init__(self, rows: int, tracks: int) -> None:
        self.tracks = tracks
        self._bytes = np.zeros((-(-tracks // 8), rows), np.uint8)

    def mark(self, track: int, rows: Any) -> None:
        """Make a track positive in rows given by number (each once), mask or slice."""
        self._bytes[track // 8][rows] |= np.uint8(1 << track % 8)

    def fill(self, first_track: int, first_row: int, labels: Bytes) -> None:
        """Set a block of labels, (tracks, rows) of zeros and ones, that was not set before."""
        before = first_track % 8
        padded = np.pad(labels, ((before, 0), (0, 0)))
        packed = np.packbits(padded, axis=0, bitorder="little")
        group = first_track // 8
        block = self._bytes[group : group + len(packed), first_row : first_row + labels.shape[1]]
        block |= packed

    def any(self) -> npt.NDArray[np.bool_]:
        """Whether a row has a positive track, (N,)."""
        return np.asarray(self._bytes.any(axis=0))

    def build(self, rows: Any = slice(None)) -> PackedLabels:
        """The labels of some rows, or all."""
        return PackedLabels(np.ascontiguousarray(self._bytes[:, rows].T), self.tracks)
