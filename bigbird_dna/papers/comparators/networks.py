"""Training of comparators that are networks on one-hot windows, with the common training loop.

All networks are trained in the same way, independent of their papers: AdamW with warm-up and decay, binary
cross-entropy, and the weights of the evaluation with the lowest loss on held-out windows. An N is four zeros,
as in DeepSEA's data: it is evidence for no base, like the padding of convolutions beyond a contig's end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.baselines.kmers import base_codes, other_strand
from bigbird_dna.baselines.windows import LabeledWindows as Windows
from bigbird_dna.baselines.windows import Probabilities, blocks
from bigbird_dna.config import TrainingConfig
from bigbird_dna.data.chromatin import sample
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import UNKNOWN
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.model.inference import choose_device
from bigbird_dna.papers.comparators.interface import Comparator, NetworkSettings
from bigbird_dna.training.checkpoints import Keep
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch, Epochs, Objective
from bigbird_dna.training.task import Training, TrainingResult, fit

# Axes: B windows, L bases.


def one_hot(codes: Tensor) -> Tensor:
    """Convert (B, L) codes to (B, 4, L) zeros and ones, float32, with N as zeros."""
    return F.one_hot(codes.long(), UNKNOWN + 1)[..., :UNKNOWN].transpose(1, 2).float()


def count_products(network: nn.Module, example: Tensor) -> int:
    """Count products with weights of convolutions, dense layers and LSTMs in a forward pass of `example`."""
    counted = 0

    def count(module: nn.Module, given: tuple[Tensor, ...], result: Any) -> None:
        nonlocal counted
        weights = sum(one.numel() for one in module.parameters(recurse=False) if one.dim() > 1)
        if isinstance(module, nn.Conv1d):
            counted += weights * result.shape[0] * result.shape[2]
        elif isinstance(module, nn.Linear):
            counted += weights * math.prod(result.shape[:-1])
        elif isinstance(module, nn.LSTM):
            counted += weights * given[0].shape[0] * given[0].shape[1]

    handles = [module.register_forward_hook(count) for module in network.modules()]
    training = network.training
    with torch.no_grad():
        network.eval()(example)
    network.train(training)
    for handle in handles:
        handle.remove()
    return counted


# Axes: N windows, L bases, T labels.

EVALUATED_WINDOWS = 2000
"""Most held-out windows on which weights are chosen."""
_AT_ONCE = 256  # most windows per prediction batch
_BASES_AT_ONCE = 1 << 17
_LEAST_POSITIVES = 5  # of a label in the held-out windows, to include it in the median AUROC


class Network(Protocol):
    """A class of networks with an `output` layer and the attribute `shortest`, the least window in bp."""

    shortest: int

    def __call__(self, length: int, labels: int) -> nn.Module:
        """Make a network from one-hot windows (B, 4, L) to logits (B, T)."""


class OneHotNetwork(nn.Module):
    """A network from codes (B, L) to logits (B, T)."""

    def __init__(self, inner: nn.Module, length: int) -> None:
        super().__init__()
        self.inner = inner
        self.products_a_token = count_products(inner, torch.zeros(1, 4, length)) / length

    def forward(self, codes: Tensor) -> Tensor:
        return self.inner(one_hot(codes))  # type: ignore[no-any-return]


class NetworkComparator(Comparator, Training[OneHotNetwork]):
    """A network on one-hot windows. `windows` identifies its data: a killed training resumes only on the same
    windows. Computation is in bfloat16 where that is faster. On one type of CPU, a seed gives bit-identical
    results."""

    keep: ClassVar[Keep] = "best"

    def __init__(
        self,
        network: Network,
        settings: NetworkSettings,
        *,
        name: str,
        checkpoints: Path,
        windows: Mapping[str, Any],
        device: str = "auto",
    ) -> None:
        self.network, self.settings, self.name, self.windows = network, settings, name, windows
        self.checkpoints, self.device = checkpoints, choose_device(device)
        self.trained: TrainingResult[OneHotNetwork] | None = None

    @property
    def config(self) -> TrainingConfig:
        return self.settings.training(min(self.held_out.shape[0], EVALUATED_WINDOWS))

    def identity(self) -> dict[str, Any]:
        shape = {"length": self.learned.length, "labels": self.learned.shape[1]}
        return {"comparator": self.name, **shape, **self.windows, "settings": vars(self.settings)}

    def build(self) -> OneHotNetwork:
        length = self.learned.length
        return OneHotNetwork(self.network(length, self.learned.shape[1]), length)

    def objective(self, network: OneHotNetwork, world: World) -> NetworkObjective:
        return NetworkObjective(self.learned, self.held_out, self.settings, world.device)

    def initialize(self, network: OneHotNetwork) -> None:
        output = network.inner.output  # initialized to the best constant prediction
        assert isinstance(output, nn.Linear)
        count, positives = self.learned.shape[0], _positives(self.learned)
        share = positives / count
        weight = torch.as_tensor(_weights(positives, count, self.settings.balanced), dtype=torch.float32)
        odds = torch.as_tensor(share / (1 - share).clip(1e-6), dtype=torch.float32)
        with torch.no_grad():
            output.bias.copy_((weight * odds).clamp(1e-6, 1e6).log())

    def describe(self, network: OneHotNetwork) -> str:
        return f"{self.name}: {self.learned.shape[0]:,} training windows of {self.learned.length:,} bp"

    def fit(self, learned: Windows, held_out: Windows) -> Self:
        """Train the network, or resume; keep the weights with the lowest loss on held-out windows."""
        self.learned, self.held_out = learned, held_out
        length, shortest = learned.length, self.network.shortest
        if length < shortest:
            raise DataError(
                f"{self.name}: windows of {length} bp are too short; the network needs {shortest} bp"
            )
        world = World(0, 1, self.device)
        with world.at_end:
            self.trained = fit(self, self.checkpoints, world)
            world.at_end.pop_all()  # keep the lock until `finish`
        return self

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        if self.trained is None:
            raise ValueError(f"{self.name}: call `fit` before `predict`")
        if not sequences:
            return np.zeros((0, self.learned.shape[1]), np.float32)
        codes = base_codes(sequences)
        return _probabilities(self.trained.network, codes, self.device, self.settings.both_strands)

    def chosen(self) -> dict[str, Any]:
        if self.trained is None:
            return {}
        return {
            "held_out_loss": self.trained.store.best_loss,
            "parameters": self.trained.parameters,
            "steps": self.settings.steps,
        }

    def files(self) -> dict[str, Path]:
        return {} if self.trained is None else {"training.jsonl": self.trained.log}

    def finish(self) -> None:
        if self.trained is not None:
            self.trained.store.remove()


class NetworkObjective(Objective):
    """Binary cross-entropy over windows and labels."""

    def __init__(
        self, learned: Windows, held_out: Windows, settings: NetworkSettings, device: torch.device
    ) -> None:
        self.learned, self.settings, self.device = learned, settings, device
        count = learned.shape[0]
        self.epochs = Epochs(settings.seed, count, lambda _: np.arange(count))
        rows = sample(np.arange(held_out.shape[0]), EVALUATED_WINDOWS, (settings.seed, 5))
        self.evaluated = base_codes(held_out.sequences(rows))
        self.judged_labels = held_out.labels(rows)
        weight = _weights(_positives(learned), count, settings.balanced)
        self.weight = torch.as_tensor(weight, dtype=torch.float32)
        # Held-out windows have another class ratio.
        evaluated = self.judged_labels.sum(axis=0, dtype=np.int64)
        self.judged_weight = _weights(evaluated, len(self.judged_labels), settings.balanced)

    def batch(self, step: int, first: int, count: int) -> Batch:
        size = self.settings.batch_size
        rows = np.asarray(self.epochs.indices(step * size + first, count), np.intp)
        codes = base_codes(self.learned.sequences(rows))
        if self.settings.both_strands:
            rng = np.random.default_rng((self.settings.seed, 3, step))
            turned = rng.integers(0, 2, size).astype(bool)[first : first + count]
            codes = np.where(turned[:, None], other_strand(codes), codes)
        return {
            "codes": torch.from_numpy(codes),
            "labels": torch.from_numpy(self.learned.labels(rows)).float(),
            "lengths": torch.full((count,), codes.shape[1]),
        }

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"labels": float(batch["labels"].numel())}

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        logits = network(batch["codes"]).float()
        weight = self.weight.to(logits.device)
        sums = F.binary_cross_entropy_with_logits(logits, batch["labels"], pos_weight=weight, reduction="sum")
        return sums / totals["labels"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        chances = _probabilities(network, self.evaluated, self.device, both_strands=False).astype(np.float64)
        right = np.where(self.judged_labels == 1, chances, 1 - chances)
        counted = np.where(self.judged_labels == 1, self.judged_weight, 1.0)
        loss = float(-(counted * np.log(right.clip(1e-7, 1))).mean())
        return {"loss": loss, "auroc": _median_auroc(self.judged_labels, chances)}


def _positives(windows: Windows) -> NDArray[np.int64]:
    """Count the windows with each label, (T,)."""
    found = np.zeros(windows.shape[1], np.int64)
    for part in blocks(windows.shape[0], 1 << 16):
        found += windows.labels(part).sum(axis=0, dtype=np.int64)
    return found


def _weights(positives: NDArray[np.int64], rows: int, balanced: bool) -> NDArray[np.float64]:
    """Return the weight of a positive of each label (T,) relative to a negative, 1 unless balanced."""
    negatives = rows - positives
    both = (positives > 0) & (negatives > 0)
    return np.where(both & balanced, negatives / positives.clip(1), 1.0)


def _median_auroc(labels: NDArray[np.uint8], chances: NDArray[np.float64]) -> float:
    positives = labels.sum(axis=0, dtype=np.int64)
    usable = np.minimum(positives, len(labels) - positives) >= _LEAST_POSITIVES
    figures = [auroc(labels[:, one], chances[:, one]).value for one in np.flatnonzero(usable)]
    return float(np.median(figures)) if figures else 0.5


def _probabilities(
    network: nn.Module, codes: NDArray[np.uint8], device: torch.device, both_strands: bool
) -> Probabilities:
    strands = (codes, other_strand(codes)) if both_strands else (codes,)
    size = max(1, min(_AT_ONCE, _BASES_AT_ONCE // max(codes.shape[1], 1)))
    found = []
    with torch.inference_mode():
        for part in blocks(len(codes), size):
            chances = [
                network(torch.from_numpy(one[part]).to(device)).float().sigmoid().cpu() for one in strands
            ]
            found.append(torch.stack(chances).mean(0).numpy())
    return np.concatenate(found)
