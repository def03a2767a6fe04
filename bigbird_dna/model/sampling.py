"""One of several choices, drawn by scores: temperature, the best k, the likeliest share.

Axes: G rows, P choices.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import UsageError

Floats = NDArray[np.float64]


class Sampling(NamedTuple):
    """How what comes next is drawn from a model's scores; `UsageError` from `checked`."""

    temperature: float = 1.0  # scores are divided by it
    top_k: int | None = None  # only so many of the likeliest; None: all
    top_p: float | None = None  # only the fewest likeliest that have this share together; None: all

    def checked(self) -> "Sampling":
        """Itself, if its numbers are in their ranges."""
        if not 0 < self.temperature <= 100:
            raise UsageError(f"temperature {self.temperature}: must be above 0 and at most 100")
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"top_k {self.top_k}: must be at least 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p {self.top_p}: must be a share above 0 and at most 1")
        return self

    def probabilities(self, scores: Floats) -> Floats:
        """Of scores (G, P), -inf where a choice is ruled out, each row's sum is 1.

        The temperature comes first, then `top_k`, then `top_p`; of choices alike the first ones count.
        """
        scaled = scores / self.temperature
        chances = np.exp(scaled - scaled.max(1, keepdims=True))
        if self.top_k is not None or self.top_p is not None:
            order = np.argsort(-chances, axis=1, kind="stable")
            ranked = np.take_along_axis(chances, order, 1)
            if self.top_k is not None:
                ranked[:, self.top_k :] = 0
            if self.top_p is not None:
                before = np.cumsum(ranked, 1) - ranked
                ranked[before >= self.top_p * ranked.sum(1, keepdims=True)] = 0
            np.put_along_axis(chances, order, ranked, 1)
        total: Floats = chances / chances.sum(1, keepdims=True)
        return total

    def draw(self, scores: Floats, numbers: Floats) -> NDArray[np.int64]:
        """A choice (G,) of each row of scores (G, P), by random numbers (G,) from 0 to 1."""
        sums = np.cumsum(self.probabilities(scores), 1)
        # The last sum may be a little below 1: what lies above it belongs to the last choice that can be.
        found: NDArray[np.int64] = (sums <= (numbers * sums[:, -1])[:, None]).sum(1)
        return found
