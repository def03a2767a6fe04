"""Which examples fine-tuning learns from, and on which it is measured: all drawn by seed."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

LEAST_EXAMPLES = 5
"""Of each class: a share that leaves fewer says nothing."""


class Epochs:
    """Indices of examples, epoch after epoch, each in an order of its own.

    `members` gives those of an epoch by its number, at least `size`; of more than that a part is left out.
    """

    def __init__(self, seed: int, size: int, members: Callable[[int], npt.NDArray[np.integer]]) -> None:
        self.seed, self.size, self.members = seed, size, members
        self._order = lru_cache(maxsize=1)(self._shuffled)

    def _shuffled(self, number: int) -> npt.NDArray[np.integer]:
        rng = np.random.default_rng((self.seed, 2, number))
        return rng.permutation(self.members(number))[: self.size]

    def indices(self, first: int, count: int) -> list[int]:
        """Those at the places `first … first + count` of all epochs in a row."""
        places = (divmod(place, self.size) for place in range(first, first + count))
        return [int(self._order(epoch)[place]) for epoch, place in places]


def draw_groups(groups: npt.NDArray[np.int64], share: float, seed: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Which rows belong to the share of the groups that is kept: (N,), for the group of each row (N,).

    Groups, told apart by their numbers, stay whole. Their order is drawn once: of one seed a smaller share is
    part of a larger one. At least one group is kept.
    """
    names = np.unique(groups)
    count = min(max(round(share * len(names)), 1), len(names))
    return np.isin(groups, np.random.default_rng(seed).permutation(names)[:count])


def sample(rows: npt.NDArray[np.intp], count: int, seed: tuple[int, int]) -> npt.NDArray[np.intp]:
    """All rows, or so many of them, in their order, where there are more."""
    if len(rows) <= count:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))
