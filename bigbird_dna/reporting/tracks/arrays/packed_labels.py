"""The labels of a chromatin data set, `labels.npz`, as an array."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bigbird_dna.errors import DataError
from bigbird_dna.reporting.tracks.arrays.array import Values, check_numbers, row_step


class PackedLabelsArray:
    """Labels of a chromatin data set: one bit each, the lowest bit of a byte first."""

    def __init__(self, path: Path, packed: Values, tracks: Values) -> None:
        self.path, self.names, self.places = str(path), None, None
        self.dtype = np.dtype(np.uint8)
        if tracks.ndim or tracks.dtype.kind not in "iu":
            raise DataError(f"{path}: packed labels whose 'tracks' is no whole number")
        self.tracks = int(tracks)
        width = -(-self.tracks // 8)
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != width:
            raise DataError(
                f"{path}: packed labels of {self.tracks} tracks are bytes, {width} a row, "
                f"not {packed.dtype} {packed.shape}"
            )
        self.rows = len(packed)
        check_numbers(self.path, self.dtype, (self.rows, self.tracks))
        spare = self.tracks % 8
        if spare and (packed[:, -1] >> spare).any():
            raise DataError(f"{path}: damaged: bits are set beyond track {self.tracks}")
        self._packed = packed

    def chunks(self, first: int, last: int) -> Iterator[Values]:
        low, high = first // 8, -(-last // 8)
        step = row_step(8 * (high - low), self.dtype)
        for start in range(0, self.rows, step):
            packed = self._packed[start : start + step, low:high]
            dense = np.unpackbits(packed, axis=1, bitorder="little")
            yield dense[:, first - 8 * low : last - 8 * low]
