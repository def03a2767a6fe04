"""Long-Range Arena: a classifier of long sequences for each task, attention mechanism and seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import binomtest
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config.long_range import LongRangeConfig
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.run import Config
from bigbird_dna.config.training import TrainingConfig
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import atomic_directory, into_directory
from bigbird_dna.model.heads import Classifier
from bigbird_dna.papers.experiments.long_range_sequences import (
    OFFSET,
    SPLITS,
    TOKENS,
    Sequences,
    generate_listops,
    generate_pathfinder,
    read_sequences,
    write_sequences,
)
from bigbird_dna.papers.experiments.shared import Trainings
from bigbird_dna.reporting.result import write_result
from bigbird_dna.training.distributed import World
from bigbird_dna.training.draws import Epochs
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.task import Task, TrainingResult, train, write_network

EVALUATED_SEQUENCES = 2_000
"""Most validation sequences evaluated during training."""
TOKENS_AT_ONCE = 1 << 15


def run(config: Config, trainings: Trainings, output: Path) -> list[str]:
    """Make the data of each task, train its classifiers, and compare them; without the section, sizes are
    those published."""
    section = config.long_range_arena or LongRangeConfig()
    for encoder in section.encoders.values():
        encoder.check_no_bases()
        encoder.check_pooling(section.pooling, "long_range_arena")
    results = []
    for task in section.tasks:
        name = f"{task}-data"
        data, seed = trainings.model(name), section.data_seed
        sizes = getattr(section, task).model_dump(exclude={"training"})
        work = partial(write_data, section, task)
        trainings.run(name, Config(), "long-range", work, seed=seed, sizes=sizes)
        done = [data.parent / "finished.json"]
        for attention in section.encoders:
            for seed in section.seeds:
                name = f"{task}-{attention}-seed{seed}"
                classifier = SequenceTask(section, task, attention, seed, data)
                work = partial(train, classifier)
                options = {"attention": attention, "seed": seed}
                results.append(
                    trainings.run(name, config, "long-range", work, done, **options)
                )
    if not trainings.complete():
        return []
    table = accuracy_table(pd.DataFrame(results))
    with into_directory(output) as directory:
        write_result(directory, "long_range", "Long-Range Arena", table)
    return [f"long_range_arena: {len(table):,} rows"]


def write_data(
    section: LongRangeConfig, task: str, output: Path, checkpoints: Path, world: World
) -> dict[str, Any]:
    """Write the generated sequences of a task into a directory."""
    if world.is_first:
        with atomic_directory(output) as directory:
            if task == "listops":
                examples = generate_listops(section.listops, section.data_seed)
            else:
                examples = generate_pathfinder(section.pathfinder, section.data_seed)
            write_sequences(directory, examples)
    return {}


def accuracy_table(results: pd.DataFrame) -> pd.DataFrame:
    """Return means over seeds, by task and decreasing accuracy.

    Intervals are over test sequences, which are the same for all seeds: more seeds do not reduce them.
    """
    groups = results.groupby(["task", "attention"])
    table = groups.first().reset_index().drop(columns="seed")
    accuracy = groups["accuracy"].agg(["size", "mean", "min", "max"]).reset_index()
    shift = accuracy["mean"] - table["accuracy"]
    table["accuracy"] = accuracy["mean"]
    table["accuracy_low"] = (table["accuracy_low"] + shift).clip(lower=0)
    table["accuracy_high"] = (table["accuracy_high"] + shift).clip(upper=1)
    table.insert(2, "seeds", accuracy["size"])
    table.insert(6, "seed_spread", accuracy["max"] - accuracy["min"])
    return table.sort_values(
        ["task", "accuracy"], ascending=[True, False], ignore_index=True
    )


@dataclass(eq=False)
class SequenceTask(Task[Classifier, np.ndarray]):
    """Training of a classifier with one attention mechanism.

    The result is the test accuracy with a 95 % interval (Wilson), compared with a baseline that does not read
    the sequence.
    """

    section: LongRangeConfig
    task: str
    attention: str
    seed: int
    directory: Path

    @property
    def config(self) -> TrainingConfig:
        training: TrainingConfig = getattr(self.section, self.task).training
        return training.model_copy(update={"seed": self.seed})

    @cached_property
    def data(self) -> dict[str, Sequences]:
        return {
            split: read_sequences(self.directory / f"{split}.npz") for split in SPLITS
        }

    @property
    def encoder(self) -> EncoderConfig:
        symbols = len(TOKENS) if self.task == "listops" else 256
        longest = 0
        for split in self.data.values():
            longest = max(longest, *map(len, split.rows))
        sizes = {"vocabulary": symbols + OFFSET, "max_length": max(16, longest + 1)}
        return self.section.encoders[self.attention].model_copy(update=sizes)

    def identity(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "pooling": self.section.pooling,
            "data": checksum(self.directory / "train.npz"),
        }

    def build(self) -> Classifier:
        classes = 10 if self.task == "listops" else 2
        return Classifier(self.encoder, classes, self.section.pooling)

    @cached_property
    def epochs(self) -> Epochs:
        """A new order in each epoch."""
        count = len(self.data["train"].rows)
        return Epochs(self.config.seed, np.arange(count))

    def batch(self, step: int, first: int, count: int) -> Batch:
        start = step * self.config.batch_size + first
        return self.data["train"].batch(self.epochs.indices(start, count))

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"sequences": float(len(batch["targets"]))}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        logits = network(batch["ids"], batch["lengths"]).float()
        loss = F.cross_entropy(logits, batch["targets"], reduction="sum")
        return loss / totals["sequences"]

    def predict(self, network: nn.Module, split: str, rows: Sequence[int]) -> Tensor:
        """Return the logits of some sequences of a split, (N, classes)."""
        device = next(network.parameters()).device
        size = max(1, TOKENS_AT_ONCE // self.encoder.max_length)
        logits = []
        for start in range(0, len(rows), size):
            batch = self.data[split].batch(rows[start : start + size])
            outputs = network(batch["ids"].to(device), batch["lengths"])
            logits.append(outputs.float().cpu())
        return torch.cat(logits)

    def evaluate(self, network: nn.Module, world: World) -> dict[str, float]:
        targets = torch.tensor(self.data["valid"].targets[:EVALUATED_SEQUENCES])
        logits = self.predict(network, "valid", range(len(targets)))
        return {
            "loss": float(F.cross_entropy(logits, targets)),
            "accuracy": float((logits.argmax(1) == targets).double().mean()),
        }

    def measure(self, trained: TrainingResult[Classifier]) -> np.ndarray:
        """Return the predicted class of each test sequence."""

        def classes(rows: Sequence[int]) -> np.ndarray:
            logits = self.predict(trained.network, "test", rows)
            return logits.argmax(1).numpy()

        count = len(self.data["test"].rows)
        return trained.world.divide(range(count), classes)

    def write(
        self, directory: Path, trained: TrainingResult[Classifier], measured: np.ndarray
    ) -> dict[str, Any]:
        train, test = self.data["train"], self.data["test"]
        right, count = int((measured == test.targets).sum()), len(measured)
        interval = binomtest(right, count).proportion_ci(method="wilson")
        listops = self.task == "listops"
        # The most frequent class of each operator, or one threshold of the distance.
        tree = DecisionTreeClassifier(
            max_depth=None if listops else 1, random_state=0
        ).fit(train.giveaway[:, None], train.targets)
        result = {
            "task": self.task,
            "attention": self.attention,
            "seed": self.seed,
            "accuracy": right / count,
            "accuracy_low": float(interval.low),
            "accuracy_high": float(interval.high),
            "baseline": float(tree.score(test.giveaway[:, None], test.targets)),
            "baseline_name": "first operator alone"
            if listops
            else "distance of the circles alone",
            "test_sequences": count,
            "parameters": trained.effort["parameters"],
            "steps": trained.progress.step,
        }
        write_network(directory, self.encoder, trained, result)
        return result
