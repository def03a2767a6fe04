"""Ensembles: regressions whose log-odds are added to a trained network's; not part of the paper.

The regressions are fitted after training (`finetuning.ensembles`) and stored with the network's weights. Each
is zero until `set_weights` is called.

Shapes: B batch, L tokens, K bins, T outputs, R regions of a bin.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.genome.sequence import GAPS, PAIRS, canonical_kmers, dyad_parts
from bigbird_dna.model.bases import BaseReader, PositionReader, bag_sums

Integers = npt.NDArray[np.integer]


class PositionMember(PositionReader):
    """The `position` baseline as an ensemble member: the log-odds that each base of a window adds."""

    weight: Tensor  # (4 · window + 1,)

    def __init__(self, window: int) -> None:
        super().__init__(window)
        self.register_buffer("weight", torch.zeros(self.position_rows))

    def set_weights(self, coefficients: npt.NDArray[np.floating]) -> None:
        """Set the log-odds (window, 4) of A, C, G, T at each offset."""
        self.weight[1:] = torch.from_numpy(coefficients.astype(np.float32)).flatten()

    def forward(self, ids: Tensor, firsts: Tensor) -> Tensor:
        """Log-odds (B, 1) of windows; arguments as for `BasePositions`."""
        rows, starts = self.positions(ids, firsts)
        return bag_sums(self.weight[:, None], rows, starts[:, 0])


class KmerMember(BaseReader):
    """A regression on k-mer frequencies as an ensemble member: the log-odds, up to a constant.

    Without `margins`, the frequencies are those in a row; with them, those in a range of tokens, extended by
    each of `margins` bp at both ends.
    """

    weight: Tensor  # (R, rows, T + 1); the last column is 1 for each k-mer: counts

    def __init__(
        self, k: int, outputs: int, both_strands: bool, margins: Sequence[int] = ()
    ) -> None:
        super().__init__(k, both_strands)
        self.margins = tuple(margins)
        weight = torch.zeros(max(1, len(margins)), self.table_rows, outputs + 1)
        weight[:, 1:, -1] = 1
        self.register_buffer("weight", weight)

    def set_weights(self, coefficients: npt.NDArray[np.floating]) -> None:
        """Set the log-odds per frequency of each k-mer in each region, (R · (rows − 1) · T,) in any shape."""
        weight = self.weight[:, 1:, :-1]
        weight.copy_(
            torch.from_numpy(coefficients.astype(np.float32)).view(weight.shape)
        )

    def forward(self, ids: Tensor, spans: Tensor | None = None) -> Tensor:
        """Log-odds (B, K, T) of ids (B, L) for ranges of tokens `spans` (B, K, 2); None: (B, T) of rows.

        `spans`, on the CPU, are a range's first token and the one after its last.
        """
        rows, starts = self.words(ids)
        if spans is None:
            return _mean(bag_sums(self.weight[0], rows, starts[:, 0]))

        total = torch.zeros((), device=ids.device)
        for weight, margin in zip(self.weight, self.margins, strict=True):
            bases, firsts, _ = bases_in(starts, spans, margin)
            words = rows[torch.from_numpy(bases).to(ids.device)]
            first = torch.from_numpy(firsts.astype(np.int32)).to(ids.device)
            total = total + _mean(bag_sums(weight, words, first))

        return total.view(*spans.shape[:2], -1)


class DyadMember(BaseReader):
    """Weights of each track's spaced dyads (`baselines.dyads`), whose counts in a bin's tokens are added.

    A dyad is in the bin if the central bases of its two parts are.
    """

    parts: Tensor  # (T, dyads of a track, 3), see `dyad_parts`: small numbers, exact in any type of weights
    weight: Tensor  # (T, dyads of a track)

    def __init__(self, outputs: int, each: int) -> None:
        super().__init__(3, both_strands=False)
        self.register_buffer("parts", torch.zeros(outputs, each, 3))
        self.register_buffer("weight", torch.zeros(outputs, each))

    def set_weights(self, numbers: Integers, weight: npt.NDArray[np.floating]) -> None:
        """Set the dyads and their log-odds per count, (T, dyads of a track) each."""
        self.parts.copy_(torch.from_numpy(dyad_parts(numbers)))
        self.weight.copy_(torch.from_numpy(weight))

    def forward(self, ids: Tensor, spans: Tensor) -> Tensor:
        """Log-odds (B, K, T) of ids (B, L) for ranges of tokens `spans` (B, K, 2), on the CPU."""
        words, starts = self.words(ids)
        # By NumPy: torch takes four times as long on a CPU.
        first, regions, ends = (
            part.astype(np.int32) for part in bases_in(starts, spans, 0)
        )
        sizes = np.diff(np.append(regions, len(first)))
        rows = np.append(words.cpu().numpy(), np.int32(0))  # the last one is none
        gaps = np.arange(GAPS, dtype=np.int32)[:, None]
        second = first + (gaps + 3)  # (gaps, bases)
        np.copyto(second, len(rows) - 1, where=second >= np.repeat(ends, sizes))
        column = PAIR_OF_ROWS.take(65 * rows[first] + rows.take(second))
        column += (PAIRS + 1) * gaps
        width = GAPS * (PAIRS + 1)
        column += np.repeat(width * np.arange(len(sizes), dtype=np.int32), sizes)
        counts = np.bincount(column.ravel(), minlength=width * len(sizes))

        gap, left, right = self.parts.long().cpu().numpy().transpose(2, 0, 1)
        dyads = (PAIRS + 1) * gap + PAIR_OF_ROWS[65 * left + right + 66]  # (T, dyads)
        of_tracks = torch.from_numpy(counts.reshape(-1, width)[:, dyads]).to(ids.device)
        return (of_tracks * self.weight).sum(-1).view(*spans.shape[:2], -1)


# The number of a pair of trinucleotides by their rows (65 · 65,); `PAIRS` with row 0, for none.
_PAIRS = np.full((65, 65), PAIRS, np.int32)
_PAIRS[1:, 1:] = canonical_kmers(6).reshape(64, 64)
PAIR_OF_ROWS = _PAIRS.ravel()


def bases_in(
    starts: Tensor, spans: Tensor, margin: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The bases of ranges of tokens `spans` (B, K, 2), extended by `margin` bp at both ends within their row.

    `starts` are those of `words`. Returns the numbers of the bases, of all ranges together; the index of each
    range's first one (B K,); and the number of the base after each range's last.
    """
    starts_of, batch = starts.cpu().numpy().astype(np.int64), len(spans)
    flat_spans = spans.numpy().reshape(batch, -1)
    edges = np.take_along_axis(starts_of, flat_spans, 1).reshape(-1, 2)
    each = len(edges) // batch
    first = np.maximum(edges[:, 0] - margin, np.repeat(starts_of[:, 0], each))
    last = np.minimum(edges[:, 1] + margin, np.repeat(starts_of[:, -1], each))
    sizes = last - first
    firsts = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) + np.repeat(first - firsts, sizes), firsts, last


def _mean(sums: Tensor) -> Tensor:
    """Sums (…, T + 1), of which the last is the number of k-mers → means (…, T)."""
    return sums[..., :-1] / sums[..., -1:].clamp_min(1)


class EnsembleSum(nn.Module):
    """Weighted log-odds of a network plus those of its regressions and an intercept.

    Initially, and always in training, these are the network's own log-odds.
    """

    weight: Tensor  # (), of the network's log-odds
    intercept: Tensor  # (T,)

    def __init__(
        self,
        outputs: int,
        position: PositionMember | None,
        kmers: KmerMember | None,
        dyads: DyadMember | None = None,
    ) -> None:
        super().__init__()
        self.position, self.kmers, self.dyads = position, kmers, dyads
        self.register_buffer("weight", torch.ones(()))
        self.register_buffer("intercept", torch.zeros(outputs))
        self.beside = False  # see `networks_beside`

    def added(
        self, ids: Tensor, spans: Tensor | None = None, firsts: Tensor | None = None
    ) -> Tensor:
        """What is added to the network's weighted log-odds, (B, T), or (B, K, T) with `spans`.

        `spans` (B, K, 2) are the tokens of bins in ids (B, L); `firsts` as for `BasePositions`.
        """
        bins = () if spans is None else spans.shape[1:2]
        total = self.intercept.expand(len(ids), *bins, -1)
        if self.kmers is not None:
            total = total + self.kmers(ids, spans)

        if self.dyads is not None and spans is not None:
            total = total + self.dyads(ids, spans)

        if self.position is not None and firsts is not None:
            total = total + self.position(ids, firsts)

        return total

    def forward(self, logits: Tensor, added: Tensor) -> Tensor:
        """The log-odds of the ensemble, from those of the network and the result of `added`."""
        total = logits * self.weight + added
        return torch.cat([total, logits], dim=-1) if self.beside else total


@contextmanager
def networks_beside(network: nn.Module) -> Iterator[None]:
    """A context in which ensembles also return the log-odds of the network alone, as further outputs."""
    sums = [part for part in network.modules() if isinstance(part, EnsembleSum)]
    for part in sums:
        part.beside = True
    try:
        yield
    finally:
        for part in sums:
            part.beside = False
