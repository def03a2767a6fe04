"""Windows whose classes are known to differ in one thing."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bigbird_dna.baselines.comparators.interface import TextWindows
from tests.baselines.sources import Source

FIRST, SECOND = "TGACGTCA", "GCCACAGG"
LENGTH = 170  # bp
APART = 48  # bp between the starts of the two of a pair: further than any filter and any k-mer reaches


class Task(NamedTuple):
    """Windows with labels, half of them positive."""

    train: TextWindows
    valid: TextWindows
    test: TextWindows


def random_windows(count: int, rng: np.random.Generator, length: int = LENGTH) -> np.ndarray:
    return rng.choice(list("ACGT"), (count, length))


def _split(texts: list[str], labels: np.ndarray, sizes: tuple[int, int, int]) -> Task:
    bounds = pairwise(np.cumsum((0, *sizes)).tolist())
    return Task(*(TextWindows(texts[first:last], labels[first:last]) for first, last in bounds))


def planted_motif(sizes: tuple[int, int, int], seed: int = 0) -> Task:
    """Positives have a word of 8 bases, anywhere; negatives have its bases in another order."""
    rng = np.random.default_rng(seed)
    letters = random_windows(sum(sizes), rng)
    labels = np.arange(len(letters)) % 2
    for row, label in zip(letters, labels, strict=True):
        start = rng.integers(0, LENGTH - len(FIRST))
        word = list(FIRST) if label else list(rng.permutation(list(FIRST)))
        row[start : start + len(FIRST)] = word
    return _split(["".join(row) for row in letters], labels, sizes)


def planted_pair(sizes: tuple[int, int, int], seed: int = 0) -> Task:
    """Two words, always as far from each other, anywhere; in positives the one comes first, or the other."""
    rng = np.random.default_rng(seed)
    letters = random_windows(sum(sizes), rng)
    labels = np.arange(len(letters)) % 2
    for row, label in zip(letters, labels, strict=True):
        start = rng.integers(0, LENGTH - APART - len(FIRST))
        for place, word in zip((start, start + APART), (FIRST, SECOND)[:: 1 if label else -1], strict=True):
            row[place : place + len(word)] = list(word)
    return _split(["".join(row) for row in letters], labels, sizes)


def markov_sources(sizes: tuple[int, int, int], order: int = 3, seed: int = 0) -> Task:
    """Positives are of one random Markov source, negatives of another, whose bases are as frequent.

    The negative source is the positive one in which C and G, and A and T, have changed places: GC content is
    the same.
    """
    count = sum(sizes)
    source = Source(order, seed, concentration=3.0)
    codes = source.sample(count * LENGTH, seed).reshape(count, LENGTH)
    labels = np.arange(count) % 2
    codes = np.where(labels[:, None] == 1, codes, 3 - codes)
    return _split(["".join("ACGT"[code] for code in row) for row in codes.tolist()], labels, sizes)
