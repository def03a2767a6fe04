"""Inputs of networks that depend on the bases of tokens: k-mers, and positions in aligned windows.

A small network learns exact motifs slowly, because a motif is divided into tokens in several ways, and a token
does not encode the offsets of its bases, because the number of bases per token varies. `TokenKmers` adds to
each token's embedding the vectors of the k-mers around its bases, `BasePositions` those of its bases' letters
and positions. Neither is part of the paper.

Shapes: B batch, L tokens, S bases of all rows, D hidden width.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.attention.call import copied
from bigbird_dna.genome.sequence import UNKNOWN, base_codes, canonical_kmers
from bigbird_dna.tokens.interface import BASES, Tokenizer, require_dna


@lru_cache(maxsize=8)
def kmer_rows(k: int, both_strands: bool) -> tuple[npt.NDArray[np.int32], int]:
    """Row of a table per number of a k-mer (4^k,), int32 from 1 on, and the number of rows, with row 0.

    With `both_strands`, a k-mer and its reverse complement have the same row.
    """
    numbers = canonical_kmers(k) if both_strands else np.arange(4**k)
    return numbers.astype(np.int32) + 1, int(numbers.max()) + 2


class BaseReader(nn.Module):
    """A part of a network that reads the k-mers of its tokens' bases; needs `attach` before use.

    Special tokens are read as `blank`: as one N, or as nothing. A k-mer that touches an N or the end of the
    input has row 0, which stays zero. Thus, with N, no k-mer contains a base of a masked token.
    """

    def __init__(self, k: int, both_strands: bool, blank: str = "N") -> None:
        super().__init__()
        self.k, self.both_strands, self.blank = k, both_strands, blank
        # Of the tokenizer, so they are no weights: letters of each token, and of one more that separates
        # rows, as codes (V + 1, longest), 4^k for N and -1 beyond its end; number of letters (V + 1,); row of
        # the table of each k-mer's number, and last that of all with an N.
        self._tables: tuple[Tensor, Tensor, Tensor] | None = None

    def attach(self, tokenizer: Tokenizer) -> None:
        """Set the tokenizer of the ids; `ModelError` for a tokenizer of ordinary text."""
        require_dna(tokenizer)
        letters = [text or self.blank for text in (*tokenizer.letters, "")]
        lengths = np.array(list(map(len, letters)), np.int32)
        codes = np.full((len(letters), lengths.max()), -1, np.int32)
        present = np.arange(codes.shape[1]) < lengths[:, None]
        codes[present] = base_codes("".join(letters))
        codes[codes == UNKNOWN] = (
            4**self.k
        )  # so that of a k-mer with an N at least this
        rows = np.append(kmer_rows(self.k, self.both_strands)[0], np.int32(0))
        codes_of, lengths_of, rows_of = map(torch.from_numpy, (codes, lengths, rows))
        self._tables = codes_of, lengths_of, rows_of

    @property
    def table_rows(self) -> int:
        """Number of rows of a table over k-mers, including row 0."""
        return kmer_rows(self.k, self.both_strands)[1]

    def words(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The k-mer around each base of ids (B, L): from ⌊(k − 1) / 2⌋ before it to ⌊k / 2⌋ after it.

        Returns the row of a table per base's k-mer (S,), and the number of bases before each token, and before
        what separates the rows, (B, L + 1); both int32, for all rows together.
        """
        if self._tables is None:
            raise RuntimeError(
                "bases of tokens need the tokenizer of the ids: call attach_tokenizer first"
            )

        if self._tables[0].device != ids.device:
            codes, lengths, rows = (copied(x, ids.device) for x in self._tables)
            self._tables = codes, lengths, rows

        codes, lengths, rows = self._tables
        k, unknown = self.k, 4**self.k

        tokens = F.pad(ids, (0, 1), value=len(lengths) - 1).flatten()
        sizes = lengths.index_select(0, tokens)
        letters = codes.index_select(0, tokens).flatten()
        present = letters >= 0
        before = (k - 1) // 2
        # Letters without gaps, with N before and after them.
        if ids.is_cpu:
            letters = letters.masked_select(present)
            text = F.pad(letters, (before, k - before), value=unknown)
        else:
            # A GPU would have to wait for their number: the last element takes all that are absent.
            text = letters.new_full((len(letters) + k + 1,), unknown)
            index = torch.where(present, present.cumsum(0) - 1 + before, len(text) - 1)
            text.scatter_(0, index, letters)

        count = len(letters)  # on a GPU, rows of 0 follow
        numbers = text[:count]
        for offset in range(1, k):
            numbers = 4 * numbers + text[offset : offset + count]

        starts = sizes.cumsum(0, dtype=torch.int32) - sizes
        numbers.clamp_max_(unknown)
        return rows.index_select(0, numbers), starts.view(len(ids), -1)


def attach_tokenizer(network: nn.Module, tokenizer: Tokenizer) -> None:
    """Set the tokenizer of the parts of a network that read bases; no effect if there are none."""
    for part in network.modules():
        if isinstance(part, BaseReader):
            part.attach(tokenizer)


class TokenKmers(BaseReader):
    """Sum of the vectors of the k-mers around the bases of each token; both strands have the same vector."""

    def __init__(self, k: int, hidden: int) -> None:
        super().__init__(k, both_strands=True)
        self.weight = nn.Parameter(torch.zeros(self.table_rows, hidden))

    def forward(self, ids: Tensor) -> Tensor:
        """Token ids (B, L) → (B, L, D)."""
        rows, starts = self.words(ids)
        return bag_sums(self.weight, rows, starts)[:, :-1]


class PositionReader(BaseReader):
    """Reads the letter and position of each base of aligned windows of `window` bp.

    A table has four rows per position, for A, C, G and T, after row 0 for N. Positions follow from the bases
    that tokens cover; cropping a window does not change them.
    """

    def __init__(self, window: int) -> None:
        super().__init__(1, both_strands=False, blank="")
        self.position_rows = 1 + len(BASES) * window

    def positions(self, ids: Tensor, firsts: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the table (S,) and starts as by `words`; `firsts` (B,) are bp before a row's first base."""
        letters, starts = self.words(ids)
        row_starts = starts[:, 0].contiguous()
        number = torch.arange(len(letters), dtype=torch.int32, device=ids.device)
        row = torch.bucketize(number, row_starts, right=True) - 1
        shift = copied(firsts, ids.device).int() - row_starts
        rows = len(BASES) * (number + shift.index_select(0, row)) + letters
        return rows.masked_fill_(letters == 0, 0), starts


class BasePositions(PositionReader):
    """Sum, over the bases of each token, of the vectors of their letters and positions; initially zero."""

    def __init__(self, window: int, hidden: int) -> None:
        super().__init__(window)
        self.weight = nn.Parameter(torch.zeros(self.position_rows, hidden))

    def forward(self, ids: Tensor, firsts: Tensor) -> Tensor:
        """Vectors (B, L, D) of ids (B, L); `firsts` (B,) are the bp of a window before its row's first base."""
        return bag_sums(self.weight, *self.positions(ids, firsts))[:, :-1]


def bag_sums(weight: Tensor, rows: Tensor, starts: Tensor) -> Tensor:
    """Sums of rows of W from each start up to the next one, (…, D); starts must be ascending."""
    # Row 0 must remain zero and gets no gradient. Without gradients torch is faster if no row is excluded.
    unused = 0 if torch.is_grad_enabled() else None
    total = F.embedding_bag(
        rows, weight, starts.flatten(), mode="sum", padding_idx=unused
    )
    return total.view(*starts.shape, weight.shape[1])
