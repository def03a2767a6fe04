"""DeePromoter (Oubounyt et al., Frontiers in Genetics 10:286, 2019): three widths of motifs, read in order.

Convolutions of 27, 14 and 7 bp side by side, each with the maximum over 6 places and dropout of 0.5; a
bidirectional LSTM of 32 units over their places; 128 dense units with dropout of 0.5. The paper doesn't say
how many filters a convolution has: 32 here. Theirs were windows of 300 bp.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Axes: B windows, L bases, P places, T labels.

WIDTHS = (27, 14, 7)  # bp
POOLED = 6
DROPPED = 0.5


class DeePromoter(nn.Module):
    """One-hot windows (B, 4, L) to logits (B, T)."""

    shortest = POOLED

    def __init__(
        self, length: int, labels: int, *, filters: int = 32, units: int = 32, dense: int = 128
    ) -> None:
        super().__init__()
        self.motifs = nn.ModuleList(nn.Conv1d(4, filters, width, padding=width // 2) for width in WIDTHS)
        self.recurrent = nn.LSTM(filters * len(WIDTHS), units, batch_first=True, bidirectional=True)
        self.dense = nn.Linear(2 * units * (length // POOLED), dense)
        self.dropout = nn.Dropout(DROPPED)
        self.output = nn.Linear(dense, labels)

    def forward(self, windows: Tensor) -> Tensor:
        """Logits (B, T)."""
        length = windows.shape[2]  # an even width has a place more
        places = [F.relu(motifs(windows)[..., :length]) for motifs in self.motifs]
        found = [self.dropout(F.max_pool1d(one, POOLED)) for one in places]
        read, _ = self.recurrent(torch.cat(found, 1).transpose(1, 2))  # (B, P, 2 × units)
        logits: Tensor = self.output(self.dropout(F.relu(self.dense(self.dropout(read.flatten(1))))))
        return logits
