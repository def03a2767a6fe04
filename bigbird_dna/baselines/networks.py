"""Networks on one-hot windows, and their training as baselines with the common training loop.

All networks are trained like the models of the task, independent of their papers: the same draws of windows,
loss, optimizer and choice of weights. An N is four zeros, as in DeepSEA's data: it is evidence for no base,
like the padding of convolutions beyond a contig's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.baselines.kmers import base_codes, other_strand
from bigbird_dna.baselines.windows import LabeledWindows as Windows
from bigbird_dna.baselines.windows import Probabilities, TextWindows
from bigbird_dna.config.training import FinetuningConfig, TrainingConfig
from bigbird_dna.data.chromatin import sample
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import UNKNOWN
from bigbird_dna.model.inference import choose_device
from bigbird_dna.training.distributed import World
from bigbird_dna.training.draws import WindowDraws
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.losses import LabelLoss
from bigbird_dna.training.task import Task, TrainingResult, fit

Bytes = NDArray[np.uint8]

# Axes: B windows, L bases.


def one_hot(codes: Tensor) -> Tensor:
    """Convert (B, L) codes to (B, 4, L) zeros and ones, float32, with N as zeros."""
    return F.one_hot(codes.long(), UNKNOWN + 1)[..., :UNKNOWN].transpose(1, 2).float()


# Axes: N windows, L bases, T labels.

_FILTER, _POOLED = 21, 231  # bp of a filter of CNNProm, and positions of a maximum
_AT_ONCE = 256  # most windows per prediction batch
_BASES_AT_ONCE = 1 << 17


class DrawnTexts(TextWindows):
    """Whole sequences, drawn for networks as for the models; N replaces the bases that the models trim."""

    def __init__(
        self,
        sequences: Sequence[str],
        labels: ArrayLike,
        draws: WindowDraws,
        shares: ArrayLike | None = None,
        both_strands: bool = False,
    ) -> None:
        super().__init__(sequences, labels)
        self.draws, self.both_strands = draws, both_strands
        if shares is None:
            shares = np.nanmean(self.labels(np.arange(self.shape[0])), axis=0)
        self.shares = np.asarray(shares, np.float64)

    def draw(self, step: int, first: int, count: int) -> tuple[list[str], NDArray[Any]]:
        rows, cuts = self.draws.at(step, first, count)
        chosen = np.array(rows, np.intp)
        texts = [
            text[left : len(text) - right]
            .rjust(len(text) - right, "N")
            .ljust(len(text), "N")
            for text, (left, right) in zip(self.sequences(chosen), cuts, strict=True)
        ]
        if self.both_strands:
            texts = self.draws.on_strands(texts, step, first)
        return texts, self.labels(chosen)


class NetworkBaseline(Task[nn.Module, None]):
    """A network on one-hot windows, trained like the models of its task.

    Computation is in bfloat16 where that is faster. On one type of CPU, a seed gives bit-identical results.

    Parameters
    ----------
    network
        `network(length, labels)` makes a network from (B, 4, L) to logits (B, T), with a layer `output`;
        `network.shortest` is the least window in bp.
    training
        Steps, batches and optimizer.
    name, checkpoints, windows
        The name and place of checkpoints, and what identifies the data: a killed training resumes only on
        the same windows.
    loss
        The loss of the kind of labels.
    both_strands
        Windows have no direction, and predictions are means over both strands, as in DeepSEA.
    evaluated
        Most held-out windows on which weights are chosen.
    device
        auto, cpu or cuda.
    """

    def __init__(
        self,
        network: Any,
        training: FinetuningConfig,
        *,
        name: str,
        checkpoints: Path,
        windows: Mapping[str, Any],
        loss: LabelLoss = LabelLoss(),  # noqa: B008 - immutable
        both_strands: bool = False,
        evaluated: int = 2000,
        device: str = "auto",
    ) -> None:
        self.network, self.training, self.name = network, training, name
        self.windows, self.checkpoints = windows, checkpoints
        self.label_loss, self.both_strands = loss, both_strands
        self.most, self.device = evaluated, choose_device(device)
        self.trained: TrainingResult[nn.Module] | None = None

    @property
    def config(self) -> TrainingConfig:
        return self.training

    def identity(self) -> dict[str, Any]:
        shape = {"length": self.learned.length, "labels": self.learned.shape[1]}
        return {"comparator": self.name, **shape, **self.windows}

    def build(self) -> nn.Module:
        network: nn.Module = self.network(self.learned.length, self.learned.shape[1])
        return network

    def initialize(self, network: nn.Module) -> None:
        output = network.output  # initialized to the best constant prediction
        assert isinstance(output, nn.Linear)
        with torch.no_grad():
            output.bias.copy_(self.label_loss.constant(self.learned.shares))

    def batch(self, step: int, first: int, count: int) -> Batch:
        sequences, labels = self.learned.draw(step, first, count)
        codes = torch.from_numpy(base_codes(sequences))
        return {
            "codes": codes,
            "labels": torch.from_numpy(labels).float(),
            "lengths": torch.full((count,), codes.shape[1]),
        }

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"windows": self.label_loss.count(batch["labels"])}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        logits = network(one_hot(batch["codes"])).float()
        losses = self.label_loss.rows(logits, batch["labels"])
        return losses.sum() / totals["windows"]

    def evaluate(self, network: nn.Module, world: World) -> dict[str, float]:
        """Return loss and metric of held-out windows, on one strand."""
        logits = _logits(network, self.evaluated, self.device)
        return self.label_loss.metrics(logits, self.evaluated_labels)

    def fit(self, learned: Any, held_out: Windows) -> Self:
        """Train the network, or resume. `learned` are windows with `shares` (T,), the fraction of positives, and
        `draw(step, first, count)`, which returns the windows `first … first + count` of a step, and their
        labels (n, T)."""
        self.learned = learned
        length, shortest = learned.length, self.network.shortest
        if length < shortest:
            raise DataError(
                f"{self.name}: windows of {length} bp are too short; the network needs {shortest} bp"
            )

        seed = self.training.seed, 5
        rows = sample(np.arange(held_out.shape[0]), self.most, seed)
        self.evaluated = base_codes(held_out.sequences(rows))
        self.evaluated_labels = held_out.labels(rows)
        self.trained = fit(self, self.checkpoints, World(0, 1, self.device))
        return self

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        assert self.trained is not None, "call `fit` first"
        if not sequences:
            return np.zeros((0, self.learned.shape[1]), np.float32)

        codes = base_codes(sequences)
        strands = [codes]
        if self.both_strands:
            strands.append(other_strand(codes))

        network, loss = self.trained.network, self.label_loss
        predictions = [
            loss.predictions(_logits(network, strand, self.device))
            for strand in strands
        ]
        return np.asarray(np.mean(predictions, axis=0), np.float32)

    def finish(self) -> None:
        """Remove the checkpoints."""
        assert self.trained is not None
        self.trained.remove_checkpoint()


class CnnProm(nn.Module):
    """CNNProm (Umarov & Solovyev, PLoS ONE 12:e0171410, 2017): a convolutional and a dense layer.

    The network for human promoters without TATA: 300 filters of 21 bp, the maximum over 231 positions (the
    whole window of 251 bp), 128 dense units. Longer windows have a maximum per 231 positions. In a window of
    251 bp, the network detects which motifs are present, but not their order or distance.
    """

    shortest = _FILTER

    def __init__(
        self, length: int, labels: int, *, filters: int = 300, dense: int = 128
    ) -> None:
        super().__init__()
        places = length - _FILTER + 1
        pooled = min(_POOLED, places)
        self.motifs = nn.Conv1d(4, filters, _FILTER)
        self.pool = nn.MaxPool1d(pooled, ceil_mode=True)
        self.dense = nn.Linear(filters * -(-places // pooled), dense)
        self.output = nn.Linear(dense, labels)

    def forward(self, windows: Tensor) -> Tensor:
        x = self.pool(F.relu(self.motifs(windows)))
        return self.output(F.relu(self.dense(x.flatten(1))))  # type: ignore[no-any-return]


def _logits(
    network: nn.Module, codes: Bytes, device: torch.device
) -> NDArray[np.float32]:
    """Return the logits (N, T) of windows (N, L), computed in parts."""
    size = max(1, min(_AT_ONCE, _BASES_AT_ONCE // codes.shape[1]))
    with torch.inference_mode():
        parts = torch.split(torch.from_numpy(codes), size)
        logits = [network(one_hot(part.to(device))).float().cpu() for part in parts]
        return torch.cat(logits).numpy()
