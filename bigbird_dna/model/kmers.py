"""K-mers of the bases that tokens cover, read from token ids alone; not part of the paper.

A small network learns exact motifs slowly, because a motif is divided into tokens in several ways. K-mer
counts show motifs at once. `TokenKmers` adds to each token's embedding the vectors of the k-mers around its
bases; `ensemble.KmerMember` adds the log-odds of a separately fitted regression on k-mer frequencies.

Special tokens are read as one N. A k-mer that touches an N or the end of the input counts nothing. Thus, no
k-mer contains a base of a masked token.

Shapes: B batch, L tokens, S bases of all rows, D hidden width.
"""

from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.genome.sequence import UNKNOWN, base_codes, canonical_kmers
from bigbird_dna.model.base_positions import bag_sums
from bigbird_dna.tokens.interface import Tokenizer, require_dna


@lru_cache(maxsize=8)
def kmer_rows(k: int, both_strands: bool) -> tuple[npt.NDArray[np.int32], int]:
    """Row of a table per number of a k-mer (4^k,), int32 from 1 on, and the number of rows, with row 0.

    With `both_strands`, a k-mer and its reverse complement have the same row.
    """
    numbers = canonical_kmers(k) if both_strands else np.arange(4**k)
    return numbers.astype(np.int32) + 1, int(numbers.max()) + 2


class Pieces(NamedTuple):
    """The bases of each token of a vocabulary, and of one more token, which separates rows."""

    codes: Tensor  # (V + 1, longest token) int32, A C G T = 0 … 3, N = 4^k, then −1
    lengths: Tensor  # (V + 1,) int32, at least 1
    rows: Tensor  # (4^k + 1,) int32, row of a table per number of a k-mer; 0, the last, for one with an N

    @classmethod
    def of(cls, tokenizer: Tokenizer, k: int, both_strands: bool) -> Self:
        """The bases of a DNA tokenizer's tokens."""
        letters = [text or "N" for text in (*tokenizer.letters, "")]
        lengths = np.array(list(map(len, letters)), np.int32)
        codes = np.full((len(letters), lengths.max()), -1, np.int32)
        codes[np.arange(codes.shape[1]) < lengths[:, None]] = base_codes(
            "".join(letters)
        )
        # The number of a k-mer with an N is at least 4^k.
        codes[codes == UNKNOWN] = 4**k
        rows = np.append(kmer_rows(k, both_strands)[0], np.int32(0))
        return cls(*map(torch.from_numpy, (codes, lengths, rows)))


class TokenWords(NamedTuple):
    """K-mers of the bases of a batch of tokens, with rows concatenated."""

    rows: Tensor  # (S,) int32, row of a table per base's k-mer, 0 for none
    starts: Tensor  # (B, L + 1) int32, bases before each token, and before what separates the rows


class ReadsKmers(nn.Module):
    """A part of a network that reads the k-mers of its tokens' bases; needs `attach` before use."""

    def __init__(self, k: int, both_strands: bool) -> None:
        super().__init__()
        self.k, self.both_strands = k, both_strands
        self._pieces: Pieces | None = None  # no weights: they follow from the tokenizer

    def attach(self, tokenizer: Tokenizer) -> None:
        """Set the tokenizer of the ids; `ModelError` for a tokenizer of ordinary text."""
        require_dna(tokenizer)
        self._pieces = Pieces.of(tokenizer, self.k, self.both_strands)

    @property
    def table_rows(self) -> int:
        """Number of rows of a table over k-mers, including row 0."""
        return kmer_rows(self.k, self.both_strands)[1]

    def words(self, ids: Tensor) -> TokenWords:
        """The k-mer around each base of ids (B, L): from ⌊(k − 1) / 2⌋ before it to ⌊k / 2⌋ after it."""
        if self._pieces is None:
            raise RuntimeError(
                "bases of tokens need the tokenizer of the ids: call attach_tokenizer first"
            )
        if self._pieces.codes.device != ids.device:
            self._pieces = Pieces(*(part.to(ids.device) for part in self._pieces))
        codes, lengths, table = self._pieces
        flat = nn.functional.pad(ids, (0, 1), value=len(lengths) - 1).flatten()
        sizes, letters = lengths[flat], codes[flat].flatten()
        places = torch.where(letters >= 0, (letters >= 0).cumsum(0) - 1, len(letters))
        before = (self.k - 1) // 2
        text = letters.new_full((len(letters) + self.k,), 4**self.k)
        text[before : before + len(letters) + 1].scatter_(0, places, letters)
        text[before + len(letters) :] = 4**self.k  # the last place has a −1
        # On a GPU, which would have to wait for the number of bases, rows of 0 follow.
        count = int(sizes.sum()) if ids.is_cpu else len(letters)
        numbers = torch.zeros_like(letters[:count])
        for place in range(self.k):
            numbers = 4 * numbers + text[place : place + count]
        starts = sizes.cumsum(0, dtype=torch.int32) - sizes
        rows = table[numbers.clamp_max_(4**self.k)]
        return TokenWords(rows, starts.view(len(ids), -1))


def attach_tokenizer(network: nn.Module, tokenizer: Tokenizer) -> None:
    """Set the tokenizer of the parts of a network that read bases; no effect if there are none."""
    for part in network.modules():
        if isinstance(part, ReadsKmers):
            part.attach(tokenizer)


class TokenKmers(ReadsKmers):
    """Sum of the vectors of the k-mers around the bases of each token; both strands have the same vector."""

    def __init__(self, k: int, hidden: int) -> None:
        super().__init__(k, both_strands=True)
        self.weight = nn.Parameter(torch.zeros(self.table_rows, hidden))

    def forward(self, ids: Tensor) -> Tensor:
        """Token ids (B, L) → (B, L, D)."""
        words = self.words(ids)
        return bag_sums(self.weight, words.rows, words.starts)[:, :-1]
