"""Windows as zeros and ones for networks.

An N is four zeros, as in DeepSEA's data: it says nothing for any base, and what lies beyond a contig's end is
like the zeros that convolutions pad with.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from bigbird_dna.genome.sequence import UNKNOWN

# Axes: B windows, L bases.


def one_hot(codes: Tensor) -> Tensor:
    """(B, L) codes as (B, 4, L) zeros and ones, float32, an N as zeros."""
    return F.one_hot(codes.long(), UNKNOWN + 1)[..., :UNKNOWN].transpose(1, 2).float()
