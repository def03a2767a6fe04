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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations, product
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
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.model.batching import pad
from bigbird_dna.model.heads import Classifier
from bigbird_dna.papers.experiments.shared import Trainings
from bigbird_dna.reporting.result import write_result
from bigbird_dna.training.distributed import World
from bigbird_dna.training.draws import Epochs
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.task import Task, TrainingResult, train, write_network

Bytes = npt.NDArray[np.uint8]
Ids = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float64]

# Axes: N sequences, B batch, L tokens.

SPLITS = ("train", "valid", "test")
PAD, FIRST, OFFSET = 0, 1, 2
"""Ids of padding and of the first token, and the lowest id of other tokens."""
EVALUATED_SEQUENCES = 2_000
"""Most validation sequences evaluated during training."""
TOKENS_AT_ONCE = 1 << 15


def run(config: Config, trainings: Trainings, output: Path) -> list[str]:
    """Train the classifiers of each task, and compare them.

    Without the section `long_range_arena`, sizes are those published. Writes `long_range.tsv`, `.json` and
    `.md` into the directory `output`. `ConfigError` for an encoder that needs DNA, or whose first token cannot
    stand for the sequence.
    """
    section = config.long_range_arena or LongRangeConfig()

    for encoder in section.encoders.values():
        encoder.check_no_bases()
        if encoder.causal and section.pooling == "cls":
            raise ConfigError(
                "long_range_arena.pooling must be mean with encoder.causal: the first token attends to no other"
            )

    results = []
    for task, attention, seed in product(
        section.tasks, section.encoders, section.seeds
    ):
        name = f"{task}-{attention}-seed{seed}"
        work = partial(train_classifier, section, task, attention, seed)
        results.append(trainings.run(name, config, "long-range", work))

    if not trainings.complete():
        return []

    table = accuracy_table(pd.DataFrame(results))
    with into_directory(output) as directory:
        write_result(directory, "long_range", "Long-Range Arena", table)

    return [f"long_range_arena: {len(table):,} rows"]


def train_classifier(
    section: LongRangeConfig,
    task: str,
    attention: str,
    seed: int,
    output: Path,
    checkpoints: Path,
    world: World,
) -> dict[str, Any]:
    """Generate the sequences of a task, and train a classifier; returns its results.

    The sequences depend on `data_seed` only, so all classifiers of a task have the same. `seed` is that of
    the weights and of the order of the sequences.
    """
    if task == "listops":
        examples = generate_listops(section.listops, section.data_seed)
    else:
        examples = generate_pathfinder(section.pathfinder, section.data_seed)

    table = pd.DataFrame(examples, columns=["split", "tokens", "target", "giveaway"])
    splits = dict([*table.groupby("split")])
    classifier = SequenceTask(section, task, attention, seed, splits)

    return train(classifier, output, checkpoints, world)


def accuracy_table(results: pd.DataFrame) -> pd.DataFrame:
    """Return means over seeds, by task and decreasing accuracy, from the results of single trainings.

    Intervals are over test sequences, which are the same for all seeds: more seeds do not reduce them.
    """
    groups = results.groupby(["task", "attention"])
    table = groups.mean().drop(columns="seed")
    table.insert(0, "seeds", groups.size())
    table.insert(4, "seed_spread", groups["accuracy"].agg(np.ptp))
    counts = dict.fromkeys(["test_sequences", "parameters", "steps"], int)
    table = table.astype(counts).reset_index()
    return table.sort_values(["task", "accuracy"], ascending=[True, False])


# Data

Example = tuple[str, Ids, int, float]
"""Split, ids of the tokens, class, and what the baseline knows: the first operator, or the distance of the
circles."""

OPERATORS: list[tuple[str, Callable[[list[int]], int]]] = [
    ("[MAX", max),
    ("[MIN", min),
    # Of an even number of values, the mean of the central two, rounded down.
    ("[MED", lambda values: int(median(values))),
    ("[SM", lambda values: sum(values) % 10),
]
"""Name and function of the tokens from `OFFSET` on."""
END, DIGIT = OFFSET + 4, OFFSET + 5
"""Ids of a closing bracket, and of the digit 0."""
OPERATOR_SHARE = 0.25  # fraction of operators among arguments, as published
TRIES = 20_000  # per expression: the configured sizes may be hard to meet


class _TooLong(Exception):
    pass


def generate_listops(config: ListOpsConfig, seed: int) -> Iterator[Example]:
    """Yield distinct expressions of all splits, with their values and first operators.

    No expression occurs twice, in one split or in two. An expression is determined by seed, split and number,
    unless it was drawn before. `DataError` if there are too few expressions of the configured sizes.
    """
    seen: set[int] = set()  # hashes, as expressions may be long

    # The test split comes first, so that it does not depend on the number of training examples.
    for split in reversed(SPLITS):
        count = getattr(config.examples, split)
        for number in progress(range(count), split, count, "expressions"):
            source = random.Random(f"{seed} {split} {number}")
            for _ in range(TRIES):
                tokens: list[int] = []
                try:
                    value = _grow(source, config, 1, tokens)
                except _TooLong:
                    continue

                key = hash(tuple(tokens))
                fits = config.shortest <= len(tokens) <= config.longest
                if fits and key not in seen:
                    break
            else:
                raise DataError(
                    f"listops: no new expression found in {TRIES:,} tries after {len(seen):,} expressions; "
                    "allow longer expressions, or request fewer"
                )

            seen.add(key)
            yield split, np.array([FIRST, *tokens], np.uint16), value, tokens[0]


def _grow(
    source: random.Random, config: ListOpsConfig, depth: int, tokens: list[int]
) -> int:
    """Append an expression, or a digit, to `tokens`, and return its value; `_TooLong` if there is no room."""
    if len(tokens) > config.longest:
        raise _TooLong

    if depth > 1 and (depth >= config.depth or source.random() >= OPERATOR_SHARE):
        value = source.randrange(10)
        tokens.append(DIGIT + value)
        return value

    operator = source.randrange(len(OPERATORS))
    tokens.append(OFFSET + operator)
    values = []
    for _ in range(source.randint(2, config.arguments)):
        values.append(_grow(source, config, depth + 1, tokens))

    tokens.append(END)

    return OPERATORS[operator][1](values)


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

    A path is a chain of dashes whose direction changes a little from one to the next. `scale` is the factor of
    the lengths of dashes and gaps. A path is returned as points along its dashes, from end to end: (N, P, 2),
    in pixels.
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

    return np.asarray(paths[np.array(apart, bool)])


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
    """Yield images of all splits as pixels in row-major order, with the distance of their circles in pixels.

    The class is 1 if a path connects the circles. An image is determined by seed, split and number.
    """
    for number, split in enumerate(SPLITS):
        count = getattr(config.examples, split)
        for image_number in progress(range(count), split, count, "images"):
            rng = np.random.default_rng((seed, number, image_number))
            image, connected, distance = draw_image(rng, config)
            tokens = np.append(FIRST, OFFSET + image.ravel().astype(np.uint16))
            yield split, tokens, int(connected), distance


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
    data: dict[str, pd.DataFrame]

    @property
    def config(self) -> TrainingConfig:
        training: TrainingConfig = getattr(self.section, self.task).training
        return training.model_copy(update={"seed": self.seed})

    @cached_property
    def encoder(self) -> EncoderConfig:
        vocabulary = DIGIT + 10 if self.task == "listops" else OFFSET + 256
        longest = max(split["tokens"].map(len).max() for split in self.data.values())
        sizes = {"vocabulary": vocabulary, "max_length": max(16, int(longest))}
        return self.section.encoders[self.attention].model_copy(update=sizes)

    def identity(self) -> dict[str, Any]:
        sizes = getattr(self.section, self.task).model_dump(exclude={"training"})
        return {
            "task": self.task,
            "pooling": self.section.pooling,
            "data": [self.section.data_seed, sizes],
        }

    def build(self) -> Classifier:
        classes = 10 if self.task == "listops" else 2
        return Classifier(self.encoder, classes, self.section.pooling)

    @cached_property
    def epochs(self) -> Epochs:
        """A new order in each epoch."""
        return Epochs(self.config.seed, np.arange(len(self.data["train"])))

    def batch(self, step: int, first: int, count: int) -> Batch:
        start = step * self.config.batch_size + first
        return self.examples("train", self.epochs.indices(start, count))

    def examples(self, split: str, indices: Sequence[int]) -> Batch:
        """Return `ids` (B, L), right-padded, and `lengths`, `targets` (B,)."""
        rows = self.data[split].iloc[list(indices)]
        ids, lengths = pad([*rows["tokens"]], PAD)
        targets = torch.tensor(rows["target"].to_numpy())
        return {"ids": ids, "lengths": lengths, "targets": targets}

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"sequences": float(len(batch["targets"]))}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        logits = network(batch["ids"], batch["lengths"]).float()
        loss = F.cross_entropy(logits, batch["targets"], reduction="sum")
        return loss / totals["sequences"]

    def predict(self, network: nn.Module, split: str, limit: int | None) -> Tensor:
        """Return the logits of the first sequences of a split, (N, classes)."""
        device = next(network.parameters()).device
        size = max(1, TOKENS_AT_ONCE // self.encoder.max_length)
        indices = range(len(self.data[split]))[:limit]
        logits = []
        for start in range(0, len(indices), size):
            batch = self.examples(split, indices[start : start + size])
            outputs = network(batch["ids"].to(device), batch["lengths"])
            logits.append(outputs.float().cpu())
        return torch.cat(logits)

    def evaluate(self, network: nn.Module, world: World) -> dict[str, float]:
        logits = self.predict(network, "valid", EVALUATED_SEQUENCES)
        targets = torch.tensor(self.data["valid"]["target"].to_numpy()[: len(logits)])
        return {
            "loss": float(F.cross_entropy(logits, targets)),
            "accuracy": float((logits.argmax(1) == targets).double().mean()),
        }

    def measure(self, trained: TrainingResult[Classifier]) -> np.ndarray:
        """Return the predicted class of each test sequence."""
        return self.predict(trained.network, "test", None).argmax(1).numpy()

    def write(
        self, directory: Path, trained: TrainingResult[Classifier], measured: np.ndarray
    ) -> dict[str, Any]:
        train, test = self.data["train"], self.data["test"]
        right, count = int((measured == test["target"]).sum()), len(test)
        interval = binomtest(right, count).proportion_ci(method="wilson")

        # The most frequent class of each operator, or one threshold of the distance.
        depth = None if self.task == "listops" else 1
        tree = DecisionTreeClassifier(max_depth=depth, random_state=0)
        tree.fit(train[["giveaway"]], train["target"])
        result = {
            "task": self.task,
            "attention": self.attention,
            "seed": self.seed,
            "accuracy": right / count,
            "accuracy_low": float(interval.low),
            "accuracy_high": float(interval.high),
            "baseline": float(tree.score(test[["giveaway"]], test["target"])),
            "test_sequences": count,
            "parameters": trained.effort["parameters"],
            "steps": trained.progress.step,
        }
        write_network(directory, self.encoder, trained, result)

        return result
