"""Windows as numbers for networks and matrices: A C G T are 0 1 2 3, and N is 4.

One-hot, an N is four zeros, as in DeepSEA's data: it says nothing for any base, and what lies beyond a
contig's end is like the zeros that convolutions pad with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

# Axes: B windows, L bases.

UNKNOWN = 4
_TABLE = np.full(256, UNKNOWN, np.uint8)
_TABLE[np.frombuffer(b"ACGT", np.uint8)] = np.arange(4)
_OTHER_STRAND = np.array([3, 2, 1, 0, UNKNOWN], np.uint8)


def base_codes(sequences: Sequence[str]) -> NDArray[np.uint8]:
    """Codes (B, L) of sequences of one length; whatever isn't A, C, G or T is an N."""
    text = np.frombuffer("".join(sequences).encode("ascii"), np.uint8)
    return _TABLE[text].reshape(len(sequences), -1) if sequences else np.zeros((0, 0), np.uint8)


def other_strand(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The reverse complements of windows, (B, L)."""
    return np.ascontiguousarray(_OTHER_STRAND[codes[:, ::-1]])


def one_hot(codes: Tensor) -> Tensor:
    """(B, L) codes as (B, 4, L) zeros and ones, float32, an N as zeros."""
    return F.one_hot(codes.long(), UNKNOWN + 1)[..., :UNKNOWN].transpose(1, 2).float()
