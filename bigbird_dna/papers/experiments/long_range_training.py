"""Long-Range Arena: train a classifier of long sequences with one of the compared attention mechanisms."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import EncoderConfig, TrainingConfig
from bigbird_dna.config.long_range import (
    LONG_RANGE_TASKS,
    LongRangeConfig,
    LongRangeTask,
)
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import UsageError, check_choice
from bigbird_dna.model.heads import Classifier
from bigbird_dna.papers.experiments.long_range_sequences import (
    CLASSES,
    DIGITS,
    OFFSET,
    SPLITS,
    TOKENS,
    Sequences,
    distance_baseline,
    read_listops,
    read_pathfinder,
    root_baseline,
)
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch, Epochs, Objective
from bigbird_dna.training.task import Task, TrainingResult, write_network

# Axes: N sequences, B batch, L tokens, C classes.

EVALUATED_SEQUENCES = 2_000
"""Most validation sequences evaluated during training."""
_TOKENS_AT_ONCE = 1 << 15


class SequenceKind(NamedTuple):
    """Files, classes and symbols of a task, and a baseline that does not read the sequence."""

    read: Callable[[Path], Sequences]
    suffix: str
    classes: int
    symbols: int
    baseline: Callable[[Sequences, Sequences], float]
    baseline_name: str


_KINDS: Mapping[str, SequenceKind] = {
    "listops": SequenceKind(
        read_listops,
        ".tsv.gz",
        DIGITS,
        len(TOKENS),
        root_baseline,
        "first operator alone",
    ),
    "pathfinder": SequenceKind(
        read_pathfinder,
        ".npz",
        CLASSES,
        256,
        distance_baseline,
        "distance of the circles alone",
    ),
}


class ClassObjective(Objective):
    """Cross-entropy over classes, with a new order in each epoch."""

    def __init__(
        self, learned: Sequences, held_out: Sequences, config: TrainingConfig
    ) -> None:
        self.learned, self.held_out, self.config = learned, held_out, config
        self.epochs = Epochs(
            config.seed, len(learned), lambda _: np.arange(len(learned))
        )

    def batch(self, step: int, first: int, count: int) -> Batch:
        return self.learned.batch(
            self.epochs.indices(step * self.config.batch_size + first, count)
        )

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"sequences": float(len(batch["targets"]))}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        logits = network(batch["ids"], batch["lengths"]).float()
        return (
            F.cross_entropy(logits, batch["targets"], reduction="sum")
            / totals["sequences"]
        )

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        device = next(network.parameters()).device
        loss, right, count = 0.0, 0, min(EVALUATED_SEQUENCES, len(self.held_out))
        for rows in _parts(self.held_out, count):
            batch = self.held_out.batch(rows)
            logits = network(batch["ids"].to(device), batch["lengths"]).float().cpu()
            loss += float(F.cross_entropy(logits, batch["targets"], reduction="sum"))
            right += int((logits.argmax(1) == batch["targets"]).sum())
        return {"loss": loss / count, "accuracy": right / count}


def _parts(sequences: Sequences, count: int) -> list[range]:
    size = max(1, _TOKENS_AT_ONCE // (sequences.longest + 1))
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a fraction, Wilson's score interval."""
    z, share = 1.959964, right / count
    middle = share + z**2 / (2 * count)
    around = z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    scale = 1 + z**2 / count
    return max(0.0, (middle - around) / scale), min(1.0, (middle + around) / scale)


Accuracy = tuple[int, int]
"""Number of correctly classified sequences, and number of all sequences."""


@dataclass(eq=False)
class SequenceTask(Task[Classifier, Accuracy]):
    """Training of a classifier with one attention mechanism. The result is the test accuracy with a 95 %
    interval (Wilson), compared with the task's `baseline` and the most frequent class."""

    section: LongRangeConfig
    task: LongRangeTask
    attention: str
    seed: int
    directory: Path

    @property
    def inputs(self) -> Sequence[Path]:
        return [self.directory]

    @cached_property
    def config(self) -> TrainingConfig:
        check_choice("task", self.task, LONG_RANGE_TASKS)
        check_choice("attention", self.attention, self.section.attentions)
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"seed {self.seed}: must be from 0 to {2**32 - 1}")
        training: TrainingConfig = getattr(self.section, self.task).training
        return training.model_copy(update={"seed": self.seed})

    @property
    def files(self) -> dict[str, Path]:
        return {
            split: self.directory / f"{split}{_KINDS[self.task].suffix}"
            for split in SPLITS
        }

    @cached_property
    def data(self) -> dict[str, Sequences]:
        return {
            split: _KINDS[self.task].read(path) for split, path in self.files.items()
        }

    @cached_property
    def longest(self) -> int:
        return max(one.longest for one in self.data.values()) + 1

    @cached_property
    def encoder(self) -> EncoderConfig:
        return self.section.encoder_of(
            self.attention, _KINDS[self.task].symbols + OFFSET, self.longest
        )

    @cached_property
    def checksums(self) -> dict[str, str]:
        return {split: checksum(path) for split, path in self.files.items()}

    def identity(self) -> dict[str, Any]:
        of = {
            "task": self.task,
            "pooling": self.section.pooling,
            "classes": _KINDS[self.task].classes,
        }
        return {**of, "data": self.checksums}

    def build(self) -> Classifier:
        return Classifier(self.encoder, _KINDS[self.task].classes, self.section.pooling)

    def objective(self, network: Classifier, world: World) -> ClassObjective:
        return ClassObjective(self.data["train"], self.data["valid"], self.config)

    def describe(self, network: Classifier) -> str:
        parameters = sum(parameter.numel() for parameter in network.parameters())
        count = len(self.data["train"])
        return f"{self.task} with {self.attention}, {count:,} sequences, {parameters:,} parameters"

    def measure(self, trained: TrainingResult[Classifier]) -> Accuracy:
        test, network, world = self.data["test"], trained.network, trained.world

        def likeliest(rows: Any) -> Any:
            found = [np.zeros(0, np.int64)]
            for part in _parts(test, len(rows)):
                batch = test.batch([rows[one] for one in part])
                logits = network(batch["ids"].to(world.device), batch["lengths"])
                found.append(logits.float().argmax(1).cpu().numpy())
            return np.concatenate(found)

        right = world.divide(range(len(test)), likeliest) == test.targets
        return int(right.sum()), len(right)

    def write(
        self, directory: Path, trained: TrainingResult[Classifier], measured: Accuracy
    ) -> dict[str, Any]:
        (right, count), data, kind = measured, self.data, _KINDS[self.task]
        accuracy, (low, high) = right / count, wilson_interval(right, count)
        frequent = np.bincount(data["train"].targets).argmax()
        result = {
            **{
                "task": self.task,
                "attention": self.attention,
                "seed": self.seed,
                "accuracy": accuracy,
            },
            **{"accuracy_low": low, "accuracy_high": high, "test_sequences": count},
            "baseline": kind.baseline(data["train"], data["test"]),
            "baseline_name": kind.baseline_name,
            "most_frequent": float((data["test"].targets == frequent).mean()),
            **{
                "longest": self.longest,
                "parameters": trained.parameters,
                "steps": trained.progress.step,
            },
            "data": self.checksums,
        }
        write_network(directory, self.encoder, trained, result)
        log(
            f"{self.task} with {self.attention}: accuracy {accuracy:.4f} ({low:.4f} to {high:.4f})"
        )
        return result
