"""A promoter model: from windows to probabilities. Fine-tuning, evaluation and scoring share it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.model.activation import row_sigmoid
from bigbird_dna.model.device import choose_device
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.model import Model
from bigbird_dna.model.rows import run_rows, window_rows
from bigbird_dna.model.settings import PromoterSettings


@dataclass(frozen=True)
class PromoterModel(Model):
    """A classifier of windows of `settings.upstream + settings.downstream` bp around a TSS."""

    network: Classifier = field(repr=False)
    settings: PromoterSettings

    def predict(
        self, sequences: Sequence[str], *, batch_size: int = 32, device: str = "auto"
    ) -> npt.NDArray[np.float32]:
        """Probability that each window holds a promoter at its TSS position, on its forward strand.

        Parameters
        ----------
        sequences
            Windows of `settings.window` bp in transcription order, over A C G T N.
        batch_size
            Windows run at the same time, each by itself (see `run_rows`); it changes no bit of a probability.
        device
            auto, cpu or cuda.

        Returns
        -------
        Probabilities (N,), each a function of its sequence and the model alone. Computed in float32. A
        model with several `views` gives the mean over as many tokenisations of the window.

        Raises
        ------
        UsageError
            There is no such device, or its memory is too small.
        """
        place = choose_device(device)
        network = self.network.to(place).eval()
        total = np.zeros(len(sequences), dtype=np.float64)
        cuts = view_cuts(self.settings.views, self.settings.jitter)
        for left, right in cuts:
            views = [sequence[left : len(sequence) - right] for sequence in sequences]
            rows = window_rows(self.tokenizer, views, self.config.positions, self.settings.anchor)
            total += promoter_probabilities(network, rows, self.tokenizer.pad_id, batch_size, place)
        return (total / len(cuts)).astype(np.float32)


def view_cuts(views: int, jitter: int) -> list[tuple[int, int]]:
    """Bases cut from the left and the right end in each view of a window.

    A single view is the whole window. Several cut `jitter` bases in all, from 0 to all of them on the left:
    the phase of the tokens differs and averages out, as in training, which cuts up to `jitter` at each end.
    """
    if views == 1:
        return [(0, 0)]
    lefts = [round(jitter * view / (views - 1)) for view in range(views)]
    return [(left, jitter - left) for left in lefts]


def promoter_probabilities(
    network: nn.Module,
    rows: Sequence[npt.NDArray[np.int32]],
    pad_id: int,
    batch_size: int,
    device: torch.device,
) -> npt.NDArray[np.float32]:
    """Probabilities (N,) that a classifier with one output gives rows of token ids."""

    def run(ids: Tensor, lengths: Tensor, _: npt.NDArray[np.intp]) -> Tensor:
        return row_sigmoid(network(ids, lengths)[:, :1].float())[:, 0]

    return run_rows(network, rows, run, pad_id=pad_id, batch_size=batch_size, device=device)
