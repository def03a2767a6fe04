"""Sequences of small whole numbers with a class each, as files give them and as batches have them."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# Axes: N sequences, B of a batch, L tokens.

SPLITS = ("train", "valid", "test")
PAD, FIRST, OFFSET = 0, 1, 2
"""Ids of padding and of the first token, and what is added to symbols."""


class Sequences(NamedTuple):
    """Symbols of all sequences, one after the other, and a class for each."""

    symbols: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int64]  # (N,)
    targets: npt.NDArray[np.int64]  # (N,)

    @classmethod
    def joined(cls, rows: Sequence[bytes], targets: npt.NDArray[np.int64]) -> Self:
        ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
        return cls(np.frombuffer(b"".join(rows), np.uint8), ends, targets)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def longest(self) -> int:
        return int(np.diff(self.ends, prepend=0).max())

    def row(self, number: int) -> npt.NDArray[np.uint8]:
        return self.symbols[self.ends[number - 1] if number else 0 : self.ends[number]]

    def firsts(self) -> npt.NDArray[np.uint8]:
        found: npt.NDArray[np.uint8] = self.symbols[np.concatenate([[0], self.ends[:-1]])]
        return found

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """`ids` (B, L) with the first token in front, padded on the right, `lengths` and `targets` (B,)."""
        found = [self.row(row) for row in rows]
        lengths = torch.tensor([len(one) + 1 for one in found])
        ids = np.full((len(found), int(lengths.max())), PAD, np.int64)
        ids[:, 0] = FIRST
        for place, one in zip(ids, found, strict=True):
            place[1 : len(one) + 1] = one.astype(np.int64) + OFFSET
        targets = torch.from_numpy(self.targets[np.asarray(rows, np.intp)])
        return {"ids": torch.from_numpy(ids), "lengths": lengths, "targets": targets}
