"""Models as functions of one-hot sequences (N, 4, L), in the order A C G T, for tools such as tangermeme."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bigbird_dna.explanation.targets import Scored
from bigbird_dna.genome.sequence import UNKNOWN
from bigbird_dna.model.batching import View
from bigbird_dna.model.inference import one_at_a_time
from bigbird_dna.tokens.interface import BASES

# Axes: N sequences, L their bases, T outputs.


class OneHotModel(nn.Module):
    """Scores (N, T) of one-hot sequences (N, 4, L) by a promoter, chromatin or sequence model.

    Scores are those of `view_scores` in one `view`; `columns` selects outputs. A column of zeros is an N. They
    have no gradients: the network reads tokens, which change with their bases in steps. Tools that score
    substitutions, insertions and shuffles run on it, such as tangermeme's saturation mutagenesis.
    """

    def __init__(
        self,
        model: Scored,
        columns: Sequence[int] | None = None,
        view: View = View(),  # noqa: B008 - immutable
    ) -> None:
        super().__init__()
        self.network = model.network
        self.model, self.view = model, view
        self.columns = None if columns is None else list(columns)

    @one_at_a_time
    def forward(self, X: Tensor) -> Tensor:
        """Return scores (N, T) of sequences (N, 4, L) of the model's window length."""
        texts = [letters(row) for row in X.detach().cpu().numpy()]
        values = self.model.view_scores(texts, [self.view], device=X.device.type)[0]
        scores = torch.from_numpy(values).to(X.device)
        return scores if self.columns is None else scores[:, self.columns]


def letters(one_hot: NDArray[Any]) -> str:
    """The bases of one-hot values (4, L); N for a column of zeros."""
    codes = np.where(one_hot.any(0), one_hot.argmax(0), UNKNOWN)
    return "".join((BASES + "N")[code] for code in codes.tolist())
