"""Windows whose classes are known to differ in one thing, and models that are read."""

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bigbird_dna.baselines.windows import TextWindows
from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import PretrainingSettings, Settings
from tests.baselines.sources import Source
from tests.toys import random_model, small_tokenizer

WORD = "CATAGGACTTGA"
PAIR = "TGACGTCAATCG", "GCCACAGGTTAC"
LENGTH = 170  # bp
APART = 48  # bp between the starts of the two of a pair: further than any filter and any k-mer reaches


class Task(NamedTuple):
    """Windows with labels, half of them positive."""

    train: TextWindows
    valid: TextWindows
    test: TextWindows


def _split(texts: list[str], labels: np.ndarray, sizes: tuple[int, int, int]) -> Task:
    bounds = pairwise(np.cumsum((0, *sizes)).tolist())
    return Task(*(TextWindows(texts[first:last], labels[first:last]) for first, last in bounds))


def planted_both(sizes: tuple[int, int, int], seed: int = 0) -> Task:
    """Random bases with two words, always as far from each other, anywhere, and a third between them.

    The first label: the third word is `WORD`, rather than its bases in another order. The second label: the
    first of the pair comes first.
    """
    rng = np.random.default_rng(seed)
    letters = rng.choice(list("ACGT"), (sum(sizes), LENGTH))
    numbers = np.arange(len(letters))
    labels = np.stack([numbers % 2, numbers // 2 % 2], axis=1)
    size = len(WORD)
    for row, (has_word, in_order) in zip(letters, labels.tolist(), strict=True):
        first = rng.integers(0, LENGTH - APART - size + 1)
        middle = first + size + rng.integers(0, APART - 2 * size + 1)
        words = PAIR if in_order else PAIR[::-1]
        third = WORD if has_word else "".join(rng.permutation(list(WORD)))
        for place, word in zip((first, middle, first + APART), (words[0], third, words[1]), strict=True):
            row[place : place + size] = list(word)
    return _split(["".join(row) for row in letters], labels, sizes)


def one_label(task: Task, label: int) -> Task:
    """A task of one of its labels alone."""
    parts = ((part, np.arange(part.shape[0])) for part in task)
    return Task(*(TextWindows(part.sequences(rows), part.labels(rows)[:, label]) for part, rows in parts))


def planted_motif(sizes: tuple[int, int, int], seed: int = 0) -> Task:
    return one_label(planted_both(sizes, seed), 0)


def planted_pair(sizes: tuple[int, int, int], seed: int = 0) -> Task:
    return one_label(planted_both(sizes, seed), 1)


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


def write_language_model(
    path: Path, settings: Settings | None = None, *, seed: int = 1, **encoder: object
) -> Path:
    """A directory of a model of random weights."""
    tokenizer = small_tokenizer()
    values = {"vocabulary": tokenizer.vocabulary, "layers": 2, "hidden": 16, "heads": 2, "max_length": 128}
    config = EncoderConfig.model_validate({**values, "block_size": 8, **encoder})
    given = settings or PretrainingSettings(next_sentence=False)
    save(path, random_model(tokenizer, config, given, seed=seed), {}, {}, {})
    return path
