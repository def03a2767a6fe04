"""A small convolutional network as one would build it today: dilated, residual, and attentive in the end.

A convolution of 15 bp and the maximum over 4 places; blocks of dilated convolutions, each added to what it
reads, that see some 1,000 bp around each place; several weighted means over the places, whose weights are of
what is there and of where it is; a linear layer. At most 2 million parameters with 919 tracks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Axes: B windows, L bases, P places, C channels, H means, T labels.

FILTER = 15  # bp
POOLED = 4
TAPS = 5  # of a dilated convolution
DILATIONS = (1, 2, 4, 8, 16, 32)


class _Block(nn.Module):
    """(B, C, P) to (B, C, P)."""

    def __init__(self, channels: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, channels)
        self.around = nn.Conv1d(channels, channels, TAPS, dilation=dilation, padding="same")
        self.mixed = nn.Conv1d(channels, channels, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, places: Tensor) -> Tensor:
        """What is there, and what its surroundings say."""
        change: Tensor = self.mixed(F.gelu(self.around(F.gelu(self.norm(places)))))
        change = self.dropout(change)
        return places + change


class ResidualCnn(nn.Module):
    """One-hot windows (B, 4, L) to logits (B, T)."""

    shortest = 1

    def __init__(
        self, length: int, labels: int, *, channels: int = 128, means: int = 8, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.motifs = nn.Conv1d(4, channels, FILTER, padding="same")
        self.blocks = nn.Sequential(*(_Block(channels, dilation, dropout) for dilation in DILATIONS))
        self.norm = nn.GroupNorm(1, channels)
        self.weights = nn.Conv1d(channels, means, 1)
        self.where = nn.Parameter(torch.zeros(means, -(-length // POOLED)))  # (H, P)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(channels * means, labels)

    def forward(self, windows: Tensor) -> Tensor:
        """Logits (B, T)."""
        found = F.gelu(F.max_pool1d(self.motifs(windows), POOLED, ceil_mode=True))
        places = self.norm(self.blocks(found))  # (B, C, P)
        weights = (self.weights(places) + self.where).softmax(2)  # (B, H, P)
        means = weights @ places.transpose(1, 2)  # (B, H, C)
        logits: Tensor = self.output(self.dropout(means.flatten(1)))
        return logits
