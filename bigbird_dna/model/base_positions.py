"""Base positions: add each base's offset from the TSS to the tokens of an aligned window.

All promoter windows have the TSS at the same offset, but a token does not encode the offsets of its bases,
because the number of bases per token varies. A token's embedding is therefore increased by the sum over its
bases of W[offset, base]. Offsets are in bp relative to the TSS and derive from the bases that the tokens
cover; cropping a window does not change them. W is initialized to zero and is not part of the encoder.

Shapes: B batch, L tokens, S bases of the longest row, D hidden width.
"""

from collections.abc import Sequence
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
    """The bases of several rows of tokens, concatenated, on a device."""

    rows: Tensor  # (S,) int32, row of W per base; 0, which stays zero, for N
    begins: Tensor  # (B,) int32, bases before each row of tokens
    starts: Tensor  # (B, L) int32, bases before each token


@dataclass(frozen=True)
class TokenBases:
    """The bases of N rows of tokens, concatenated: S bases, T tokens."""

    rows: Counts  # (S,) row of W per base; 0, which stays zero, for N
    starts: Counts  # (T,) bases before each token; [CLS] and [SEP] have none
    row_bases: Counts  # (N + 1,) bases before each row of tokens, and their total
    row_tokens: Counts  # (N + 1,) tokens before each row, and their total

    def padded(self, chosen: npt.ArrayLike, tokens: int) -> "PaddedBases":
        """The bases of selected rows, each padded to `tokens` tokens."""
        numbers = np.asarray(chosen)
        counts = np.diff(self.row_bases)[numbers]
        rows = np.zeros((len(numbers), counts.max(initial=0)), np.int32)
        starts = np.empty((len(numbers), tokens), np.int32)
        for index, (number, count) in enumerate(zip(numbers, counts, strict=True)):
            begin, own = (
                self.row_bases[number],
                slice(*self.row_tokens[number : number + 2]),
            )
            rows[index, :count] = self.rows[begin : begin + count]
            starts[index, : own.stop - own.start] = self.starts[own] - begin
            starts[index, own.stop - own.start :] = count
        return PaddedBases(torch.from_numpy(rows), torch.from_numpy(starts))


class PaddedBases(NamedTuple):
    """The bases of several rows of tokens, padded so that rows can be selected; see `TokenBases`."""

    rows: Tensor  # (B, S) int32, padded with 0
    starts: Tensor  # (B, L) int32, bases before each token of its row; padding tokens have none

    def batch(self) -> BaseBatch:
        """The same bases, with rows concatenated."""
        batch, size = self.rows.shape
        begins = torch.arange(
            0, batch * size, size, dtype=torch.int32, device=self.rows.device
        )
        # Bags are contiguous: the last token of a row also gets the row's padding, which adds zero.
        return BaseBatch(self.rows.flatten(), begins, self.starts + begins[:, None])


@dataclass(frozen=True)
class BaseOffsets:
    """Rows of W by a base's letter and position, in windows with the TSS at one position."""

    window: int  # bp

    @property
    def count(self) -> int:
        """Number of rows of W: four per position, plus row 0 for all other bases."""
        return 1 + len(BASES) * self.window

    def rows(self, sequences: Sequence[str], firsts: Sequence[int]) -> Counts:
        """Row of W per base (S,) of parts of windows, concatenated; 0 for N.

        Each part begins the given number of bp (`firsts`) after its window's start and is within the window.
        """
        letters = base_codes("".join(sequences)).astype(np.int32)
        parts = zip(firsts, sequences, strict=True)
        places = [
            np.arange(first, first + len(sequence), dtype=np.int32)
            for first, sequence in parts
        ]
        rows: Counts = (
            1 + len(BASES) * np.concatenate([*places, np.empty(0, np.int32)]) + letters
        )
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

        `sequences` are the tokenized parts of windows; each begins `firsts` bp after its window's start.
        `skipped` is the number of bp of each sequence before the first token of its row.
        """
        row_tokens = np.cumsum([0, *map(len, ids)], dtype=np.int32)
        ends = np.zeros(
            row_tokens[-1] + 1, np.int32
        )  # bases up to each token's end; first 0
        if ids:
            ends[1:] = tokenizer.piece_lengths[np.concatenate(ids)]
            ends[row_tokens[:-1] + 1] = ends[row_tokens[1:]] = 0  # [CLS] and [SEP]
        ends = np.cumsum(ends, dtype=np.int32)
        row_bases = ends[row_tokens]
        counts = np.diff(row_bases).tolist()
        whole = not any(skipped) and counts == list(map(len, sequences))
        if not whole:
            parts = zip(sequences, skipped, counts, strict=True)
            sequences = [
                sequence[start : start + count] for sequence, start, count in parts
            ]
            firsts = [
                first + start for first, start in zip(firsts, skipped, strict=True)
            ]
        return TokenBases(
            self.rows(sequences, firsts), ends[:-1], row_bases, row_tokens
        )


class BaseTerms(NamedTuple):
    """Terms that a classifier adds for the bases of its tokens; None if the network lacks the component."""

    embeddings: Tensor | None  # (B, L, D), added to the token embeddings
    logits: Tensor | None = None  # (B, T), added to the log-odds


class BasePositions(nn.Module):
    """The terms added to token embeddings: the sum of W[offset, base] over the bases of each token."""

    def __init__(self, offsets: BaseOffsets, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(offsets.count, hidden))

    def forward(self, bases: BaseBatch) -> Tensor:
        """Vectors (B, L, D); zero for tokens without bases."""
        return bag_sums(self.weight, bases.rows, bases.starts)


def bag_sums(weight: Tensor, rows: Tensor, starts: Tensor) -> Tensor:
    """Sums of rows of W from each start up to the next one, (…, D); starts must be ascending."""
    # Row 0 must remain zero and gets no gradient. Without gradients torch is faster if no row is excluded.
    unused = 0 if torch.is_grad_enabled() else None
    total = F.embedding_bag(
        rows, weight, starts.flatten(), mode="sum", padding_idx=unused
    )
    return total.view(*starts.shape, weight.shape[1])
