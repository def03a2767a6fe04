"""Ensembles: regressions whose log-odds are added to a trained network's; not part of the paper.

The regressions are fitted after training (`finetuning.ensembles`) and stored with the network's weights.

Shapes: B batch, L tokens, K bins, T outputs, R regions of a bin.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.genome.sequence import GAPS, PAIRS, canonical_kmers, dyad_parts
from bigbird_dna.model.base_positions import BaseBatch, BaseOffsets, bag_sums
from bigbird_dna.model.kmers import ReadsKmers, TokenWords


class PositionMember(nn.Module):
    """The `position` baseline as an ensemble member: the log-odds that each base of a window adds.

    It is zero until `set_weights` is called.
    """

    weight: Tensor  # (rows of W,)

    def __init__(self, offsets: BaseOffsets) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(offsets.count))

    def set_weights(self, coefficients: npt.NDArray[np.floating]) -> None:
        """Set the log-odds (window, 4) of A, C, G, T at each offset."""
        values = torch.from_numpy(coefficients.astype(np.float32)).flatten()
        self.weight[1:] = values.to(self.weight.device)

    def forward(self, bases: BaseBatch) -> Tensor:
        """Log-odds (B, 1) of windows."""
        return bag_sums(self.weight[:, None], bases.rows, bases.begins)


class KmerMember(ReadsKmers):
    """A regression on k-mer frequencies as an ensemble member: the log-odds, up to a constant.

    Without `margins`, the frequencies are those in a row; with them, those in a range of tokens, extended by
    each of `margins` bp at both ends. It is zero until `set_weights` is called.
    """

    weight: (
        Tensor  # (R, rows, T + 1); the last column is 1 for each k-mer, to count them
    )

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
        own = self.weight[:, 1:, :-1]
        own.copy_(torch.from_numpy(coefficients.astype(np.float32)).view(own.shape))

    def regions(self, ids: Tensor, spans: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the rows of the k-mers of each region of all ranges, and their starts (B K,) among them.

        `spans` (B, K, 2), on the CPU, are a range's first token and the one after its last.
        """
        words = self.words(ids)
        for margin in self.margins:
            places, offsets, _ = places_in(words, spans, margin)
            rows = words.rows[torch.from_numpy(places).to(ids.device)]
            yield rows, torch.from_numpy(offsets.astype(np.int32)).to(ids.device)

    def forward(self, ids: Tensor, spans: Tensor | None = None) -> Tensor:
        """Log-odds (B, K, T) of ids (B, L) for ranges of tokens `spans` (B, K, 2); None: (B, T) of rows."""
        if spans is None:
            words = self.words(ids)
            return _mean(bag_sums(self.weight[0], words.rows, words.starts[:, 0]))
        regions = zip(self.weight, self.regions(ids, spans), strict=True)
        means = [_mean(bag_sums(weight, *region)) for weight, region in regions]
        return torch.stack(means).sum(0).view(*spans.shape[:2], -1)


class DyadMember(ReadsKmers):
    """Weights of each track's spaced dyads (`baselines.dyads`), whose counts in a bin's tokens are added.

    A dyad is in the bin if the central bases of its two parts are. Without `set_weights` it is zero.
    """

    parts: Tensor  # (T, dyads of a track, 3), see `dyad_parts`: small numbers, exact in any type of weights
    weight: Tensor  # (T, dyads of a track)

    def __init__(self, outputs: int, each: int) -> None:
        super().__init__(3, both_strands=False)
        self.register_buffer("parts", torch.zeros(outputs, each, 3))
        self.register_buffer("weight", torch.zeros(outputs, each))
        self.pairs = torch.from_numpy(_PAIR_OF_ROWS.astype(np.int64))

    def set_weights(
        self, numbers: npt.NDArray[np.integer], weight: npt.NDArray[np.floating]
    ) -> None:
        """Set the dyads and their log-odds per count, (T, dyads of a track) each."""
        self.parts.copy_(torch.from_numpy(dyad_parts(numbers)))
        self.weight.copy_(torch.from_numpy(weight))

    def forward(self, ids: Tensor, spans: Tensor) -> Tensor:
        """Log-odds (B, K, T) of ids (B, L) for ranges of tokens `spans` (B, K, 2), on the CPU."""
        self.pairs = self.pairs.to(ids.device)
        counts = count_dyads(self.words(ids), spans).to(ids.device)
        gap, left, right = self.parts.long().unbind(-1)
        column = (PAIRS + 1) * gap + self.pairs[65 * left + right + 66]
        found = counts.index_select(1, column.flatten()).view(-1, *column.shape)
        return (found * self.weight).sum(-1).view(*spans.shape[:2], -1)


def _pair_of_rows() -> npt.NDArray[np.int32]:
    """The number of a pair of trinucleotides by their rows (65 · 65,); `PAIRS` with row 0, for none."""
    pairs = np.full((65, 65), PAIRS, np.int32)
    pairs[1:, 1:] = canonical_kmers(6).reshape(64, 64)
    return pairs.ravel()


_PAIR_OF_ROWS = _pair_of_rows()
_WIDTH = GAPS * (
    PAIRS + 1
)  # counts of a bin: for each gap those of the pairs, and of places without one


def count_dyads(words: TokenWords, spans: Tensor) -> Tensor:
    """The counts (B K, gaps · (`PAIRS` + 1)) of dyads in ranges of tokens, by NumPy: torch takes
    four times as long on a CPU."""
    places, offsets, ends = (
        part.astype(np.int32) for part in places_in(words, spans, 0)
    )
    sizes = np.diff(np.append(offsets, len(places)))
    rows = np.append(words.rows.cpu().numpy(), np.int32(0))  # the last one is none
    gaps = np.arange(GAPS, dtype=np.int32)[:, None]
    second = places + (gaps + 3)  # (gaps, P)
    np.copyto(second, len(rows) - 1, where=second >= np.repeat(ends, sizes))
    found = _PAIR_OF_ROWS.take(65 * rows[places] + rows.take(second))
    found += (PAIRS + 1) * gaps
    found += np.repeat(_WIDTH * np.arange(len(sizes), dtype=np.int32), sizes)
    return torch.from_numpy(
        np.bincount(found.ravel(), minlength=_WIDTH * len(sizes)).reshape(-1, _WIDTH)
    )


def places_in(
    words: TokenWords, spans: Tensor, margin: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The bases of ranges of tokens `spans` (B, K, 2), extended by `margin` bp at both ends within their row.

    Returns their places among the bases of all rows, each range's (B K,) first index in these, and the places
    at which the ranges end.
    """
    starts, batch = words.starts.cpu().numpy().astype(np.int64), len(spans)
    edges = np.take_along_axis(starts, spans.numpy().reshape(batch, -1), 1).reshape(
        -1, 2
    )
    begins, ends = (np.repeat(starts[:, side], len(edges) // batch) for side in (0, -1))
    first = np.maximum(edges[:, 0] - margin, begins)
    last = np.minimum(edges[:, 1] + margin, ends)
    offsets = np.cumsum(last - first) - (last - first)
    places = np.arange((last - first).sum()) + np.repeat(first - offsets, last - first)
    return places, offsets, last


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
        self.enabled, self.beside = True, False  # see `networks_alone`

    def added(
        self, ids: Tensor, spans: Tensor | None = None, bases: BaseBatch | None = None
    ) -> Tensor | None:
        """What is added to the network's weighted log-odds, (B, T), or (B, K, T) with `spans`; None: nothing.

        `spans` (B, K, 2) are the tokens of bins in ids (B, L), `bases` those of aligned windows.
        """
        if self.training or not self.enabled:
            return None
        total = self.intercept.expand(
            len(ids), *(() if spans is None else spans.shape[1:2]), -1
        )
        if self.kmers is not None:
            total = total + self.kmers(ids, spans)
        if self.dyads is not None and spans is not None:
            total = total + self.dyads(ids, spans)
        if self.position is not None and bases is not None:
            total = total + self.position(bases)
        return total

    def forward(self, logits: Tensor, added: Tensor | None) -> Tensor:
        """The log-odds of the ensemble, from those of the network and the result of `added`."""
        if added is None:
            return logits
        total = logits * self.weight + added
        return torch.cat([total, logits], dim=-1) if self.beside else total


@contextmanager
def networks_alone(network: nn.Module, beside: bool = False) -> Iterator[None]:
    """A context in which ensembles in `network` return the log-odds of the network without regressions.

    With `beside`, these follow the log-odds of the ensemble, as further outputs.
    """
    parts = [part for part in network.modules() if isinstance(part, EnsembleSum)]
    for part in parts:
        part.enabled, part.beside = beside, beside
    try:
        yield
    finally:
        for part in parts:
            part.enabled, part.beside = True, False
