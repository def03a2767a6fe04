"""Base positions: tokens of an aligned window know which base lies at which offset from the TSS.

All promoter windows have the TSS at the same offset, but a token does not know the offsets of its bases, as
the number of bases per token varies. A token's embedding therefore gets the sum over its bases of
W[offset, base]. Offsets count from the TSS, in bp, and come from the bases that the tokens cover: where a
window is cut, W's rows stay with their bases. W starts at zero and is no part of the encoder.

Shapes: B batch, L tokens, S bases of the longest row, D hidden width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.genome.sequence import UNKNOWN, base_codes
from bigbird_dna.tokens.interface import BASES, Tokenizer


class TokenBases(NamedTuple):
    """The bases of a row of tokens."""

    rows: npt.NDArray[np.int32]  # (S,) row of W for each base; 0, which stays zero, for N
    starts: npt.NDArray[np.int32]  # (L,) number of bases before each token; [CLS] and [SEP] have none


class BaseBatch(NamedTuple):
    """The bases of several rows of tokens, on a device; see `TokenBases`."""

    rows: Tensor  # (B, S) int32, padded with 0
    starts: Tensor  # (B, L) int32, those of padding tokens are the row's number of bases


@dataclass(frozen=True)
class BaseOffsets:
    """Which row of W a base has: by its letter and its offset from the TSS.

    `bin` neighboring offsets share their rows; no bin crosses the TSS.
    """

    upstream: int  # bp before the TSS
    downstream: int  # bp from the TSS on, TSS included
    bin: int = 1  # bp

    @property
    def count(self) -> int:
        """Rows of W: four for each bin, and one for bases without a row of their own."""
        bins = -(-self.upstream // self.bin) - (-self.downstream // self.bin)
        return 1 + len(BASES) * bins

    def rows(self, sequence: str, first: int) -> npt.NDArray[np.int32]:
        """Row of W for each base (S,) of a part of a window that begins `first` bp after the window's start.

        0 for N, and for bases beyond the window.
        """
        letters = base_codes(sequence).astype(np.int32)
        if first < 0 or first + len(letters) > len(self._firsts):
            places = np.arange(first, first + len(letters))
            inside = (places >= 0) & (places < len(self._firsts))
            return np.where(inside & (letters != UNKNOWN), self._firsts[places * inside] + letters, 0)
        rows = self._firsts[first : first + len(letters)] + letters
        rows[letters == UNKNOWN] = 0
        return rows

    @cached_property
    def _firsts(self) -> npt.NDArray[np.int32]:
        """Row of W for an A at each offset of the window, (upstream + downstream,)."""
        offsets = np.arange(-self.upstream, self.downstream)
        bins = offsets // self.bin - (-self.upstream // self.bin)
        return (1 + len(BASES) * bins).astype(np.int32)

    def token_bases(
        self, tokenizer: Tokenizer, row: npt.NDArray[np.integer], sequence: str, first: int, skipped: int
    ) -> TokenBases:
        """The bases of a row of tokens ([CLS] … [SEP]).

        Parameters
        ----------
        sequence
            What was tokenized: a part of a window that begins `first` bp after the window's start.
        skipped
            bp of `sequence` before the first token of the row.
        """
        starts = np.zeros(len(row), np.int32)
        np.cumsum(tokenizer.piece_lengths[row[1:-1]], out=starts[2:])
        return TokenBases(self.rows(sequence[skipped : skipped + starts[-1]], first + skipped), starts)


def pad_bases(given: Sequence[TokenBases], tokens: int) -> BaseBatch:
    """The bases of rows that are padded to `tokens` tokens, on the CPU."""
    if len(given) == 1 and len(given[0].starts) == tokens:
        return BaseBatch(*(torch.from_numpy(part[None]) for part in given[0]))
    rows = np.zeros((len(given), max(len(one.rows) for one in given)), np.int32)
    starts = np.empty((len(given), tokens), np.int32)
    for index, one in enumerate(given):
        rows[index, : len(one.rows)] = one.rows
        starts[index, : len(one.starts)] = one.starts
        starts[index, len(one.starts) :] = len(one.rows)
    return BaseBatch(torch.from_numpy(rows), torch.from_numpy(starts))


class BasePositions(nn.Module):
    """What is added to the embeddings of tokens: for each the sum of W[offset, base] over its bases."""

    def __init__(self, offsets: BaseOffsets, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(offsets.count, hidden))

    def forward(self, bases: BaseBatch) -> Tensor:
        """Vectors (B, L, D); zero for tokens without bases."""
        batch, size = bases.rows.shape
        # Bags are contiguous: the last token of a row gets what the row is padded with, which is nothing.
        bags = bases.starts.flatten()
        if batch > 1:
            begins = torch.arange(0, batch * size, size, dtype=torch.int32, device=bags.device)
            bags = (bases.starts + begins[:, None]).flatten()
        # Row 0 is zero and must stay so: it gets no gradient. Without gradients torch is faster for any row.
        unused = 0 if torch.is_grad_enabled() else None
        total = F.embedding_bag(bases.rows.flatten(), self.weight, bags, mode="sum", padding_idx=unused)
        return total.view(batch, -1, self.weight.shape[1])


class PositionMember(nn.Module):
    """The `position` baseline as a member of an ensemble: log-odds that each base of a window adds.

    It is fitted by itself, not by gradients, and zero until `set_weights`.
    """

    weight: Tensor  # (rows of W,)

    def __init__(self, offsets: BaseOffsets) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(offsets.count))

    def set_weights(self, coefficients: npt.NDArray[np.floating]) -> None:
        """Take the log-odds (window, 4) of A, C, G, T at each offset."""
        values = torch.from_numpy(coefficients.astype(np.float32)).flatten()
        self.weight[1:] = values.to(self.weight.device)

    def forward(self, bases: BaseBatch) -> Tensor:
        """Log-odds (B,) of windows."""
        return self.weight.index_select(0, bases.rows.flatten()).view(bases.rows.shape).sum(1)
