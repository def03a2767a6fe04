"""Long-Range Arena: a classifier of long sequences for each task, attention mechanism and seed.

ListOps (Nangia and Bowman 2018): nested operations on digits, written as a list; `[MAX 4 3 [MIN 2 3 ] 1 0
[MED 1 5 8 9 2 ] ]` has the value 5. No expression is duplicated, within a split or between splits.

Pathfinder (Linsley et al. 2018; Pathfinder-32): whether a dashed path connects two circles. Images are drawn
by a new procedure: an image has two long paths of equal numbers of dashes, and some short ones. The circles
are at both ends of a long path, or at one end of each. Ends are chosen such that the distances of both
classes differ by less than a quarter of a pixel. Neither the drawing nor the distance of the circles
therefore predicts the class, which a baseline confirms.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.spatial.distance import cdist
from scipy.stats import binomtest
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config.long_range import (
    ListOpsConfig,
    LongRangeConfig,
    PathfinderConfig,
)
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.run import Config
from bigbird_dna.config.training import TrainingConfig
from bigbird_dna.console import progress
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import atomic_directory, into_directory
from bigbird_dna.errors import DataError
from bigbird_dna.model.batching import pad
from bigbird_dna.model.heads import Classifier
from bigbird_dna.papers.experiments.shared import Trainings, read_arrays
from bigbird_dna.reporting.result import write_result
from bigbird_dna.training.distributed import World
from bigbird_dna.training.draws import Epochs
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.task import Task, TrainingResult, train, write_network

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

# Axes: N sequences, B batch, L tokens.

SPLITS = ("train", "valid", "test")
PAD, FIRST, OFFSET = 0, 1, 2
"""Ids of padding and of the first token, and the offset added to symbols."""


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


# Data


@dataclass(frozen=True)
class Sequences:
    """Symbols and class of each sequence."""

    rows: Sequence[Bytes]
    targets: npt.NDArray[np.int64]  # (N,)
    giveaway: npt.NDArray[Any]  # (N,) feature of the baselines, which read no sequence

    def batch(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Return `ids` (B, L) with the first token prepended, right-padded, and `lengths`, `targets` (B,)."""
        rows = []
        for index in indices:
            symbols = self.rows[index].astype(np.int64)
            rows.append(np.append(FIRST, symbols + OFFSET))
        ids, lengths = pad(rows, PAD)
        targets = torch.from_numpy(self.targets[np.asarray(indices, np.intp)])
        return {"ids": ids, "lengths": lengths, "targets": targets}


Example = tuple[str, Bytes, int, float]
"""Split, symbols, class, and the feature of the baseline."""


def write_sequences(directory: Path, examples: Iterable[Example]) -> None:
    """Write `train.npz`, `valid.npz` and `test.npz` with the arrays `symbols` of all N sequences one after the
    other, `lengths` (N,), `targets` (N,) and `giveaway` (N,)."""
    columns = ["split", "symbols", "target", "giveaway"]
    table = pd.DataFrame(examples, columns=columns)
    for split, rows in table.groupby("split"):
        np.savez_compressed(
            directory / f"{split}.npz",
            symbols=np.concatenate([*rows["symbols"]]),
            lengths=rows["symbols"].map(len),
            targets=rows["target"],
            giveaway=rows["giveaway"],
        )


def read_sequences(path: Path) -> Sequences:
    """Read a file of `write_sequences`; `DataError` names a damaged file."""
    names = ("symbols", "lengths", "targets", "giveaway")
    symbols, lengths, targets, giveaway = read_arrays(path, *names)
    return Sequences(np.split(symbols, lengths.cumsum()[:-1]), targets, giveaway)


# ListOps

OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MAX": max,
    "[MIN": min,
    # Of an even number of values, the mean of the central two, rounded down.
    "[MED": lambda values: int(median(values)),
    "[SM": lambda values: sum(values) % 10,
}
END = "]"
TOKENS = (*OPERATORS, END, *map(str, range(10)))
OPERATOR_SHARE = 0.25  # fraction of operators among arguments, as published
TRIES = 20_000  # per expression: the configured sizes may be hard to meet


class _TooLong(Exception):
    pass


def generate_listops(config: ListOpsConfig, seed: int) -> Iterator[Example]:
    """Yield distinct expressions of all splits, determined by seed, split and number, with their first operator;
    `DataError` if there are too few."""
    seen: set[int] = set()  # hashes, as expressions may be long
    # The test split comes first, so that it does not depend on the number of training examples.
    for split in reversed(SPLITS):
        count = getattr(config.examples, split)
        for number in progress(range(count), split, count, "expressions"):
            source = random.Random(f"{seed} {split} {number}")
            for _ in range(TRIES):
                tokens: list[str] = []
                try:
                    value = _grow(source, config, 1, tokens)
                except _TooLong:
                    continue
                key = hash(tuple(tokens))
                if len(tokens) >= config.shortest and key not in seen:
                    break
            else:
                raise DataError(
                    f"listops: no new expression found in {TRIES:,} tries after {len(seen):,} expressions; "
                    "allow longer expressions, or request fewer"
                )
            seen.add(key)
            symbols = np.array([TOKENS.index(token) for token in tokens], np.uint8)
            yield split, symbols, value, symbols[0]


def _grow(
    source: random.Random, config: ListOpsConfig, depth: int, tokens: list[str]
) -> int:
    """Append an expression to `tokens`, and return its value."""
    if len(tokens) > config.longest:
        raise _TooLong
    if depth > 1 and (depth >= config.depth or source.random() >= OPERATOR_SHARE):
        value = source.randrange(10)
        tokens.append(str(value))
        return value
    operator = source.choice([*OPERATORS])
    tokens.append(operator)
    values = []
    for _ in range(source.randint(2, config.arguments)):
        values.append(_grow(source, config, depth + 1, tokens))
    tokens.append(END)
    if len(tokens) > config.longest:
        raise _TooLong
    return OPERATORS[operator](values)


# Pathfinder: N images or paths, S pixels per side, D dashes, P points.

DASH, GAP = 2.2, 1.6  # pixels
SCALES = (0.85, 1.2)  # of both, to vary the distance of connected circles
APART = 2.6  # least distance in pixels between paths, and between non-adjacent dashes
TURN = 0.55  # radians, largest change of direction between dashes
RADIUS, MARGIN = 1.7, 2.2  # pixels: of circles, and between paths and the border
ALIKE = 0.25  # pixels: largest difference between the circle distances of both classes
DASH_POINTS = 5
CANDIDATES, ROUNDS = 64, 500


def draw_paths(
    rng: np.random.Generator, count: int, dashes: int, scale: float, size: int
) -> Floats:
    """Return those of `count` random paths that stay apart from the border and from themselves.

    A path is a sequence of points along its dashes, from end to end: (N, P, 2), in pixels.
    """
    turns = rng.uniform(-TURN, TURN, (count, dashes))
    turns[:, 0] = rng.uniform(-np.pi, np.pi, count)
    headings = turns.cumsum(axis=1)
    steps = scale * np.stack([np.cos(headings), np.sin(headings)], axis=2)  # (N, D, 2)
    starts = rng.uniform(0, size, (count, 1, 2))
    starts = starts + (DASH + GAP) * (steps.cumsum(axis=1) - steps)
    along = np.linspace(0, DASH, DASH_POINTS)[:, None]
    paths = starts[:, :, None] + along * steps[:, :, None]  # (N, D, points, 2)
    paths = paths.reshape(count, -1, 2)
    inside = (paths >= MARGIN) & (paths <= size - 1 - MARGIN)
    paths = paths[inside.all(axis=(1, 2))]

    dash = np.arange(dashes).repeat(DASH_POINTS)
    adjacent = abs(dash[:, None] - dash) <= 1
    apart = [(adjacent | (cdist(path, path) >= APART)).all() for path in paths]
    return paths[np.array(apart, bool)]


def draw_image(
    rng: np.random.Generator, config: PathfinderConfig
) -> tuple[Bytes, bool, float]:
    """Return an image (S, S), whether a path connects its circles, and their distance in pixels.

    Lines are white on black, with soft edges. `DataError` if two paths of this length hardly fit into the
    image.
    """
    connected = rng.random() < 0.5
    for _ in range(ROUNDS):
        scale = rng.uniform(*SCALES)
        long_paths = draw_paths(rng, CANDIDATES, config.dashes, scale, config.size)
        for first, second in combinations(long_paths, 2):
            ends, others = first[[0, -1]], second[[0, -1]]
            length = np.linalg.norm(ends[1] - ends[0])
            between = cdist(ends, others)
            i, j = np.unravel_index(abs(between - length).argmin(), between.shape)
            if (
                abs(between[i, j] - length) >= ALIKE
                or min(between[i, j], length) < 3 * RADIUS
                or cdist(first, second).min() < APART
            ):
                continue
            circles = ends if connected else np.stack([ends[i], others[j]])
            points = np.concatenate([first, second])
            left = rng.integers(config.distractors + 1)
            dashes = max(2, config.dashes // 3)
            for path in draw_paths(rng, CANDIDATES, dashes, scale, config.size):
                if left > 0 and cdist(path, points).min() >= APART:
                    points = np.concatenate([points, path])
                    left -= 1
            pixels = np.indices((config.size, config.size)).reshape(2, -1).T
            lines = 1.1 - cdist(pixels, points).min(axis=1)
            marks = RADIUS + 0.5 - cdist(pixels, circles).min(axis=1)
            shade = np.clip(np.maximum(lines, marks), 0, 1)
            image = np.rint(255 * shade).astype(np.uint8)
            distance = float(np.linalg.norm(circles[1] - circles[0]))
            return image.reshape(config.size, config.size), connected, distance
    raise DataError(
        f"pathfinder: two paths of {config.dashes} dashes do not fit into {config.size} pixels; use fewer dashes"
    )


def generate_pathfinder(config: PathfinderConfig, seed: int) -> Iterator[Example]:
    """Yield images of all splits as pixels in row-major order, determined by seed, split and number, with the
    class 1 if a path connects the circles, and their distance."""
    for number, split in enumerate(SPLITS):
        count = getattr(config.examples, split)
        for image_number in progress(range(count), split, count, "images"):
            rng = np.random.default_rng((seed, number, image_number))
            image, connected, distance = draw_image(rng, config)
            yield split, image.ravel(), int(connected), distance


# Training


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
