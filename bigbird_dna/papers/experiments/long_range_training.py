"""Training of a classifier of the Long-Range Arena."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config.long_range import LongRangeConfig
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.training import TrainingConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.model.heads import Classifier
from bigbird_dna.papers.experiments.long_range_sequences import (
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

EVALUATED_SEQUENCES = 2_000
"""Most validation sequences evaluated during training."""
TOKENS_AT_ONCE = 1 << 15


class ClassObjective(Objective):
    """Cross-entropy over classes, with a new order in each epoch."""

    def __init__(
        self, learned: Sequences, held_out: Sequences, config: TrainingConfig
    ) -> None:
        self.learned, self.held_out, self.config = learned, held_out, config
        count = len(learned)
        self.epochs = Epochs(config.seed, count, lambda _: np.arange(count))

    def batch(self, step: int, first: int, count: int) -> Batch:
        start = step * self.config.batch_size + first
        return self.learned.batch(self.epochs.indices(start, count))

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"sequences": float(len(batch["targets"]))}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        logits = network(batch["ids"], batch["lengths"]).float()
        loss = F.cross_entropy(logits, batch["targets"], reduction="sum")
        return loss / totals["sequences"]

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        rows = range(min(EVALUATED_SEQUENCES, len(self.held_out)))
        loss, right = 0.0, 0
        for batch, logits in _predicted(network, self.held_out, rows):
            loss += float(F.cross_entropy(logits, batch["targets"], reduction="sum"))
            right += int((logits.argmax(1) == batch["targets"]).sum())
        return {"loss": loss / len(rows), "accuracy": right / len(rows)}


def _predicted(network: nn.Module, sequences: Sequences, rows: Sequence[int]) -> Any:
    """Yield batches of some sequences with their logits."""
    device = next(network.parameters()).device
    size = max(1, TOKENS_AT_ONCE // (sequences.longest + 1))
    for start in range(0, len(rows), size):
        batch = sequences.batch(rows[start : start + size])
        yield batch, network(batch["ids"].to(device), batch["lengths"]).float().cpu()


@dataclass(eq=False)
class SequenceTask(Task[Classifier, np.ndarray]):
    """Training of a classifier with one attention mechanism. The result is the test accuracy with a 95 %
    interval (Wilson), compared with a baseline that does not read the sequence, and the most frequent class.
    """

    section: LongRangeConfig
    task: str
    attention: str
    seed: int
    directory: Path

    @property
    def inputs(self) -> Sequence[Path]:
        return [self.directory]

    @property
    def config(self) -> TrainingConfig:
        training: TrainingConfig = getattr(self.section, self.task).training
        return training.model_copy(update={"seed": self.seed})

    @cached_property
    def files(self) -> dict[str, Path]:
        ending = "tsv.gz" if self.task == "listops" else "npz"
        return {split: self.directory / f"{split}.{ending}" for split in SPLITS}

    @cached_property
    def data(self) -> dict[str, Sequences]:
        read = read_listops if self.task == "listops" else read_pathfinder
        return {split: read(path) for split, path in self.files.items()}

    @cached_property
    def encoder(self) -> EncoderConfig:
        symbols = len(TOKENS) if self.task == "listops" else 256
        longest = max(one.longest for one in self.data.values()) + 1
        return self.section.encoder_of(self.attention, symbols + OFFSET, longest)

    @cached_property
    def checksums(self) -> dict[str, str]:
        return {split: checksum(path) for split, path in self.files.items()}

    @property
    def classes(self) -> int:
        return 10 if self.task == "listops" else 2

    def identity(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "pooling": self.section.pooling,
            "classes": self.classes,
            "data": self.checksums,
        }

    def build(self) -> Classifier:
        return Classifier(self.encoder, self.classes, self.section.pooling)

    def objective(self, network: Classifier, world: World) -> ClassObjective:
        return ClassObjective(self.data["train"], self.data["valid"], self.config)

    def describe(self, network: Classifier) -> str:
        count = len(self.data["train"])
        return f"{self.task} with {self.attention}, {count:,} sequences"

    def measure(self, trained: TrainingResult[Classifier]) -> np.ndarray:
        """Return the predicted class of each test sequence."""
        test = self.data["test"]

        def classes(rows: Any) -> Any:
            logits = [one for _, one in _predicted(trained.network, test, rows)]
            predicted = [one.argmax(1).numpy() for one in logits]
            return np.concatenate([np.zeros(0, np.int64), *predicted])

        return np.asarray(trained.world.divide(range(len(test)), classes))

    def write(
        self, directory: Path, trained: TrainingResult[Classifier], measured: np.ndarray
    ) -> dict[str, Any]:
        train, test = self.data["train"], self.data["test"]
        right = int((measured == test.targets).sum())
        interval = binomtest(right, len(test)).proportion_ci(method="wilson")
        frequent = np.bincount(train.targets).argmax()
        listops = self.task == "listops"
        baseline = root_baseline if listops else distance_baseline
        result = {
            "task": self.task,
            "attention": self.attention,
            "seed": self.seed,
            "accuracy": right / len(test),
            "accuracy_low": float(interval.low),
            "accuracy_high": float(interval.high),
            "baseline": baseline(train, test),
            "baseline_name": "first operator alone"
            if listops
            else "distance of the circles alone",
            "most_frequent": float((test.targets == frequent).mean()),
            "test_sequences": len(test),
            "parameters": trained.effort["parameters"],
            "steps": trained.progress.step,
            "data": self.checksums,
        }
        write_network(directory, self.encoder, trained, result)
        accuracy = result["accuracy"]
        log(
            f"{self.task} with {self.attention}: accuracy {accuracy:.4f} "
            f"({interval.low:.4f} to {interval.high:.4f})"
        )
        return result
