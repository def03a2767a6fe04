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

from bigbird_dna.model.base_positions import BaseBatch, BaseOffsets, bag_sums
from bigbird_dna.model.kmers import ReadsKmers


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

    weight: Tensor  # (R, rows, T + 1); the last column is 1 for each k-mer, to count them

    def __init__(self, k: int, outputs: int, both_strands: bool, margins: Sequence[int] = ()) -> None:
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
        starts, batch = words.starts.cpu().numpy(), len(ids)
        edges = np.take_along_axis(starts, spans.numpy().reshape(batch, -1), 1).reshape(-1, 2)  # bases
        begins, ends = (np.repeat(starts[:, side], len(edges) // batch) for side in (0, -1))
        for margin in self.margins:
            first = np.maximum(edges[:, 0] - margin, begins)
            sizes = np.minimum(edges[:, 1] + margin, ends) - first
            offsets = np.cumsum(sizes) - sizes
            places = np.arange(sizes.sum()) + np.repeat(first - offsets, sizes)
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


def _mean(sums: Tensor) -> Tensor:
    """Sums (…, T + 1), of which the last is the number of k-mers → means (…, T)."""
    return sums[..., :-1] / sums[..., -1:].clamp_min(1)


class EnsembleSum(nn.Module):
    """Weighted log-odds of a network plus those of its regressions and an intercept.

    Initially, and always in training, these are the network's own log-odds.
    """

    weight: Tensor  # (), of the network's log-odds
    intercept: Tensor  # (T,)

    def __init__(self, outputs: int, position: PositionMember | None, kmers: KmerMember | None) -> None:
        super().__init__()
        self.position, self.kmers = position, kmers
        self.register_buffer("weight", torch.ones(()))
        self.register_buffer("intercept", torch.zeros(outputs))
        self.enabled = True  # see `networks_alone`

    def added(
        self, ids: Tensor, spans: Tensor | None = None, bases: BaseBatch | None = None
    ) -> Tensor | None:
        """What is added to the network's weighted log-odds, (B, T), or (B, K, T) with `spans`; None: nothing.

        `spans` (B, K, 2) are the tokens of bins in ids (B, L), `bases` those of aligned windows.
        """
        if self.training or not self.enabled:
            return None
        total = self.intercept.expand(len(ids), *(() if spans is None else spans.shape[1:2]), -1)
        if self.kmers is not None:
            total = total + self.kmers(ids, spans)
        if self.position is not None and bases is not None:
            total = total + self.position(bases)
        return total

    def forward(self, logits: Tensor, added: Tensor | None) -> Tensor:
        """The log-odds of the ensemble, from those of the network and the result of `added`."""
        return logits if added is None else logits * self.weight + added


@contextmanager
def networks_alone(network: nn.Module) -> Iterator[None]:
    """A context in which ensembles in `network` return the log-odds of the network without regressions."""
    parts = [part for part in network.modules() if isinstance(part, EnsembleSum)]
    for part in parts:
        part.enabled = False
    try:
        yield
    finally:
        for part in parts:
            part.enabled = True
