"""Base positions: tokens of an aligned window know which base lies at which offset from the TSS.

All promoter windows have the TSS at the same offset, but a token does not know the offsets of its bases, as
the number of bases per token varies. A token's embedding therefore gets the sum over its bases of
W[offset, base]. Offsets count from the TSS, in bp, and come from the bases that the tokens cover: where a
window is cut, W's rows stay with their bases. W starts at zero and is no part of the encoder.

Shapes: B batch, L tokens, S bases of the longest row, D hidden width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.genome.sequence import UNKNOWN, base_codes
from bigbird_dna.tokens.interface import BASES, Tokenizer

Counts = npt.NDArray[np.int32]


class BaseBatch(NamedTuple):
    """The bases of several rows of tokens, one row after the other, on a device."""

    rows: Tensor  # (S,) int32, row of W for each base; 0, which stays zero, for N
    begins: Tensor  # (B,) int32, bases before each row of tokens
    starts: Tensor  # (B, L), or all tokens as (tokens,); int32, bases before each token


@dataclass(frozen=True)
class TokenBases:
    """The bases of N rows of tokens, one row after the other: S bases, T tokens."""

    rows: Counts  # (S,) row of W for each base; 0, which stays zero, for N
    starts: Counts  # (T,) bases before each token; [CLS] and [SEP] have none
    row_bases: Counts  # (N + 1,) bases before each row of tokens, and all
    row_tokens: Counts  # (N + 1,) tokens before each row, and all

    def joined(self, first: int, last: int) -> BaseBatch:
        """Those of the rows `first` to `last`, the last one not included, without padding."""
        bases = slice(self.row_bases[first], self.row_bases[last])
        tokens = slice(self.row_tokens[first], self.row_tokens[last])
        parts = (
            self.rows[bases],
            self.row_bases[first:last] - bases.start,
            self.starts[tokens] - bases.start,
        )
        return BaseBatch(*map(torch.from_numpy, parts))

    def groups(self, tokens: int) -> Iterator[tuple[int, int]]:
        """First row, and the one after the last, of groups of at most so many tokens, or of one row."""
        first, rows = 0, len(self.row_tokens) - 1
        while first < rows:
            room = np.searchsorted(self.row_tokens, self.row_tokens[first] + tokens, "right") - 1
            last = max(first + 1, int(room))
            yield first, last
            first = last

    def padded(self, chosen: npt.ArrayLike, tokens: int) -> "PaddedBases":
        """Those of some rows, each padded to `tokens` tokens."""
        numbers = np.asarray(chosen)
        counts = np.diff(self.row_bases)[numbers]
        rows = np.zeros((len(numbers), counts.max(initial=0)), np.int32)
        starts = np.empty((len(numbers), tokens), np.int32)
        for index, (number, count) in enumerate(zip(numbers, counts, strict=True)):
            begin, own = self.row_bases[number], slice(*self.row_tokens[number : number + 2])
            rows[index, :count] = self.rows[begin : begin + count]
            starts[index, : own.stop - own.start] = self.starts[own] - begin
            starts[index, own.stop - own.start :] = count
        return PaddedBases(torch.from_numpy(rows), torch.from_numpy(starts))


class PaddedBases(NamedTuple):
    """The bases of several rows of tokens, of which some can be taken; see `TokenBases`."""

    rows: Tensor  # (B, S) int32, padded with 0
    starts: Tensor  # (B, L) int32, bases before each token of its row; padding tokens have none

    def batch(self) -> BaseBatch:
        """The same, one row after the other."""
        batch, size = self.rows.shape
        begins = torch.arange(0, batch * size, size, dtype=torch.int32, device=self.rows.device)
        # Bags are contiguous: the last token of a row gets what the row is padded with, which is nothing.
        return BaseBatch(self.rows.flatten(), begins, self.starts + begins[:, None])


@dataclass(frozen=True)
class BaseOffsets:
    """Which row of W a base has: by its letter and its place in a window, where the TSS is at one place."""

    window: int  # bp

    @property
    def count(self) -> int:
        """Rows of W: four for each place, and one for bases without a row of their own."""
        return 1 + len(BASES) * self.window

    def rows(self, sequences: Sequence[str], firsts: Sequence[int]) -> Counts:
        """Row of W for each base (S,) of parts of windows, one after the other; 0 for N.

        Each part begins so many bp after its window's start, and is within the window.
        """
        letters = base_codes("".join(sequences)).astype(np.int32)
        parts = zip(firsts, sequences, strict=True)
        places = [np.arange(first, first + len(sequence), dtype=np.int32) for first, sequence in parts]
        rows: Counts = 1 + len(BASES) * np.concatenate([*places, np.empty(0, np.int32)]) + letters
        rows[letters == UNKNOWN] = 0
        return rows

    def token_bases(
        self,
        tokenizer: Tokenizer,
        ids: Sequence[npt.NDArray[np.integer]],
        sequences: Sequence[str],
        firsts: Sequence[int],
        skipped: Sequence[int],
    ) -> TokenBases:
        """The bases of N rows of tokens ([CLS] … [SEP]).

        `sequences` were tokenized: parts of windows, each of which begins `firsts` bp after its window's
        start; `skipped` are the bp of each before the first token of its row.
        """
        row_tokens = np.cumsum([0, *map(len, ids)], dtype=np.int32)
        ends = np.zeros(row_tokens[-1] + 1, np.int32)  # bases up to each token's end; 0 before the first
        if ids:
            ends[1:] = tokenizer.piece_lengths[np.concatenate(ids)]
            ends[row_tokens[:-1] + 1] = ends[row_tokens[1:]] = 0  # [CLS] and [SEP]
        ends = np.cumsum(ends, dtype=np.int32)
        row_bases = ends[row_tokens]
        counts = np.diff(row_bases).tolist()
        whole = not any(skipped) and counts == list(map(len, sequences))
        if not whole:
            parts = zip(sequences, skipped, counts, strict=True)
            sequences = [sequence[start : start + count] for sequence, start, count in parts]
            firsts = [first + start for first, start in zip(firsts, skipped, strict=True)]
        return TokenBases(self.rows(sequences, firsts), ends[:-1], row_bases, row_tokens)


class BaseTerms(NamedTuple):
    """What a classifier adds for the bases of its tokens; none where it lacks that part."""

    embeddings: Tensor | None  # (B, L, D), to those of the tokens
    logits: Tensor | None  # (B,), log-odds


class BasePositions(nn.Module):
    """What is added to the embeddings of tokens: for each the sum of W[offset, base] over its bases."""

    def __init__(self, offsets: BaseOffsets, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(offsets.count, hidden))

    def forward(self, bases: BaseBatch) -> Tensor:
        """Vectors (B, L, D), or (tokens, D); zero for tokens without bases."""
        return _sums(self.weight, bases.rows, bases.starts)


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
        return _sums(self.weight[:, None], bases.rows, bases.begins)[:, 0]


def _sums(weight: Tensor, rows: Tensor, starts: Tensor) -> Tensor:
    """Sums of rows of W: of those from each start up to the next one, (…, D); starts ascend."""
    # Row 0 is zero and must stay so: it gets no gradient. Without gradients torch is faster for any row.
    unused = 0 if torch.is_grad_enabled() else None
    total = F.embedding_bag(rows, weight, starts.flatten(), mode="sum", padding_idx=unused)
    return total.view(*starts.shape, weight.shape[1])
