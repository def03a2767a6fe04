"""Data of Long-Range Arena: sequences of small integers with one class each.

ListOps (Nangia and Bowman 2018): nested operations on digits, written as a list; `[MAX 4 3 [MIN 2 3 ] 1 0
[MED 1 5 8 9 2 ] ]` has the value 5. Closing brackets are tokens; published preparations drop them, and with
them the ends of lists. No expression is duplicated, within a split or between splits.

Pathfinder (Linsley et al. 2018; Pathfinder-32): whether a dashed path connects two circles. Images are drawn
by a new procedure: an image has two long paths of equal numbers of dashes, and some short ones. The circles
are at both ends of a long path, or at one end of each. Ends are chosen such that the distances of both
classes differ by less than a quarter of a pixel. Neither the drawing nor the distance of the circles
therefore predicts the class, which a baseline confirms.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import md5
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor

from bigbird_dna.config.long_range import ListOpsConfig, PathfinderConfig
from bigbird_dna.console import progress
from bigbird_dna.disk.atomic import reading
from bigbird_dna.errors import DataError
from bigbird_dna.model.batching import pad
from bigbird_dna.papers.experiments.shared import read_arrays

Bytes = npt.NDArray[np.uint8]

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

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def longest(self) -> int:
        return max(map(len, self.rows))

    def batch(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """Return `ids` (B, L) with the first token prepended, right-padded, and `lengths`, `targets` (B,)."""
        rows = [
            np.append(FIRST, self.rows[number].astype(np.int64) + OFFSET)
            for number in numbers
        ]
        ids, lengths = pad(rows, PAD)
        targets = torch.from_numpy(self.targets[np.asarray(numbers, np.intp)])
        return {"ids": ids, "lengths": lengths, "targets": targets}


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
HEADER = ["Source", "Target"]
OPERATOR_SHARE = 0.25  # fraction of operators among arguments, as published
TRIES = 20_000  # per expression: the configured sizes may be hard to meet


class _TooLong(Exception):
    pass


def generate(config: ListOpsConfig, seed: int) -> Iterator[tuple[str, str, int]]:
    """Yield distinct expressions of all splits as (split, tokens separated by spaces, value), determined by
    seed, split and number; `DataError` if there are too few."""
    seen: set[bytes] = set()  # digests, as expressions may be long
    # The test split comes first, so that it does not depend on the number of training examples.
    for split in reversed(SPLITS):
        for number in range(getattr(config.examples, split)):
            source = random.Random(f"{seed} {split} {number}")
            for _ in range(TRIES):
                tokens: list[str] = []
                try:
                    value = _grow(source, config, 1, tokens)
                except _TooLong:
                    continue
                text = " ".join(tokens)
                key = md5(text.encode(), usedforsecurity=False).digest()
                if len(tokens) >= config.shortest and key not in seen:
                    break
            else:
                raise DataError(
                    f"listops: no new expression found in {TRIES:,} tries after {len(seen):,} expressions; "
                    "allow longer expressions, or request fewer"
                )
            seen.add(key)
            yield split, text, value


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
    values = [
        _grow(source, config, depth + 1, tokens)
        for _ in range(source.randint(2, config.arguments))
    ]
    tokens.append(END)
    if len(tokens) > config.longest:
        raise _TooLong
    return OPERATORS[operator](values)


def write_listops(directory: Path, config: ListOpsConfig, seed: int) -> None:
    """Write `train.tsv.gz`, `valid.tsv.gz` and `test.tsv.gz`, with Source and Target, into a directory."""
    count = sum(getattr(config.examples, split) for split in SPLITS)
    examples = progress(generate(config, seed), "listops", count, "expressions")
    table = pd.DataFrame(examples, columns=["split", *HEADER])
    for split, rows in table.groupby("split"):
        path = directory / f"{split}.tsv.gz"
        rows[HEADER].to_csv(path, sep="\t", index=False, lineterminator="\n")


def read_listops(path: Path) -> Sequences:
    """Read a table of `write_listops`, or a published one, whose parentheses are dropped; `DataError` names the
    file."""
    numbers = {token: number for number, token in enumerate(TOKENS)}
    with reading(path, "not a table of ListOps", ValueError, LookupError, EOFError):
        table = pd.read_csv(path, sep="\t", dtype={"Target": np.int64})
        rows = [
            np.array([numbers[token] for token in source.split()], np.uint8)
            for source in table["Source"].str.replace(r"[()]", " ", regex=True)
        ]
        targets = table["Target"].to_numpy()
    if not rows or not ((targets >= 0) & (targets < 10)).all():
        raise DataError(f"{path}: expected expressions with values from 0 to 9")
    return Sequences(rows, targets, np.array([row[0] for row in rows]))


# Pathfinder: N images, S pixels per side.

DASH, GAP = 2.2, 1.6  # pixels
SCALES = (0.85, 1.2)  # of both, to vary the distance of connected circles
APART = 2.6  # least distance in pixels between paths, and between non-adjacent dashes
TURN = 0.55  # radians, largest change of direction between dashes
RADIUS, MARGIN = 1.7, 2.2  # pixels: of circles, and between paths and the border
ALIKE = 0.25  # pixels: largest difference between the circle distances of both classes
MOST_TRIES = 20_000  # for two paths
SECOND_TRIES = 200  # for a second path to a first one
SCALE_TRIES = 2_000  # per scale: the largest ones may leave hardly any room

Point = tuple[float, float]
Dashes = list[tuple[Point, Point]]
"""The dashes of a path, from one end to the other."""


class Drawing(NamedTuple):
    """Dashes of all paths, the two circles, and whether a path connects them."""

    dashes: Dashes
    circles: tuple[Point, Point]
    joined: bool


def draw(source: random.Random, config: PathfinderConfig) -> Drawing:
    """Return a drawing; `DataError` if two paths of this length hardly fit into the image."""
    size, dashes = config.size, config.dashes
    joined, scale = source.random() < 0.5, source.uniform(*SCALES)
    first: Dashes | None = None
    for number in range(MOST_TRIES):
        if number and number % SCALE_TRIES == 0:
            scale = source.uniform(*SCALES)
        if first is None or number % SECOND_TRIES == 0:
            first = _path(source, size, dashes, scale, [])
        if first is None:
            continue
        second = _path(source, size, dashes, scale, [first])
        circles = second and _circles(first, second, joined)
        if not second or not circles:
            continue
        paths = [first, second]
        for _ in range(source.randint(0, config.distractors)):
            for _ in range(20):  # otherwise there is no room left
                path = _path(source, size, max(2, dashes // 3), scale, paths)
                if path is not None:
                    paths.append(path)
                    break
        return Drawing([dash for path in paths for dash in path], circles, joined)
    raise DataError(
        f"pathfinder: two paths of {dashes} dashes do not fit into {size} pixels; use fewer dashes"
    )


def _circles(first: Dashes, second: Dashes, joined: bool) -> tuple[Point, Point] | None:
    """Return the marked ends; None if their distance would predict the class."""
    ends, others = ((path[0][0], path[-1][1]) for path in (first, second))
    apart = math.dist(*ends)
    nearest = min(product(ends, others), key=lambda pair: abs(math.dist(*pair) - apart))
    distance = math.dist(*nearest)
    if abs(distance - apart) >= ALIKE or min(apart, distance) < 3 * RADIUS:
        return None
    return ends if joined else nearest


def _path(
    source: random.Random, size: int, dashes: int, scale: float, others: list[Dashes]
) -> Dashes | None:
    """Return a path with the required distances from border, itself and others; None if it gets stuck."""
    low, high = MARGIN, size - 1 - MARGIN
    x, y = source.uniform(low, high), source.uniform(low, high)
    angle = source.uniform(-math.pi, math.pi)
    path: Dashes = []
    taken = [point for other in others for dash in other for point in _points(dash)]
    while len(path) < dashes:
        before = [point for dash in path[:-1] for point in _points(dash)]
        for _ in range(6):
            heading = angle + source.uniform(-TURN, TURN)
            across, down = math.cos(heading), math.sin(heading)
            end = (x + scale * DASH * across, y + scale * DASH * down)
            inside = all(low <= value <= high for value in end)
            if inside and _is_apart(((x, y), end), taken + before):
                break
        else:
            return None
        path.append(((x, y), end))
        angle = heading
        x, y = end[0] + scale * GAP * across, end[1] + scale * GAP * down
    return path


def _points(dash: tuple[Point, Point]) -> tuple[Point, Point, Point]:
    (a, b), (c, d) = dash
    return (a, b), ((a + c) / 2, (b + d) / 2), (c, d)


def _is_apart(dash: tuple[Point, Point], others: list[Point]) -> bool:
    return all(
        (x - a) ** 2 + (y - b) ** 2 >= APART**2
        for x, y in _points(dash)
        for a, b in others
    )


def rendered(drawing: Drawing, size: int) -> Bytes:
    """Return the image, (S, S): white on black, with soft edges."""
    y, x = np.mgrid[:size, :size].astype(np.float64)
    shade = np.zeros((size, size))
    for (a, b), (c, d) in drawing.dashes:
        length = (c - a) ** 2 + (d - b) ** 2
        along = np.clip(((x - a) * (c - a) + (y - b) * (d - b)) / length, 0, 1)
        distance = np.hypot(x - a - along * (c - a), y - b - along * (d - b))
        shade = np.maximum(shade, np.clip(1.1 - distance, 0, 1))
    for a, b in drawing.circles:
        shade = np.maximum(shade, np.clip(RADIUS + 0.5 - np.hypot(x - a, y - b), 0, 1))
    return np.rint(255 * shade).astype(np.uint8)


def drawings(config: PathfinderConfig, split: str, seed: int) -> Iterator[Drawing]:
    """Yield the drawings of a split, each determined by seed, split and number."""
    for number in range(getattr(config.examples, split)):
        yield draw(random.Random(f"{seed} {split} {number}"), config)


def write_pathfinder(directory: Path, config: PathfinderConfig, seed: int) -> None:
    """Write `train.npz`, `valid.npz` and `test.npz`: `images` (N, S, S) uint8, `labels` (N,) uint8 (1: a path
    connects the circles), and `distances` (N,) float32 of the circles in pixels."""
    for split in SPLITS:
        count = getattr(config.examples, split)
        images = np.empty((count, config.size, config.size), np.uint8)
        labels, distances = np.empty(count, np.uint8), np.empty(count, np.float32)
        images_to_draw = progress(drawings(config, split, seed), split, count, "images")
        for number, drawing in enumerate(images_to_draw):
            images[number] = rendered(drawing, config.size)
            labels[number] = drawing.joined
            distances[number] = math.dist(*drawing.circles)
        np.savez_compressed(
            directory / f"{split}.npz",
            images=images,
            labels=labels,
            distances=distances,
        )


def read_pathfinder(path: Path) -> Sequences:
    """Read a file of `write_pathfinder`, or of the same format, as pixels in row-major order; `DataError`
    names the file."""
    images, labels, distances = read_arrays(path, "images", "labels", "distances")
    count = len(labels)
    if not count or images.shape[:1] != (count,) or distances.shape != (count,):
        raise DataError(f"{path}: labels, distances and images must have equal numbers")
    if images.ndim != 3 or images.dtype != np.uint8 or labels.max() > 1:
        raise DataError(f"{path}: expected images of uint8, with labels 0 and 1")
    rows = list(images.reshape(count, -1))
    return Sequences(rows, labels.astype(np.int64), distances)


def baseline(train: Sequences, test: Sequences) -> float:
    """Return the accuracy on test sequences of what the feature `giveaway` tells without them: the most frequent
    class of each value, or one threshold of values with many digits."""
    depth = 1 if train.giveaway.dtype.kind == "f" else None
    tree = DecisionTreeClassifier(max_depth=depth, random_state=0)
    tree.fit(train.giveaway[:, None], train.targets)
    return float(tree.score(test.giveaway[:, None], test.targets))
