"""Data of Long-Range Arena: sequences of small integers with one class each.

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
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.spatial.distance import cdist
from torch import Tensor

from bigbird_dna.config.long_range import ListOpsConfig, PathfinderConfig
from bigbird_dna.console import progress
from bigbird_dna.errors import DataError
from bigbird_dna.model.batching import pad
from bigbird_dna.papers.experiments.shared import read_arrays

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

# Axes: N sequences, B batch, L tokens.

SPLITS = ("train", "valid", "test")
PAD, FIRST, OFFSET = 0, 1, 2
"""Ids of padding and of the first token, and the offset added to symbols."""


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
