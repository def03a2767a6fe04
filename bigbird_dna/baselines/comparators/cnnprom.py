"""CNNProm (Umarov & Solovyev, PLoS ONE 12:e0171410, 2017): one layer of motifs, and a dense one.

The network of human promoters without TATA: 300 filters of 21 bp, the maximum over 231 places (of their
windows of 251 bp all), 128 dense units. Longer windows have a maximum for each 231 places. It can tell which
motifs a window of 251 bp holds, but not their order or distance.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

# Axes: B windows, L bases, T labels.

FILTER = 21  # bp
POOLED = 231  # places


class CnnProm(nn.Module):
    """One-hot windows (B, 4, L) to logits (B, T)."""

    shortest = FILTER

    def __init__(self, length: int, labels: int, *, filters: int = 300, dense: int = 128) -> None:
        super().__init__()
        places = length - FILTER + 1
        pooled = min(POOLED, places)
        self.motifs = nn.Conv1d(4, filters, FILTER)
        self.pool = nn.MaxPool1d(pooled, ceil_mode=True)
        self.dense = nn.Linear(filters * -(-places // pooled), dense)
        self.output = nn.Linear(dense, labels)

    def forward(self, windows: Tensor) -> Tensor:
        """Logits (B, T)."""
        found = self.pool(F.relu(self.motifs(windows)))
        logits: Tensor = self.output(F.relu(self.dense(found.flatten(1))))
        return logits
