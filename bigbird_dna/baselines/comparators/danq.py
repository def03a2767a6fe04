"""DanQ (Quang & Xie, Nucleic Acids Research 44:e107, 2016): motifs, and an LSTM over their places.

320 filters of 26 bp, the maximum over 13 places, dropout of 0.2, a bidirectional LSTM of 320 units, dropout
of 0.5, 925 dense units. Theirs were windows of 1,000 bp.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

# Axes: B windows, L bases, P places, T labels.

FILTER = 26  # bp
POOLED = 13


class DanQ(nn.Module):
    """One-hot windows (B, 4, L) to logits (B, T)."""

    shortest = FILTER + POOLED - 1

    def __init__(
        self, length: int, labels: int, *, filters: int = 320, units: int = 320, dense: int = 925
    ) -> None:
        super().__init__()
        places = (length - FILTER + 1) // POOLED
        self.motifs = nn.Conv1d(4, filters, FILTER)
        self.after_motifs, self.after_reading = nn.Dropout(0.2), nn.Dropout(0.5)
        self.recurrent = nn.LSTM(filters, units, batch_first=True, bidirectional=True)
        self.dense = nn.Linear(2 * units * places, dense)
        self.output = nn.Linear(dense, labels)

    def forward(self, windows: Tensor) -> Tensor:
        """Logits (B, T)."""
        found = self.after_motifs(F.max_pool1d(F.relu(self.motifs(windows)), POOLED))
        read, _ = self.recurrent(found.transpose(1, 2))  # (B, P, 2 × units)
        logits: Tensor = self.output(F.relu(self.dense(self.after_reading(read).flatten(1))))
        return logits
