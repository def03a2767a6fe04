"""Sequences as numbers: A C G T are 0 1 2 3, and N is 4."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.genome import sequence
from bigbird_dna.genome.sequence import UNKNOWN

# Axes: N windows, L bases.

_OTHER_STRAND = np.array([3, 2, 1, 0, UNKNOWN], np.uint8)


def base_codes(sequences: Sequence[str]) -> NDArray[np.uint8]:
    """Codes (N, L) of sequences of one length; whatever isn't A, C, G or T is an N."""
    if not sequences:
        return np.zeros((0, 0), np.uint8)
    return sequence.base_codes("".join(sequences)).reshape(len(sequences), -1)


def other_strand(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The reverse complements of windows, (N, L)."""
    return np.ascontiguousarray(_OTHER_STRAND[codes[:, ::-1]])
