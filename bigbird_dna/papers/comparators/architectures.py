"""Network architectures of the comparators: one-hot windows (B, 4, L) to logits (B, T).

Each class has the least window in bp, `shortest`, and each network an `output` layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bigbird_dna.baselines.networks import CnnProm

# Axes: B windows, L bases, P positions, C channels, U units, H means, T labels.


class Recurrent(nn.Module):
    """A bidirectional LSTM over positions: (B, C, P) to (B, P, 2 U)."""

    def __init__(self, channels: int, units: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(channels, units, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(x.transpose(1, 2))
        return hidden  # type: ignore[no-any-return]


class DeePromoter(nn.Module):
    """DeePromoter (Oubounyt et al., Frontiers in Genetics 10:286, 2019): motifs of three widths, in order.

    Parallel convolutions of 27, 14 and 7 bp, each with the maximum over 6 positions and dropout of 0.5; a
    bidirectional LSTM of 32 units over the positions; 128 dense units with dropout of 0.5. The paper does not
    specify the number of filters per convolution: 32 here. It used windows of 300 bp.
    """

    shortest = 6

    def __init__(
        self, length: int, labels: int, *, filters: int = 32, units: int = 32
    ) -> None:
        super().__init__()
        self.positions = length // 6  # even widths can add one
        self.motifs = nn.ModuleList()

        for width in (27, 14, 7):
            motifs = nn.Conv1d(4, filters, width, padding=width // 2)
            pool = nn.MaxPool1d(6)
            self.motifs.append(nn.Sequential(motifs, nn.ReLU(), pool, nn.Dropout(0.5)))

        self.dense = nn.Sequential(
            Recurrent(3 * filters, units),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(2 * units * self.positions, 128),
            nn.ReLU(),
            nn.Dropout(0.5),
        )
        self.output = nn.Linear(128, labels)

    def forward(self, windows: Tensor) -> Tensor:
        pooled = [motifs(windows)[..., : self.positions] for motifs in self.motifs]
        return self.output(self.dense(torch.cat(pooled, 1)))  # type: ignore[no-any-return]


class DeepSea(nn.Sequential):
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
        first, second, third = filters
        positions = ((length - 7) // 4 - 7) // 4 - 7
        super().__init__(
            nn.Conv1d(4, first, 8),
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Dropout(0.2),
            nn.Conv1d(first, second, 8),
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Dropout(0.2),
            nn.Conv1d(second, third, 8),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Flatten(),
            nn.Linear(third * positions, dense),
            nn.ReLU(),
        )
        self.output = nn.Linear(dense, labels)


class DanQ(nn.Sequential):
    """DanQ (Quang & Xie, Nucleic Acids Research 44:e107, 2016): motifs, and an LSTM over their positions.

    320 filters of 26 bp, the maximum over 13 positions, dropout of 0.2, a bidirectional LSTM of 320 units,
    dropout of 0.5, and 925 dense units. The paper used windows of 1,000 bp.
    """

    shortest = 38

    def __init__(
        self,
        length: int,
        labels: int,
        *,
        filters: int = 320,
        units: int = 320,
        dense: int = 925,
    ) -> None:
        super().__init__(
            nn.Conv1d(4, filters, 26),
            nn.ReLU(),
            nn.MaxPool1d(13),
            nn.Dropout(0.2),
            Recurrent(filters, units),
            nn.Dropout(0.5),
            nn.Flatten(),
            nn.Linear(2 * units * ((length - 25) // 13), dense),
            nn.ReLU(),
        )
        self.output = nn.Linear(dense, labels)


class DilatedBlock(nn.Sequential):
    """Change of a sequence of vectors by their surroundings: (B, C, P) to (B, C, P)."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__(
            nn.GroupNorm(1, channels),
            nn.GELU(),
            nn.Conv1d(channels, channels, 5, dilation=dilation, padding="same"),
            nn.GELU(),
            nn.Conv1d(channels, channels, 1),
            nn.Dropout(0.1),
        )

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return x + change


class ResidualCnn(nn.Module):
    """A small convolutional network of current design: dilated, residual, with attention pooling.

    A convolution of 15 bp and the maximum over 4 positions; residual blocks of dilated convolutions with a
    receptive field of about 1,000 bp; several weighted means over the positions, with weights that depend on
    content and position; a linear layer. At most 2 million parameters with 919 tracks.
    """

    shortest = 1

    def __init__(
        self, length: int, labels: int, *, channels: int = 128, means: int = 8
    ) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            nn.Conv1d(4, channels, 15, padding="same"),
            nn.MaxPool1d(4, ceil_mode=True),
            nn.GELU(),
            *[DilatedBlock(channels, dilation) for dilation in (1, 2, 4, 8, 16, 32)],
            nn.GroupNorm(1, channels),
        )
        self.weights = nn.Conv1d(channels, means, 1)
        self.positions = nn.Parameter(torch.zeros(means, -(-length // 4)))  # (H, P)
        self.dropout = nn.Dropout(0.1)
        self.output = nn.Linear(channels * means, labels)

    def forward(self, windows: Tensor) -> Tensor:
        x = self.blocks(windows)  # (B, C, P)
        weights = (self.weights(x) + self.positions).softmax(2)  # (B, H, P)
        means = weights @ x.transpose(1, 2)  # (B, H, C)
        return self.output(self.dropout(means.flatten(1)))  # type: ignore[no-any-return]


NETWORKS: Mapping[str, Any] = {
    "cnnprom": CnnProm,
    "deepromoter": DeePromoter,
    "deepsea": DeepSea,
    "danq": DanQ,
    "residual-cnn": ResidualCnn,
}
