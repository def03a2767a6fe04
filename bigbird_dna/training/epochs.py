"""The order of examples, epoch after epoch."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt


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
