"""DeepSEA's network (Zhou & Troyanskaya, Nature Methods 12:931, 2015).

Three convolutions of 8 places with 320, 480 and 960 filters, the maximum over 4 places after the first two,
dropout of 0.2, 0.2 and 0.5, 925 dense units. Theirs were windows of 1,000 bp.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

# Axes: B windows, L bases, T labels.

FILTER = 8
POOLED = 4


class DeepSea(nn.Module):
    """One-hot windows (B, 4, L) to logits (B, T)."""

    shortest = 163  # bp, of which one place is left in the end

    def __init__(
        self, length: int, labels: int, *, filters: Sequence[int] = (320, 480, 960), dense: int = 925
    ) -> None:
        super().__init__()
        first, second, third = filters
        self.convolutions = nn.Sequential(
            nn.Conv1d(4, first, FILTER),
            nn.ReLU(),
            nn.MaxPool1d(POOLED),
            nn.Dropout(0.2),
            nn.Conv1d(first, second, FILTER),
            nn.ReLU(),
            nn.MaxPool1d(POOLED),
            nn.Dropout(0.2),
            nn.Conv1d(second, third, FILTER),
            nn.ReLU(),
            nn.Dropout(0.5),
        )
        places = length
        for _ in range(2):
            places = (places - FILTER + 1) // POOLED
        self.dense = nn.Sequential(nn.Linear(third * (places - FILTER + 1), dense), nn.ReLU())
        self.output = nn.Linear(dense, labels)

    def forward(self, windows: Tensor) -> Tensor:
        """Logits (B, T)."""
        logits: Tensor = self.output(self.dense(self.convolutions(windows).flatten(1)))
        return logits
