"""Network architectures of the comparators: one-hot windows (B, 4, L) to logits (B, T)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.baselines.networks import CnnProm, Network, NetworkBaseline
from bigbird_dna.papers.comparators.interface import Comparator

# Axes: B windows, L bases, P positions, C channels, H means, T labels.

_WIDTHS = (27, 14, 7)  # bp
_DEEPROMOTER_POOLED = 6
_DROPPED = 0.5
_DEEPSEA_FILTER = 8
_DEEPSEA_POOLED = 4
_DANQ_FILTER = 26  # bp
_DANQ_POOLED = 13
_RESIDUAL_FILTER = 15  # bp
_RESIDUAL_POOLED = 4
_RESIDUAL_TAPS = 5  # kernel size of dilated convolutions
_DILATIONS = (1, 2, 4, 8, 16, 32)


class NetworkComparator(NetworkBaseline, Comparator):
    """A network as a comparator; see `NetworkBaseline`."""

    def chosen(self) -> dict[str, Any]:
        return {} if self.trained is None else self.trained.effort


class DeePromoter(nn.Module):
    """DeePromoter (Oubounyt et al., Frontiers in Genetics 10:286, 2019): motifs of three widths, in order.

    Parallel convolutions of 27, 14 and 7 bp, each with the maximum over 6 positions and dropout of 0.5; a
    bidirectional LSTM of 32 units over the positions; 128 dense units with dropout of 0.5. The paper does not
    specify the number of filters per convolution: 32 here. It used windows of 300 bp.
    """

    shortest = _DEEPROMOTER_POOLED

    def __init__(
        self,
        length: int,
        labels: int,
        *,
        filters: int = 32,
        units: int = 32,
        dense: int = 128,
    ) -> None:
        super().__init__()
        self.motifs = nn.ModuleList(
            nn.Conv1d(4, filters, width, padding=width // 2) for width in _WIDTHS
        )
        self.recurrent = nn.LSTM(
            filters * len(_WIDTHS), units, batch_first=True, bidirectional=True
        )
        self.dense = nn.Linear(2 * units * (length // _DEEPROMOTER_POOLED), dense)
        self.dropout = nn.Dropout(_DROPPED)
        self.output = nn.Linear(dense, labels)

    def forward(self, windows: Tensor) -> Tensor:
        length = windows.shape[2]  # even widths add one position
        pooled = []
        for motifs in self.motifs:
            active = F.relu(motifs(windows)[..., :length])
            pooled.append(self.dropout(F.max_pool1d(active, _DEEPROMOTER_POOLED)))
        x, _ = self.recurrent(torch.cat(pooled, 1).transpose(1, 2))
        x = F.relu(self.dense(self.dropout(x.flatten(1))))
        return self.output(self.dropout(x))  # type: ignore[no-any-return]


class DeepSea(nn.Module):
    """DeepSEA's network (Zhou & Troyanskaya, Nature Methods 12:931, 2015).

    Three convolutions of width 8 with 320, 480 and 960 filters, the maximum over 4 positions after the first
    two, dropout of 0.2, 0.2 and 0.5, and 925 dense units. The paper used windows of 1,000 bp.
    """

    shortest = 163  # bp, which leave one position after the convolutions

    def __init__(
        self,
        length: int,
        labels: int,
        *,
        filters: Sequence[int] = (320, 480, 960),
        dense: int = 925,
    ) -> None:
        super().__init__()
        first, second, third = filters
        layers: list[nn.Module] = []
        places = length
        for inner, outer in ((4, first), (first, second)):
            layers += [nn.Conv1d(inner, outer, _DEEPSEA_FILTER), nn.ReLU()]
            layers += [nn.MaxPool1d(_DEEPSEA_POOLED), nn.Dropout(0.2)]
            places = (places - _DEEPSEA_FILTER + 1) // _DEEPSEA_POOLED
        layers += [
            nn.Conv1d(second, third, _DEEPSEA_FILTER),
            nn.ReLU(),
            nn.Dropout(0.5),
        ]
        self.convolutions = nn.Sequential(*layers)
        self.dense = nn.Sequential(
            nn.Linear(third * (places - _DEEPSEA_FILTER + 1), dense), nn.ReLU()
        )
        self.output = nn.Linear(dense, labels)

    def forward(self, windows: Tensor) -> Tensor:
        return self.output(self.dense(self.convolutions(windows).flatten(1)))  # type: ignore[no-any-return]


class DanQ(nn.Module):
    """DanQ (Quang & Xie, Nucleic Acids Research 44:e107, 2016): motifs, and an LSTM over their positions.

    320 filters of 26 bp, the maximum over 13 positions, dropout of 0.2, a bidirectional LSTM of 320 units,
    dropout of 0.5, and 925 dense units. The paper used windows of 1,000 bp.
    """

    shortest = _DANQ_FILTER + _DANQ_POOLED - 1

    def __init__(
        self,
        length: int,
        labels: int,
        *,
        filters: int = 320,
        units: int = 320,
        dense: int = 925,
    ) -> None:
        super().__init__()
        places = (length - _DANQ_FILTER + 1) // _DANQ_POOLED
        self.motifs = nn.Conv1d(4, filters, _DANQ_FILTER)
        self.after_motifs, self.after_reading = nn.Dropout(0.2), nn.Dropout(0.5)
        self.recurrent = nn.LSTM(filters, units, batch_first=True, bidirectional=True)
        self.dense = nn.Linear(2 * units * places, dense)
        self.output = nn.Linear(dense, labels)

    def forward(self, windows: Tensor) -> Tensor:
        x = F.max_pool1d(F.relu(self.motifs(windows)), _DANQ_POOLED)
        x, _ = self.recurrent(self.after_motifs(x).transpose(1, 2))
        x = F.relu(self.dense(self.after_reading(x).flatten(1)))
        return self.output(x)  # type: ignore[no-any-return]


class _DilatedBlock(nn.Module):
    """(B, C, P) to (B, C, P)."""

    def __init__(self, channels: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, channels)
        self.around = nn.Conv1d(
            channels, channels, _RESIDUAL_TAPS, dilation=dilation, padding="same"
        )
        self.mixed = nn.Conv1d(channels, channels, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        change = self.mixed(F.gelu(self.around(F.gelu(self.norm(x)))))
        return x + self.dropout(change)  # type: ignore[no-any-return]


class ResidualCnn(nn.Module):
    """A small convolutional network of current design: dilated, residual, with attention pooling.

    A convolution of 15 bp and the maximum over 4 positions; residual blocks of dilated convolutions with a
    receptive field of about 1,000 bp; several weighted means over the positions, with weights that depend on
    content and position; a linear layer. At most 2 million parameters with 919 tracks.
    """

    shortest = 1

    def __init__(
        self,
        length: int,
        labels: int,
        *,
        channels: int = 128,
        means: int = 8,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.motifs = nn.Conv1d(4, channels, _RESIDUAL_FILTER, padding="same")
        self.blocks = nn.Sequential(
            *(_DilatedBlock(channels, dilation, dropout) for dilation in _DILATIONS)
        )
        self.norm = nn.GroupNorm(1, channels)
        self.weights = nn.Conv1d(channels, means, 1)
        self.where = nn.Parameter(
            torch.zeros(means, -(-length // _RESIDUAL_POOLED))
        )  # (H, P)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(channels * means, labels)

    def forward(self, windows: Tensor) -> Tensor:
        pooled = F.max_pool1d(self.motifs(windows), _RESIDUAL_POOLED, ceil_mode=True)
        x = self.norm(self.blocks(F.gelu(pooled)))  # (B, C, P)
        weights = (self.weights(x) + self.where).softmax(2)  # (B, H, P)
        means = weights @ x.transpose(1, 2)  # (B, H, C)
        return self.output(self.dropout(means.flatten(1)))  # type: ignore[no-any-return]


NETWORKS: Mapping[str, Network] = {
    "cnnprom": CnnProm,
    "deepromoter": DeePromoter,
    "deepsea": DeepSea,
    "danq": DanQ,
    "residual-cnn": ResidualCnn,
}
