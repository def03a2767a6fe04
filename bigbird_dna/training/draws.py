"""The training examples of each step, when they are whole sequences."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bigbird_dna.config.promoters import PromoterTrainingConfig
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.training.loop import Epochs


def balanced_turns(
    labels: npt.NDArray[np.floating], seed: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Return `always` and `variants` (N,) of `WindowDraws` for labels (N,) of 0 and 1.

    The rarer label is in every epoch. The others are divided at random into as many variants of at least its
    number of rows as there can be.
    """
    ones = labels == 1
    rare = ones if 2 * ones.sum() <= len(labels) else ~ones
    frequent = np.flatnonzero(~rare)
    variants = np.zeros(len(labels), np.int64)
    count = max(len(frequent) // max(int(rare.sum()), 1), 1)
    variants[frequent] = np.random.default_rng((seed, 7)).permutation(
        np.arange(len(frequent)) % count
    )
    return (rare if count > 1 else np.ones(len(labels), np.bool_)), variants


class WindowDraws:
    """The training windows of each step, and the bases trimmed from their ends; the same for every network.

    Windows that are `always` (N,) drawn are in every epoch, such as promoters; of the others, an epoch has
    those of one number in `variants` (N,), in turn, such as one of the negatives of each promoter.
    """

    def __init__(
        self,
        always: npt.NDArray[np.bool_],
        variants: npt.NDArray[np.int64],
        config: PromoterTrainingConfig,
    ) -> None:
        self.config = config
        turns = np.where(always, -1, variants)  # in every epoch: -1
        sizes = np.bincount(turns[turns >= 0])
        epoch_size = int((turns < 0).sum()) + int(sizes.min() if len(sizes) else 0)
        count = max(int(turns.max()) + 1, 1)

        def epoch(number: int) -> npt.NDArray[np.intp]:
            return np.flatnonzero((turns < 0) | (turns == number % count))

        self.epochs = Epochs(config.seed, epoch_size, epoch)

    def at(
        self, step: int, first: int, count: int
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the rows of examples `first … first + count` of a step, and the bases trimmed from each end
        of their windows."""
        chosen = self.epochs.indices(step * self.config.batch_size + first, count)
        rng = np.random.default_rng((self.config.seed, 3, step))
        cuts = rng.integers(
            0, self.config.crop_jitter_bp + 1, (self.config.batch_size, 2)
        )
        return chosen, [
            (left, right) for left, right in cuts[first : first + count].tolist()
        ]

    def turned(self, texts: Sequence[str], step: int, first: int) -> list[str]:
        """Return the windows of examples from `first` of a step, each read from a random strand."""
        rng = np.random.default_rng((self.config.seed, 8, step))
        strands = rng.integers(0, 2, self.config.batch_size)[first : first + len(texts)]
        return [
            reverse_complement(text) if turn else text
            for text, turn in zip(texts, strands, strict=True)
        ]
