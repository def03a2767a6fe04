"""Arrays in files that are read in slices, so that memory does not grow with a corpus.

Slices are copied by one system call each. A memory map would count every page that random reads touch as
memory of the process, and would keep one open file per array.
"""

import operator
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError

_MOST_OPEN = 256  # files; systems often allow 1,024 per process
_LARGE = (
    1 << 20
)  # bytes from which a slice is read as a file; one `pread` returns at most 2 GB
_BLOCK = 512  # values per step of a search: a page of offsets

Side = Literal["left", "right"]


class _Handle:
    """An open file, closed with its last reference, so that another thread can still be reading it."""

    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


class ArrayFile:
    """`count` values of type `dtype` from byte `start` of a file. Its arrays are read-only copies."""

    def __init__(
        self, path: Path, dtype: np.dtype[Any], start: int, count: int
    ) -> None:
        self.path, self.dtype, self.start, self.count = path, dtype, start, count

    def __len__(self) -> int:
        return self.count

    def read(self, first: int, stop: int) -> NDArray[Any]:
        """Return the values `first` to `stop` - 1; `DataError` if the file cannot be read or is shorter."""
        size, place = (
            (stop - first) * self.dtype.itemsize,
            self.start + first * self.dtype.itemsize,
        )
        try:
            if size >= _LARGE:
                values: NDArray[Any] = np.fromfile(
                    self.path, self.dtype, stop - first, offset=place
                )
                values.flags.writeable = False
            else:
                content = os.pread(_opened(self).number, size, place)
                whole = len(content) - len(content) % self.dtype.itemsize
                values = np.frombuffer(content[:whole], self.dtype)
        except FileNotFoundError:
            raise DataError(f"{self.path}: no such file") from None
        except OSError as error:
            raise DataError(
                f"{self.path}: cannot read the file: {error.strerror}"
            ) from None
        if len(values) != stop - first:
            raise DataError(
                f"{self.path}: the file is damaged: it became shorter while it was read"
            )
        return values

    def searchsorted(self, value: int) -> int:
        """Return the index of the first of ascending values that is at least `value`, or their number.

        The value's place is estimated by interpolation, so that usually one or two blocks are read.
        """
        low, high = 0, self.count
        ends = [0, 0]
        if high > _BLOCK:
            ends = [int(self.read(0, 1)[0]), int(self.read(high - 1, high)[0])]
        for step in range(
            self.count
        ):  # fewer are needed: every second step halves the range
            if high - low <= _BLOCK:
                break
            middle = (high - low) // 2
            if step % 2 == 0:
                share = min(max(value - ends[0], 0), ends[1] - ends[0])
                middle = share * (high - low) // max(ends[1] - ends[0], 1)
            first = min(max(low + middle - _BLOCK // 2, low), high - _BLOCK)
            block = self.read(first, first + _BLOCK)
            if block[-1] < value:
                low, ends[0] = first + _BLOCK, int(block[-1])
            elif block[0] >= value:
                high, ends[1] = first, int(block[0])
            else:
                return first + int(np.searchsorted(block, value))
        return low + int(np.searchsorted(self.read(low, high), value))


@lru_cache(_MOST_OPEN)
def _opened(file: ArrayFile) -> _Handle:
    return _Handle(file.path)


class ShardedArray:
    """The arrays of several shards as one, which is read in slices (of consecutive values) like an array.

    `part(i)` returns the file of shard i, which is read only when its values are needed. With `sums`, the
    values are offsets: those of shard i begin with 0 and end with `sums[i]`, and continue those of the shard
    before; the whole array has one more value than `counts` add up to.
    """

    def __init__(
        self,
        part: Callable[[int], ArrayFile],
        counts: Sequence[int],
        dtype: np.dtype[Any],
        sums: Sequence[int] | None = None,
    ) -> None:
        self.part, self.dtype = part, dtype
        self._starts = [0]
        for count in counts:
            self._starts.append(self._starts[-1] + count)
        self._bases = [0]
        for each in sums or ():
            self._bases.append(self._bases[-1] + each)
        self._are_offsets = sums is not None

    def __len__(self) -> int:
        return self._starts[-1] + self._are_offsets

    def __getitem__(self, key: Any) -> Any:
        """Return the value at an index, or an array: of a slice without step, or of ascending indices."""
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise IndexError(
                    f"only slices of consecutive values, not of every {step}"
                )
            return self._read(start, stop)
        if isinstance(key, np.ndarray):
            return self._take(key)
        return self._at(key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self._read(0, len(self)).astype(dtype or self.dtype, copy=bool(copy))

    def searchsorted(self, value: int, side: Side = "left") -> int:
        """Return what `numpy.searchsorted` returns for offsets and one value."""
        least = int(value) + (side == "right")  # the first offset that is at least this
        if least <= 0:
            return 0
        if least > self._bases[-1]:
            return len(self)
        shard = bisect_left(self._bases, least) - 1
        return self._starts[shard] + self.part(shard).searchsorted(
            least - self._bases[shard]
        )

    def _at(self, key: SupportsIndex) -> Any:
        index = operator.index(key)
        index += len(self) if index < 0 else 0
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} of {len(self)} values")
        return self._read(index, index + 1)[0]

    def _take(self, indices: NDArray[np.integer]) -> NDArray[Any]:
        found = np.empty(len(indices), self.dtype)
        edges = np.searchsorted(indices, [*self._starts, len(self)])
        for first, stop in pairwise(edges.tolist()):
            if first < stop:
                own = indices[first:stop]
                found[first:stop] = self._read(int(own[0]), int(own[-1]) + 1)[
                    own - own[0]
                ]
        return found

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        pieces: list[NDArray[Any]] = []
        while start < min(stop, self._starts[-1]):
            shard = bisect_right(self._starts, start) - 1
            first, end = self._starts[shard], min(stop, self._starts[shard + 1])
            own = self.part(shard).read(start - first, end - first)
            base = self._bases[shard] if self._are_offsets else 0
            pieces.append(own + base if base else own)
            start = end
        if start < stop:
            pieces.append(np.array([self._bases[-1]], self.dtype))
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate([np.empty(0, self.dtype), *pieces])
