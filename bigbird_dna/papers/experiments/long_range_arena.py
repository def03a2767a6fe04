"""Long-Range Arena: a classifier of long sequences for each task, attention mechanism and seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config.long_range import LongRangeConfig
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.run import Config
from bigbird_dna.config.training import TrainingConfig
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import atomic_directory, into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError
from bigbird_dna.model.heads import Classifier
from bigbird_dna.papers.experiments.long_range_sequences import (
    OFFSET,
    SPLITS,
    TOKENS,
    Sequences,
    baseline,
    read_listops,
    read_pathfinder,
    write_listops,
    write_pathfinder,
)
from bigbird_dna.papers.experiments.shared import Trainings
from bigbird_dna.reporting.result import result_page
from bigbird_dna.training.distributed import World
from bigbird_dna.training.draws import Epochs
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.task import Task, TrainingResult, train, write_network

COLUMNS = [
    "task",
    "attention",
    "seeds",
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "seed_spread",
    "baseline",
    "baseline_name",
    "most_frequent",
    "test_sequences",
    "parameters",
    "steps",
    "source",
]
PUBLISHED = {"Transformer": 0.5787, "BigBird": 0.5759, "Combiner-Fixed": 0.5834}
SOURCE = "published (Ren et al. 2021): mean of all five tasks, not comparable with a single task"

EVALUATED_SEQUENCES = 2_000
"""Most validation sequences evaluated during training."""
TOKENS_AT_ONCE = 1 << 15


def run(config: Config, trainings: Trainings, output: Path) -> list[str]:
    """Make the data of each task, train its classifiers, and compare them; without the section, sizes are
    those published."""
    section = config.long_range_arena or LongRangeConfig()
    results = []
    for task in section.tasks:
        name = f"{task}-data"
        data, seed = trainings.model(name), section.data_seed
        sizes = getattr(section, task).model_dump(exclude={"training"})
        work = partial(write_data, section, task)
        trainings.run(name, Config(), "long-range", work, seed=seed, sizes=sizes)
        done = [data.parent / "finished.json"]
        for attention in section.attentions:
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
    table = accuracy_table(results)
    page = result_page(
        "Long-Range Arena",
        table,
        show=lambda value: f"{value:.{0 if value.is_integer() else 3}f}",
    )
    with into_directory(output) as directory:
        write_tsv(directory / "long_range.tsv", table)
        (directory / "long_range.md").write_text(page, encoding="utf-8")
    return [
        f"{row['task']} with {row['attention']}: accuracy {row['accuracy']:.4f}, "
        f"{row['baseline_name']} {row['baseline']:.4f}"
        for row in table[table["source"] == "here"].to_dict("records")
    ]


def write_data(
    section: LongRangeConfig, task: str, output: Path, checkpoints: Path, world: World
) -> dict[str, Any]:
    """Write the generated sequences of a task into a directory."""
    if world.is_first:
        with atomic_directory(output) as directory:
            if task == "listops":
                write_listops(directory, section.listops, section.data_seed)
            else:
                write_pathfinder(directory, section.pathfinder, section.data_seed)
    return {}


def accuracy_table(results: list[dict[str, Any]]) -> pd.DataFrame:
    """Return means over seeds by task and decreasing accuracy, followed by published averages; `DataError` for
    results of other data, or of other trainings."""
    rows = []
    frame = pd.DataFrame(results)
    for (task, attention), group in frame.groupby(["task", "attention"]):
        for key in ("data", "test_sequences", "parameters", "steps"):
            if group[key].map(str).nunique() > 1:
                raise DataError(
                    f"{task} with {attention}: seeds differ in {key}: run its arms again"
                )
        first, accuracy = group.iloc[0], group["accuracy"]
        # The interval is over test sequences, which are the same for all seeds: more seeds do not reduce it.
        shift = accuracy.mean() - first["accuracy"]
        rows.append(
            {
                **first,
                "seeds": len(group),
                "accuracy": accuracy.mean(),
                "accuracy_low": max(0.0, first["accuracy_low"] + shift),
                "accuracy_high": min(1.0, first["accuracy_high"] + shift),
                "seed_spread": accuracy.max() - accuracy.min(),
                "source": "here",
            }
        )
    rows.sort(key=lambda row: (row["task"], -row["accuracy"], row["attention"]))
    for name, value in PUBLISHED.items():
        rows.append(
            {"task": "all five", "attention": name, "accuracy": value, "source": SOURCE}
        )
    table = pd.DataFrame(rows, columns=COLUMNS)
    counts = ["seeds", "test_sequences", "parameters", "steps"]
    return table.astype(dict.fromkeys(counts, np.float64)).fillna({"baseline_name": ""})


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

    @cached_property
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
        longest = max(sequences.longest for sequences in self.data.values()) + 1
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

    @cached_property
    def epochs(self) -> Epochs:
        """A new order in each epoch."""
        return Epochs(self.config.seed, np.arange(len(self.data["train"])))

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

    def evaluate(self, network: nn.Module, world: World) -> dict[str, float]:
        valid = self.data["valid"]
        rows = range(min(EVALUATED_SEQUENCES, len(valid)))
        loss, right = 0.0, 0
        for batch, logits in _predicted(network, valid, rows):
            loss += float(F.cross_entropy(logits, batch["targets"], reduction="sum"))
            right += int((logits.argmax(1) == batch["targets"]).sum())
        return {"loss": loss / len(rows), "accuracy": right / len(rows)}

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
        return result
