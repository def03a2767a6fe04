"""K-mers of the bases that tokens cover, read from token ids alone; not part of the paper.

A small network learns exact motifs slowly, because a motif is divided into tokens in several ways. K-mer
counts show motifs at once. `TokenKmers` adds to each token's embedding the vectors of the k-mers around its
bases; `KmerMember` adds the log-odds of a separately fitted regression on k-mer frequencies.

Special tokens are read as one N. A k-mer that touches an N or the end of the input counts nothing. Thus, no
k-mer contains a base of a masked token.

Shapes: B batch, L tokens, S bases of all rows, D hidden width, K bins, T outputs, R regions.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.genome.sequence import UNKNOWN, base_codes
from bigbird_dna.model.base_positions import bag_sums
from bigbird_dna.tokens.interface import Tokenizer, require_dna

LARGEST_K = 8


@lru_cache(maxsize=8)
def kmer_rows(k: int, both_strands: bool) -> tuple[Tensor, int]:
    """Row of a table per number of a k-mer (4^k,), int32 from 1 on, and the number of rows, with row 0.

    With `both_strands`, a k-mer and its reverse complement have the same row.
    """
    numbers = np.arange(4**k)
    if both_strands:
        turned, rest = np.zeros_like(numbers), numbers
        for _ in range(k):
            turned, rest = turned * 4 + 3 - rest % 4, rest // 4
        numbers = np.unique(np.minimum(numbers, turned), return_inverse=True)[1]
    return torch.from_numpy(numbers.astype(np.int32) + 1), int(numbers.max()) + 2


class Pieces(NamedTuple):
    """The bases of each token of a vocabulary, and of one more token, which separates rows."""

    codes: Tensor  # (V + 1, longest token) int32, A C G T N = 0 … 4, then −1
    lengths: Tensor  # (V + 1,) int32, at least 1

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Pieces":
        """The bases of a tokenizer's tokens; `ModelError` for a tokenizer of ordinary text."""
        require_dna(tokenizer)
        letters = [text or "N" for text in (*tokenizer.letters, "")]
        lengths = np.array(list(map(len, letters)), np.int32)
        codes = np.full((len(letters), lengths.max()), -1, np.int32)
        codes[np.arange(codes.shape[1]) < lengths[:, None]] = base_codes("".join(letters))
        return cls(torch.from_numpy(codes), torch.from_numpy(lengths))


class TokenWords(NamedTuple):
    """K-mers of the bases of a batch of tokens, with rows concatenated."""

    rows: Tensor  # (S,) int32, row of a table per base's k-mer, 0 for none
    starts: Tensor  # (B, L + 1) int32, bases before each token, and before the one that separates the rows


class ReadsBases(nn.Module):
    """A part of a network that reads the k-mers of its tokens' bases; needs `attach` before use."""

    def __init__(self, k: int, both_strands: bool) -> None:
        super().__init__()
        self.k, self.both_strands = k, both_strands
        self._pieces: Pieces | None = None  # not weights: the tokenizer's file contains them

    @property
    def table_rows(self) -> int:
        """Number of rows of a table over k-mers, including row 0."""
        return kmer_rows(self.k, self.both_strands)[1]

    def attach(self, tokenizer: Tokenizer) -> None:
        """Set the tokenizer of the ids; `ModelError` for a tokenizer of ordinary text."""
        self._pieces = Pieces.of(tokenizer)

    def words(self, ids: Tensor) -> TokenWords:
        """The k-mer around each base of ids (B, L): from ⌊(k − 1) / 2⌋ before it to ⌊k / 2⌋ after it."""
        if self._pieces is None:
            raise RuntimeError("k-mers need the tokenizer of the ids: call attach_tokenizer first")
        if self._pieces.codes.device != ids.device:
            self._pieces = Pieces(*(part.to(ids.device) for part in self._pieces))
        codes, lengths = self._pieces
        ids = nn.functional.pad(ids, (0, 1), value=len(lengths) - 1)
        ends = lengths[ids.flatten()].cumsum(0, dtype=torch.int32)
        letters = codes[ids.flatten()]  # (B (L + 1), longest token)
        bases = known_bases(letters) if ids.device.type == "cpu" else filled_bases(letters)
        size = len(bases)
        # K-mers that extend beyond either end touch an N.
        text = nn.functional.pad(bases, (self.k, self.k), value=UNKNOWN)
        first = self.k - (self.k - 1) // 2
        number, known = torch.zeros_like(bases), torch.ones_like(bases, dtype=torch.bool)
        for place in range(first, first + self.k):
            base = text[place : place + size]
            number, known = number * 4 + base, known & (base != UNKNOWN)
        table = _table_on(self.k, self.both_strands, ids.device)
        rows = torch.where(known, table[torch.where(known, number, 0)], 0)
        starts = (ends - lengths[ids.flatten()]).view(ids.shape)
        return TokenWords(rows, starts)


def known_bases(letters: Tensor) -> Tensor:
    """Letters (tokens, longest), without the −1 that fill them."""
    return letters[letters >= 0]


def filled_bases(letters: Tensor) -> Tensor:
    """`known_bases`, then N up to the number of values of `letters`.

    The result's length is known without waiting for a GPU.
    """
    flat = letters.flatten()
    places = torch.where(flat >= 0, (flat >= 0).cumsum(0) - 1, len(flat))
    return flat.new_full((len(flat) + 1,), UNKNOWN).scatter_(0, places, flat)[:-1]


@lru_cache(maxsize=32)
def _table_on(k: int, both_strands: bool, device: torch.device) -> Tensor:
    return kmer_rows(k, both_strands)[0].to(device)


def attach_tokenizer(network: nn.Module, tokenizer: Tokenizer) -> None:
    """Set the tokenizer of the parts of a network that read bases; no effect if there are none."""
    for part in network.modules():
        if isinstance(part, ReadsBases):
            part.attach(tokenizer)


class TokenKmers(ReadsBases):
    """Sum of the vectors of the k-mers around the bases of each token; both strands have the same vector."""

    def __init__(self, k: int, hidden: int) -> None:
        super().__init__(k, both_strands=True)
        self.weight = nn.Parameter(torch.zeros(self.table_rows, hidden))

    def forward(self, ids: Tensor) -> Tensor:
        """Token ids (B, L) → (B, L, D)."""
        words = self.words(ids)
        return bag_sums(self.weight, words.rows, words.starts)[:, :-1]


class KmerMember(ReadsBases):
    """A regression on k-mer frequencies as an ensemble member: the log-odds, up to a constant.

    Regions are a range of tokens, extended by each of `margins` bp at both ends. It is fitted separately, not
    by gradients, and zero until `set_weights` is called.
    """

    weight: Tensor  # (R, rows, T)

    def __init__(self, k: int, outputs: int, margins: Sequence[int], both_strands: bool) -> None:
        super().__init__(k, both_strands)
        self.margins = tuple(margins)
        self.register_buffer("weight", torch.zeros(len(margins), self.table_rows, outputs))

    def set_weights(self, coefficients: npt.NDArray[np.floating]) -> None:
        """Set the log-odds per frequency of each k-mer in each region, (R · (rows − 1) · T,) in any shape."""
        values = torch.from_numpy(coefficients.astype(np.float32)).to(self.weight.device)
        self.weight[:, 1:] = values.view(self.weight[:, 1:].shape)

    def regions(self, ids: Tensor, spans: Tensor) -> list[Tensor]:
        """Rows of the k-mers of each region, (B K, longest region) each, filled with 0.

        `spans` (B, K, 2) are a range's first token and the one after its last.
        """
        words = self.words(ids)
        spans = spans.to(ids.device)
        flat = words.starts.gather(1, spans.flatten(1)).view(-1, 2).long()  # (B K, 2) bases
        bins = spans.shape[1]
        begins = words.starts[:, 0].long().repeat_interleave(bins)
        ends = words.starts[:, -1].long().repeat_interleave(bins)
        found = []
        for margin in self.margins:
            first = torch.maximum(flat[:, 0] - margin, begins)
            last = torch.minimum(flat[:, 1] + margin, ends)
            places = first[:, None] + torch.arange(int((last - first).max()), device=ids.device)
            inside = places < last[:, None]
            found.append(torch.where(inside, words.rows[torch.where(inside, places, 0)], 0))
        return found

    def forward(self, ids: Tensor, spans: Tensor) -> Tensor:
        """Log-odds (B, K, T) of ids (B, L) for the ranges of tokens `spans` (B, K, 2)."""
        total = torch.zeros((), device=ids.device)
        for weight, rows in zip(self.weight, self.regions(ids, spans), strict=True):
            sums = nn.functional.embedding_bag(rows, weight, mode="sum")
            total = total + sums / (rows > 0).sum(1, keepdim=True).clamp_min(1)
        return total.view(*spans.shape[:2], -1)
