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
from hashlib import blake2b
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bigbird_dna.config.long_range import (
    MOST_EXAMPLES,
    MOST_SIDE,
    ListOpsConfig,
    PathfinderConfig,
)
from bigbird_dna.console import progress
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.disk.foreign import open_npz
from bigbird_dna.disk.outputs import open_text
from bigbird_dna.errors import DataError
from bigbird_dna.genome.fields import quoted
from bigbird_dna.model.batching import pad

# Axes: N sequences, B batch, L tokens.

SPLITS = ("train", "valid", "test")
PAD, FIRST, OFFSET = 0, 1, 2
"""Ids of padding and of the first token, and the offset added to symbols."""


@dataclass(frozen=True)
class Sequences:
    """Symbols and class of each sequence."""

    rows: Sequence[npt.NDArray[np.uint8]]
    targets: npt.NDArray[np.int64]  # (N,)
    giveaway: npt.NDArray[
        Any
    ]  # (N,) feature used by the baselines, which do not read the sequence

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
    "[MED": lambda values: int(
        median(values)
    ),  # even number: the mean of the central two, rounded down
    "[SM": lambda values: sum(values) % 10,
}
END = "]"
TOKENS = (*OPERATORS, END, *map(str, range(10)))
DIGITS = 10
HEADER = ("Source", "Target")
_NAMES = tuple(OPERATORS)
_OPERATOR_SHARE = 0.25  # fraction of operators among arguments, as published
_TRIES = 20_000  # per expression: the configured sizes may be hard to meet


class _TooLong(Exception):
    pass


def evaluate(tokens: list[str]) -> int:
    """Return the value of an expression, including brackets; `ValueError` if it is not complete."""
    stack: list[tuple[str, list[int]]] = [("", [])]
    for token in tokens:
        if token in OPERATORS:
            stack.append((token, []))
        elif token == END:
            operator, values = stack.pop()
            if not stack or not values:
                raise ValueError("unmatched closing bracket, or list without arguments")
            stack[-1][1].append(OPERATORS[operator](values))
        elif token in TOKENS:
            stack[-1][1].append(int(token))
        else:
            raise ValueError(f"{quoted(token)}: must be one of {', '.join(TOKENS)}")
    if len(stack) > 1 or len(stack[0][1]) != 1:
        raise ValueError("not a single complete expression")
    return stack[0][1][0]


def generate(config: ListOpsConfig, seed: int) -> Iterator[tuple[str, str, int]]:
    """Yield distinct expressions of all splits as (split, tokens separated by spaces, value), determined by
    seed, split and number; `DataError` if there are too few."""
    seen: set[bytes] = set()
    # The test split comes first, so that it does not depend on the number of training examples.
    for split in reversed(SPLITS):
        for number in range(getattr(config.examples, split)):
            source = random.Random(f"{seed} {split} {number}")
            for _ in range(_TRIES):
                tokens: list[str] = []
                try:
                    value = _grow(source, config, 1, tokens)
                except _TooLong:
                    continue
                text = " ".join(tokens)
                key = blake2b(text.encode(), digest_size=16).digest()
                if len(tokens) >= config.shortest and key not in seen:
                    break
            else:
                raise DataError(
                    f"listops: no new expression found in {_TRIES:,} tries after {len(seen):,} expressions; "
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
    if depth > 1 and (depth >= config.depth or source.random() >= _OPERATOR_SHARE):
        value = source.randrange(DIGITS)
        tokens.append(str(value))
        return value
    operator = source.choice(_NAMES)
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
    examples = progress(
        generate(config, seed), "writing expressions", count, "expressions"
    )
    row = next(examples, None)
    for split in reversed(SPLITS):
        with open_text(directory / f"{split}.tsv.gz") as stream:
            stream.write("\t".join(HEADER) + "\n")
            while row is not None and row[0] == split:
                stream.write(f"{row[1]}\t{row[2]}\n")
                row = next(examples, None)


def read_listops(path: Path) -> Sequences:
    """Read a table of expressions and values, plain or gzip, with or without parentheses; `DataError` names
    file, line and value."""
    numbers = {token: number for number, token in enumerate(TOKENS)}
    found: list[npt.NDArray[np.uint8]] = []
    targets: list[int] = []
    for line, text in read_lines(path):
        columns = text.split("\t")
        if line == 1 and tuple(columns) != HEADER:
            raise DataError(
                f"{path}: line 1: {quoted(text)} is not the header {' '.join(HEADER)}"
            )
        if line == 1:
            continue
        if len(columns) != len(HEADER) or columns[1] not in TOKENS[-DIGITS:]:
            raise DataError(
                f"{path}: line {line}: {quoted(text)} is not an expression, a tab and a digit"
            )
        tokens = [
            token for token in columns[0].split(" ") if token not in ("", "(", ")")
        ]
        try:
            value = evaluate(tokens)
        except ValueError as error:
            raise DataError(f"{path}: line {line}: {error}") from None
        if value != int(columns[1]):
            raise DataError(
                f"{path}: line {line}: the value is {value}, not {columns[1]}"
            )
        found.append(np.array([numbers[token] for token in tokens], np.uint8))
        targets.append(value)
    if not found:
        raise DataError(f"{path}: contains no expressions")
    return Sequences(
        found, np.array(targets, np.int64), np.array([row[0] for row in found])
    )


def root_baseline(train: Sequences, test: Sequences) -> float:
    """Return the fraction of test expressions with the most frequent value of their first operator."""
    first, values = train.giveaway, train.targets
    best = {
        one: np.bincount(values[first == one], minlength=DIGITS).argmax()
        for one in np.unique(first)
    }
    guess = np.array([best.get(one, 0) for one in test.giveaway])
    return float((guess == test.targets).mean())


# Pathfinder


# Axes: N images, S pixels per side.

CLASSES = 2
_DASH, _GAP = 2.2, 1.6  # pixels
_SCALES = (
    0.85,
    1.2,
)  # scale of both per drawing, to vary the distance of connected circles
_APART = 2.6  # least distance in pixels between paths, and between non-adjacent dashes of a path
_TURN = 0.55  # radians, largest change of direction between dashes
_RADIUS, _MARGIN = (
    1.7,
    2.2,
)  # pixels: radius of circles, distance of paths from the border
_ALIKE = 0.25  # pixels: largest difference between the circle distances of both classes
_MOST_TRIES, _SECOND_TRIES = (
    20_000,
    200,
)  # tries of paths in total, and of a second path for a first path
_SCALE_TRIES = 2_000  # tries per scale: the largest scales may leave hardly any room
_MOST_PIXELS = (
    MOST_EXAMPLES * MOST_SIDE**2
)  # per file; the most that a configuration can request

Point = tuple[float, float]
Dashes = list[tuple[Point, Point]]  # dashes, from one end to the other


class Drawing(NamedTuple):
    """Dashes of all paths, the two circles, and whether a path connects them."""

    dashes: Dashes
    circles: tuple[Point, Point]
    joined: bool


def draw(source: random.Random, config: PathfinderConfig) -> Drawing:
    """Return a drawing; `DataError` if two paths of this length hardly fit into the image."""
    joined = source.random() < 0.5
    short, scale = max(2, config.dashes // 3), source.uniform(*_SCALES)
    one: Dashes | None = None
    for number in range(_MOST_TRIES):
        if number and number % _SCALE_TRIES == 0:
            scale = source.uniform(*_SCALES)
        if one is None or number % _SECOND_TRIES == 0:
            one = _path(source, config.size, config.dashes, scale, [])
        other = (
            None
            if one is None
            else _path(source, config.size, config.dashes, scale, [one])
        )
        circles = None if one is None or other is None else _circles(one, other, joined)
        if one is None or other is None or circles is None:
            continue
        paths = [one, other]
        for _ in range(source.randint(0, config.distractors)):
            tries = (_path(source, config.size, short, scale, paths) for _ in range(20))
            path = next((one for one in tries if one is not None), None)
            if path is not None:  # otherwise there is no room left
                paths.append(path)
        return Drawing([dash for path in paths for dash in path], circles, joined)
    raise DataError(
        f"pathfinder: two paths of {config.dashes} dashes do not fit into {config.size} pixels; use fewer "
        "dashes"
    )


def _circles(one: Dashes, other: Dashes, joined: bool) -> tuple[Point, Point] | None:
    """Return the marked ends; None if their distance would predict the class."""
    ends, others = ((path[0][0], path[-1][1]) for path in (one, other))
    apart = math.dist(*ends)
    nearest = min(product(ends, others), key=lambda pair: abs(math.dist(*pair) - apart))
    if (
        abs(math.dist(*nearest) - apart) >= _ALIKE
        or min(apart, math.dist(*nearest)) < 3 * _RADIUS
    ):
        return None
    return ends if joined else nearest


def _path(
    source: random.Random, size: int, dashes: int, scale: float, others: list[Dashes]
) -> Dashes | None:
    """Return a path with the required distances from border, itself and others; None if it gets stuck."""
    low, high = _MARGIN, size - 1 - _MARGIN
    x, y = source.uniform(low, high), source.uniform(low, high)
    angle = source.uniform(-math.pi, math.pi)
    path: Dashes = []
    taken = [point for other in others for dash in other for point in _points(dash)]
    while len(path) < dashes:
        for _ in range(6):
            turned = angle + source.uniform(-_TURN, _TURN)
            end = (
                x + scale * _DASH * math.cos(turned),
                y + scale * _DASH * math.sin(turned),
            )
            dash = ((x, y), end)
            before = [point for earlier in path[:-1] for point in _points(earlier)]
            inside = all(low <= value <= high for value in end)
            if inside and _is_apart(dash, taken) and _is_apart(dash, before):
                break
        else:
            return None
        path.append(dash)
        angle = turned
        x, y = (
            end[0] + scale * _GAP * math.cos(angle),
            end[1] + scale * _GAP * math.sin(angle),
        )
    return path


def _points(dash: tuple[Point, Point]) -> tuple[Point, Point, Point]:
    (a, b), (c, d) = dash
    return (a, b), ((a + c) / 2, (b + d) / 2), (c, d)


def _is_apart(dash: tuple[Point, Point], others: list[Point]) -> bool:
    least = _APART**2
    return all(
        (x - a) ** 2 + (y - b) ** 2 >= least
        for x, y in _points(dash)
        for a, b in others
    )


def rendered(drawing: Drawing, size: int) -> npt.NDArray[np.uint8]:
    """Return the image, (S, S): white on black, with soft edges."""
    y, x = np.mgrid[:size, :size].astype(np.float64)
    shade = np.zeros((size, size))
    for (a, b), (c, d) in drawing.dashes:
        length = (c - a) ** 2 + (d - b) ** 2
        along = np.clip(((x - a) * (c - a) + (y - b) * (d - b)) / length, 0, 1)
        distance = np.hypot(x - a - along * (c - a), y - b - along * (d - b))
        shade = np.maximum(shade, np.clip(1.1 - distance, 0, 1))
    for a, b in drawing.circles:
        shade = np.maximum(shade, np.clip(_RADIUS + 0.5 - np.hypot(x - a, y - b), 0, 1))
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
        labels = np.empty(count, np.uint8)
        distances = np.empty(count, np.float32)
        found = progress(
            drawings(config, split, seed), f"drawing {split}", count, "images"
        )
        for number, one in enumerate(found):
            images[number] = rendered(one, config.size)
            labels[number], distances[number] = one.joined, math.dist(*one.circles)
        with (directory / f"{split}.npz").open("wb") as stream:
            np.savez_compressed(
                stream, images=images, labels=labels, distances=distances
            )


def read_pathfinder(path: Path) -> Sequences:
    """Read a file of `write_pathfinder`, or of the same format, as pixels in row-major order; `DataError`
    names the file."""
    wanted = {
        "images": (3, np.uint8),
        "labels": (1, np.uint8),
        "distances": (1, np.float32),
    }
    with reading(path, "not readable as .npz", Exception), open_npz(path) as arrays:
        headers = {name: arrays.header(name) for name in wanted if name in arrays.names}
        for name, (axes, kind) in wanted.items():
            if name not in headers:
                raise DataError(f"{path}: no array {name!r}")
            if len(headers[name].shape) != axes or headers[name].dtype != kind:
                raise DataError(
                    f"{path}: {name} must be an array of {axes} axes of {np.dtype(kind).name}"
                )
        count, side, other = headers["images"].shape
        if not count or not 1 <= side <= MOST_SIDE or side != other:
            raise DataError(
                f"{path}: images must be square, up to {MOST_SIDE} pixels; found {headers['images'].shape}"
            )
        if count * side**2 > _MOST_PIXELS:
            raise DataError(
                f"{path}: {count:,} images of {side} × {side} pixels exceed {_MOST_PIXELS:,} pixels"
            )
        if {headers["labels"].shape, headers["distances"].shape} != {(count,)}:
            raise DataError(
                f"{path}: labels, distances and images must have equal numbers"
            )
        images, labels, distances = (arrays.read(name) for name in wanted)
    if labels.max() >= CLASSES or not np.isfinite(distances).all():
        raise DataError(f"{path}: labels must be 0 or 1, and distances finite")
    return Sequences(
        list(images.reshape(count, -1)), labels.astype(np.int64), distances
    )


def distance_baseline(train: Sequences, test: Sequences) -> float:
    """Return the accuracy on test images of the best distance threshold of the training images."""
    order = np.argsort(train.giveaway, kind="stable")
    labels = train.targets[order]
    below = np.concatenate([[0], np.cumsum(labels)])  # connected ones among the nearest
    right = below + (len(labels) - labels.sum()) - (np.arange(len(labels) + 1) - below)
    best = [int(right.argmax()), int(right.argmin())]
    near = right[best[0]] >= len(labels) - right[best[1]]
    place = best[0] if near else best[1]
    values = np.concatenate([[-np.inf], np.sort(train.giveaway)])
    guess = (test.giveaway <= values[place]) == near
    return float((guess == test.targets).mean())
