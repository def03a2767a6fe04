"""Training runs: a `Task` defines what is trained and what is written at the end; `train` executes it."""

import hashlib
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bigbird_dna.calibration.maps import Calibration
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.training import (
    FinetuningConfig,
    PretrainingConfig,
    TrainingConfig,
)
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.model.directory import write_model
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.training.adapters import Adaptation
from bigbird_dna.training.distributed import World
from bigbird_dna.training.log import LOG, Progress
from bigbird_dna.training.loop import STATE, Batch, train_network

N = TypeVar("N", bound=nn.Module)
M = TypeVar("M")

RESULT = "result.json"


@dataclass(frozen=True, eq=False)
class TrainingResult(Generic[N]):
    """A fully trained network, in evaluation mode, with its training context."""

    network: N
    progress: Progress
    world: World
    directory: Path  # of checkpoint and log
    keeps_best: bool = False
    adaptation: Adaptation | None = None  # of a training of few weights

    @property
    def log(self) -> Path:
        """The training log."""
        return self.directory / LOG

    @property
    def effort(self) -> dict[str, int]:
        """Steps and tokens of the training, the step whose weights are kept if it need not be the last one,
        skipped steps if any, and numbers of parameters, for its metrics."""
        progress = self.progress
        effort = {
            "steps": progress.step,
            "tokens_seen": progress.tokens,
            "parameters": sum(p.numel() for p in self.network.parameters()),
        }
        if self.keeps_best:
            effort["kept_step"] = progress.best_step

        if progress.skipped:
            effort["skipped_steps"] = progress.skipped

        if self.adaptation is not None:
            effort["trained_parameters"] = self.adaptation.trained

        return effort

    def remove_checkpoint(self) -> None:
        """Delete the checkpoint and the log, once the results are written."""
        shutil.rmtree(self.directory)


class Task(ABC, Generic[N, M]):
    """A training: its network, batches and loss, held-out metrics, and the files written at its end.

    Creating a task reads nothing. `check`, `initialize` and `write` are called only on the first process.
    """

    @property
    @abstractmethod
    def config(self) -> TrainingConfig:
        """Steps, batches, optimizer, seed."""

    @property
    def encoder(self) -> EncoderConfig | None:
        """The configuration of the network's encoder, if any."""
        return None

    @property
    def keeps_best(self) -> bool:
        """Whether to keep the weights with the lowest held-out loss, rather than those of the last step."""
        return isinstance(self.config, (FinetuningConfig, PretrainingConfig))

    @property
    def patience(self) -> int | None:
        """See `FinetuningConfig`."""
        return getattr(self.config, "patience", None)

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What determines the weights, except `encoder` and `config`; it also names the checkpoint."""

    def check(self) -> None:
        """Check the inputs for damage before anything is written."""

    @abstractmethod
    def build(self) -> N:
        """The network with random initial weights from torch's generator, which was just seeded."""

    def initialize(self, network: N) -> None:
        """Change the initial weights in place, without a checkpoint; other processes get the first one's."""

    def adapt(self, network: N) -> Adaptation | None:
        """Fix weights that are not trained, on every process; None: there are none."""
        return None

    @abstractmethod
    def batch(self, step: int, first: int, count: int) -> Batch:
        """Examples `first … first + count` of a step's global batch, on the CPU, with `lengths`."""

    @abstractmethod
    def counts(self, batch: Batch) -> dict[str, float]:
        """Numbers of loss terms in a batch; their sums over the global batch divide the loss."""

    @abstractmethod
    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """This batch's part of the global batch's loss; `lengths` and `spans` are on the CPU."""

    @abstractmethod
    def evaluate(self, network: nn.Module, world: World) -> dict[str, float]:
        """Metrics on held-out data, equal on every process; `loss…` and `bits…` must be finite."""

    def measure(self, trained: TrainingResult[N]) -> M:
        """Computations of all processes with the trained network, in float32 and inference mode."""
        raise NotImplementedError

    def write(
        self, directory: Path, trained: TrainingResult[N], measured: M
    ) -> dict[str, Any]:
        """Write the results into an empty directory; returns the metrics."""
        raise NotImplementedError


def write_trained(
    directory: Path,
    model: LoadedModel,
    trained: TrainingResult[N],
    provenance: dict[str, Any],
    metrics: dict[str, Any],
    calibration: Calibration | None = None,
) -> None:
    """Write a trained model with its training log, and the attention backends that ran."""
    backends = trained.progress.backends.split()
    write_model(
        directory,
        model,
        {**provenance, "attention_backends": backends},
        metrics,
        {LOG: trained.log},
        calibration=calibration,
    )


def write_network(
    directory: Path,
    encoder: EncoderConfig,
    trained: TrainingResult[N],
    result: dict[str, Any],
) -> None:
    """Write a network without tokenizer (not a model): result, log, the encoder's keys, weights."""
    weights = {
        name: value.cpu().contiguous()
        for name, value in trained.network.state_dict().items()
    }
    save_file(weights, directory / "weights.safetensors")
    write_json(directory / "encoder.json", encoder.model_dump(mode="json"))
    write_json(directory / RESULT, result)
    if trained.log.exists():
        (directory / LOG).write_bytes(trained.log.read_bytes())


def train(
    task: Task[N, M],
    output: Path,
    checkpoints: Path,
    world: World,
    then: Callable[[Path], object] | None = None,
) -> dict[str, Any]:
    """Train, or resume training, and write the directory `output` atomically; returns the metrics.

    `then` adds further files to the written ones. Every process of `world` calls this; all but the first
    return {}. `UsageError`: `output` cannot be written, or contains files not from an earlier run. Other
    errors: see `fit`, the task and the loop.
    """
    check_directory(output, [checkpoints])
    trained = fit(task, checkpoints, world)
    with torch.inference_mode():
        measured = task.measure(trained)

    world.leave()
    if not world.is_first:
        return {}

    with atomic_directory(output) as directory:
        metrics = task.write(directory, trained, measured)
        if then is not None:
            then(directory)

    trained.remove_checkpoint()
    return metrics


def fit(task: Task[N, M], checkpoints: Path, world: World) -> TrainingResult[N]:
    """Train a network, or resume from its checkpoint, which is kept."""
    directory = checkpoint_directory(task, checkpoints)
    world.first(task.check)
    torch.manual_seed(task.config.seed)
    network = task.build()
    world.first(
        lambda: None if (directory / STATE).exists() else task.initialize(network)
    )
    adaptation = task.adapt(network)
    if world.is_first:
        parameters = sum(p.numel() for p in network.parameters() if p.requires_grad)
        log(f"training {parameters:,} parameters, {world.device}")

    progress = train_network(network, task, directory, world)
    if adaptation is not None:
        adaptation.merge()

    return TrainingResult(
        network, progress, world, directory, task.keeps_best, adaptation
    )


def checkpoint_directory(task: Task[N, M], checkpoints: Path) -> Path:
    """The directory of a training's checkpoint, named by everything that determines its weights."""
    encoder = task.encoder  # first: it may read the data, whose errors name the file
    training = task.config.deciding()
    if task.keeps_best:  # then it decides what is measured, and when
        measured = {"evaluate_every", "evaluation_bins", "evaluation_sequences"}
        training |= task.config.model_dump(include=measured)
    identity = {"training": training, **task.identity()}
    if encoder is not None:
        identity["encoder"] = encoder.deciding()
    text = json.dumps(identity, sort_keys=True, default=str)
    return checkpoints / hashlib.sha256(text.encode()).hexdigest()[:12]
