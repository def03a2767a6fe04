"""The training examples of each step, as functions of seed and step."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.config.promoters import ClassifierTrainingConfig
from bigbird_dna.genome.sequence import reverse_complement


class Epochs:
    """Indices of examples over successive epochs, each shuffled separately.

    Epochs use the arrays of `members` in turn, and as many examples as the smallest of them has.
    """

    def __init__(self, seed: int, *members: NDArray[np.integer]) -> None:
        self.seed, self.members = seed, members
        self.size = min(map(len, members))
        self._epoch, self._order = -1, members[0]

    def indices(self, first: int, count: int) -> list[int]:
        """Indices at positions `first` to `first + count` (exclusive) of all concatenated epochs."""
        indices = []
        for position in range(first, first + count):
            epoch, index = divmod(position, self.size)
            if epoch != self._epoch:
                rng = np.random.default_rng((self.seed, 2, epoch))
                self._order = rng.permutation(self.members[epoch % len(self.members)])
                self._epoch = epoch
            indices.append(int(self._order[index]))
        return indices


def balanced_epochs(
    labels: NDArray[np.floating], seed: int
) -> list[NDArray[np.integer]]:
    """Return `members` of `Epochs` for labels (N,) of 0 and 1.

    The rarer label is in every epoch. The others are divided at random into as many parts of at least its
    number of rows as there can be.
    """
    ones = labels == 1
    rare = ones if 2 * ones.sum() <= len(labels) else ~ones
    frequent = np.flatnonzero(~rare)
    count = len(frequent) // max(int(rare.sum()), 1)
    if count < 2:
        return [np.arange(len(labels))]

    variants = np.full(len(labels), -1)
    variants[frequent] = np.random.default_rng((seed, 7)).permutation(
        np.arange(len(frequent)) % count
    )
    return variant_epochs(rare, variants)


def variant_epochs(
    always: NDArray[np.bool_], variants: NDArray[np.integer]
) -> list[NDArray[np.integer]]:
    """Return `members` of `Epochs`: rows that are `always` (N,) in an epoch, such as promoters, and of the
    others those of one number in `variants` (N,), such as one of the negatives of each promoter."""
    numbers = np.unique(variants[~always]).tolist() or [0]
    return [np.flatnonzero(always | (variants == number)) for number in numbers]


class WindowDraws:
    """The training windows of each step, and the bases trimmed from their ends; the same for every network."""

    def __init__(
        self, members: Sequence[NDArray[np.integer]], config: ClassifierTrainingConfig
    ) -> None:
        self.config = config
        self.epochs = Epochs(config.seed, *members)

    def at(
        self, step: int, first: int, count: int
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the rows of examples `first … first + count` of a step, and the bases trimmed from each end
        of their windows."""
        config = self.config
        rows = self.epochs.indices(step * config.batch_size + first, count)
        rng = np.random.default_rng((config.seed, 3, step))
        cuts = rng.integers(0, config.crop_jitter_bp + 1, (config.batch_size, 2))
        return rows, [
            (left, right) for left, right in cuts[first : first + count].tolist()
        ]

    def shifts(self, step: int, first: int, count: int, most: int) -> NDArray[np.int64]:
        """Return a shift of up to `most` bp in either direction for each example of `at`."""
        rng = np.random.default_rng((self.config.seed, 9, step))
        drawn = rng.integers(-most, most + 1, self.config.batch_size)
        return drawn[first : first + count]

    def on_strands(self, texts: Sequence[str], step: int, first: int) -> list[str]:
        """Return the windows of examples from `first` of a step, each read from a random strand."""
        rng = np.random.default_rng((self.config.seed, 8, step))
        strands = rng.integers(0, 2, self.config.batch_size)[first : first + len(texts)]
        return [
            reverse_complement(text) if reverse else text
            for text, reverse in zip(texts, strands, strict=True)
        ]
