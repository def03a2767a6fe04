"""The training objective of models whose input is a whole sequence: promoter windows, labeled sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.config.promoters import PromoterTrainingConfig
from bigbird_dna.model.base_positions import PaddedBases
from bigbird_dna.model.batching import pad
from bigbird_dna.model.promoter import PromoterRows, promoter_rows, row_logits
from bigbird_dna.model.settings import ClassifierSettings
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.draws import WindowDraws
from bigbird_dna.training.loop import Batch, take_rows
from bigbird_dna.training.losses import LabelLoss

# Axes: N windows, T outputs.


class ClassifierWindows(NamedTuple):
    """Windows of one split, in file order."""

    sequences: list[str]
    labels: npt.NDArray[np.float32]  # (N, T), training labels: random in the control
    always: npt.NDArray[np.bool_]  # (N,), see `WindowDraws`
    variants: npt.NDArray[np.int64]  # (N,)

    def take(self, rows: npt.NDArray[np.integer]) -> Self:
        """Return the windows at `rows`."""
        sequences = [self.sequences[index] for index in rows]
        return type(self)(sequences, *(column[rows] for column in self[1:]))


@dataclass(eq=False)
class ClassifierObjective:
    """The loss of the labels of whole windows.

    In training, each draw of a window trims up to `crop_jitter_bp` from each end before tokenization. Token
    boundaries therefore move, and the network cannot memorize windows by the phase of their tokens.
    """

    tokenizer: Tokenizer
    windows: ClassifierWindows
    held_out: ClassifierWindows
    config: PromoterTrainingConfig
    settings: ClassifierSettings
    positions: int
    world: World
    losses: LabelLoss = LabelLoss("binary")  # noqa: RUF009 - immutable

    part = staticmethod(take_rows)

    def __post_init__(self) -> None:
        self.draws = WindowDraws(
            self.windows.always, self.windows.variants, self.config
        )

    def batch(self, step: int, first: int, count: int) -> Batch:
        chosen, cuts = self.draws.at(step, first, count)
        texts = [self.windows.sequences[index] for index in chosen]
        if self.settings.both_strands:
            texts = self.draws.turned(texts, step, first)
        rows = self._rows(texts, cuts)
        ids, lengths = pad(rows.ids, self.tokenizer.pad_id)
        labels = torch.from_numpy(self.windows.labels[chosen])
        batch = {"ids": ids, "lengths": lengths, "labels": labels}
        if rows.bases is not None:
            bases = rows.bases.padded(range(count), ids.shape[1])
            batch |= {"base_rows": bases.rows, "base_starts": bases.starts}
        return batch

    def _rows(
        self, windows: Sequence[str], cuts: Sequence[tuple[int, int]]
    ) -> PromoterRows:
        return promoter_rows(
            self.tokenizer, windows, cuts, self.settings, self.positions
        )

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"windows": self.losses.count(batch["labels"])}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """Return this batch's part of the mean loss over the global batch."""
        bases = None
        if "base_rows" in batch:
            bases = PaddedBases(batch["base_rows"], batch["base_starts"]).batch()
        logits = network(batch["ids"], batch["lengths"], bases=bases).float()
        return self.losses.rows(logits, batch["labels"]).sum() / totals["windows"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Return loss and metric on validation windows, on the given strand."""
        batch_size, device = min(64, self.config.batch_size), self.world.device

        def outputs(sequences: Sequence[str]) -> npt.NDArray[np.float32]:
            rows = self._rows(sequences, [(0, 0)] * len(sequences))
            return row_logits(network, rows, self.tokenizer.pad_id, batch_size, device)

        logits = self.world.divide(self.held_out.sequences, outputs)
        return self.losses.metrics(logits, self.held_out.labels)
