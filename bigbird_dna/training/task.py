"""Training runs: a `Task` defines what is trained and what is written at the end; `train` executes it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from safetensors.torch import save_file
from torch import nn

from bigbird_dna.calibration.maps import Calibration
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.training import KeepingConfig, TrainingConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.model.directory import build_network, make_model, write_model
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import Settings
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.adapters import Adaptation
from bigbird_dna.training.checkpoints import CheckpointStore, Keep
from bigbird_dna.training.distributed import World
from bigbird_dna.training.gpu_check import check_gpu
from bigbird_dna.training.log import LOG, Progress
from bigbird_dna.training.loop import Objective, train_network

N = TypeVar("N", bound=nn.Module)
M = TypeVar("M")

RESULT = "result.json"


@dataclass(frozen=True, eq=False)
class TrainingResult(Generic[N]):
    """A fully trained network, in evaluation mode, with its training context."""

    network: N
    objective: Objective
    progress: Progress
    world: World
    store: CheckpointStore
    adaptation: Adaptation | None = None  # of a training of few weights

    @property
    def log(self) -> Path:
        """The training log, a file next to the checkpoints."""
        return self.store.log_path

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
        if self.store.best is not None:
            effort["kept_step"] = progress.best_step
        if progress.skipped:
            effort["skipped_steps"] = progress.skipped
        if self.adaptation is not None:
            effort["trained_parameters"] = self.adaptation.trained
        return effort


class Training(ABC, Generic[N]):
    """A network to be trained. Methods are called in this order; `check`, `initialize` and `describe` only on
    the first process."""

    @property
    def keep(self) -> Keep:
        """Which weights to keep: those of the last step, or those with the lowest held-out loss."""
        return self.config.keep if isinstance(self.config, KeepingConfig) else "last"

    @property
    def patience(self) -> int | None:
        """See `KeepingConfig`."""
        if self.keep == "best" and isinstance(self.config, KeepingConfig):
            return self.config.patience
        return None

    @property
    @abstractmethod
    def config(self) -> TrainingConfig:
        """Steps, batches, optimizer, seed."""

    @property
    def encoder(self) -> EncoderConfig | None:
        """The configuration of the network's encoder, if any."""
        return None

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What determines the weights, except `encoder` and `config`; it also names the checkpoints."""

    def check(self) -> None:
        """Check the inputs for damage before anything is written."""

    @abstractmethod
    def build(self) -> N:
        """The network with random initial weights from torch's generator, which was just seeded."""

    @abstractmethod
    def objective(self, network: N, world: World) -> Objective:
        """Batches, their loss and held-out metrics."""

    def initialize(self, network: N) -> None:
        """Change the initial weights in place, without a checkpoint; other processes get the first one's."""

    def adapt(self, network: N) -> Adaptation | None:
        """Fix weights that are not trained, on every process; None: there are none."""
        return None

    @abstractmethod
    def describe(self, network: N) -> str:
        """Description of the training and its data, for the log."""


class Task(Training[N], Generic[N, M]):
    """A training with its input files and the results written at its end. Creating a task reads nothing."""

    @property
    @abstractmethod
    def inputs(self) -> Sequence[Path]:
        """Files and directories that are only read."""

    @abstractmethod
    def measure(self, trained: TrainingResult[N]) -> M:
        """Computations of all processes with the trained network, in float32 and inference mode."""

    @abstractmethod
    def write(
        self, directory: Path, trained: TrainingResult[N], measured: M
    ) -> dict[str, Any]:
        """Write the results into an empty directory, on the first process; returns the metrics."""


class ModelTask(Task[nn.Module, M]):
    """A task that produces a model directory."""

    @property
    @abstractmethod
    def encoder(self) -> EncoderConfig:
        """The configuration of the model's encoder."""

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""

    @property
    @abstractmethod
    def settings(self) -> Settings:
        """The task settings of the model."""

    def identity(self) -> dict[str, Any]:
        """Task and tokenizer; a task adds everything else that determines its weights."""
        return {"task": self.settings.task, "tokenizer": self.tokenizer.sha256}

    def build(self) -> nn.Module:
        return build_network(self.encoder, self.settings, self.tokenizer)

    def model(self, trained: TrainingResult[nn.Module]) -> LoadedModel:
        """The trained network with its tokenizer."""
        return make_model(trained.network, self.tokenizer, self.encoder, self.settings)

    def write_model(
        self,
        directory: Path,
        trained: TrainingResult[nn.Module],
        provenance: dict[str, Any],
        metrics: dict[str, Any],
        calibration: Calibration | None = None,
    ) -> None:
        """Write the model with its training log, and the attention backends that ran; `calibration` enables
        calibrated probabilities."""
        backends = trained.progress.backends.split()
        write_model(
            directory,
            self.model(trained),
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
    check_gpu(world.device)
    check_directory(output, [*task.inputs, checkpoints])
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
    trained.store.remove()
    return metrics


def fit(task: Training[N], checkpoints: Path, world: World) -> TrainingResult[N]:
    """Train a network, or resume from its checkpoints, which are kept. `ModelError` on every process if they
    are damaged, or the same training is running elsewhere."""
    store = checkpoint_store(task, checkpoints)
    world.first(task.check)
    world.first(store.lock)
    world.at_end.callback(store.unlock)
    torch.manual_seed(task.config.seed)
    network = task.build()
    objective = task.objective(network, world)
    # The other processes get the first one's weights when the network is wrapped for parallel training.
    world.first(lambda: None if store.exists else task.initialize(network))
    adaptation = task.adapt(network)
    if world.is_first:
        log(f"{task.describe(network)}, {world.device}")
    progress = train_network(
        network, objective, task.config, store, world, task.patience
    )
    if task.keep == "best":
        world.first(lambda: store.load_best(network))
        if world.is_first:
            log(
                f"weights of step {progress.best_step:,} of {progress.step:,} are kept: "
                f"lowest held-out loss {progress.best_loss:.4f}"
            )
        world.overwrite(network.state_dict().values())
    if adaptation is not None:
        adaptation.merge()
    return TrainingResult(network, objective, progress, world, store, adaptation)


def checkpoint_store(task: Training[N], checkpoints: Path) -> CheckpointStore:
    """The checkpoints of a training, named by everything that determines its weights; writes nothing."""
    encoder = task.encoder  # first: it may read the data, whose errors name the file
    identity = {"training": task.config.deciding(), **task.identity()}
    if encoder is not None:
        identity["encoder"] = encoder.deciding()
    return CheckpointStore(checkpoints, identity, task.keep)
