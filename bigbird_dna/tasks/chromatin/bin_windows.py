"""Windows around bins as those who compare with models read them: with labels, when they are asked for."""

import numpy as np
import numpy.typing as npt

from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.chromatin.dataset import ChromatinData
from bigbird_dna.genome.reference import Reference

Rows = npt.NDArray[np.intp]

# Axes: N windows, T tracks.


class BinWindows:
    """Windows of `length` bp around some bins of a data set, `rows` (N,)."""

    def __init__(self, data: ChromatinData, reference: Reference, length: int, rows: Rows) -> None:
        self.data, self.reference, self.rows = data, reference, rows
        self._length = length

    @property
    def shape(self) -> tuple[int, int]:
        """(N, T)."""
        return len(self.rows), len(self.data.tracks)

    @property
    def length(self) -> int:
        """bp of a window."""
        return self._length

    def sequences(self, rows: Rows) -> list[str]:
        """The sequences of some windows, N beyond their contig."""
        return [self.reference.fetch(one) for one in self.data.windows(self._length, self.rows[rows])]

    def labels(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """Their labels, (n, T)."""
        return self.data.labels.rows(self.rows[rows])


def checked_window(window: int, size: int) -> int:
    """bp of `--window` around bins of `size` bp; `ConfigError` where a bin can't be in their middle."""
    if window < size or (window - size) % 2:
        raise ConfigError(f"--window {window}: doesn't hold the bin of {size} bp in its middle")
    return window
