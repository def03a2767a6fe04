"""Strata of similarity: below the first bound, from one bound to the next, from the last one on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.tables import Column, Schema
from bigbird_dna.errors import UsageError

SIMILARITY = "similarity"
BOUNDS = (0.3, 0.5, 0.8)
"""By default: 65 %, 75 % and 90 % of all bases the same, or as large a part of the window."""

ALL = "all"
_COUNTS = ("start", "end", "pair", "label")


def nearest_schema(columns: Iterable[str], key: Sequence[str] = ()) -> Schema:
    """The columns, of these names, of a table of nearest windows; `key` tells its windows apart."""
    kinds = {SIMILARITY: Column(SIMILARITY, low=0, high=1)} | {
        name: Column(name, "whole") for name in _COUNTS
    }
    return Schema([kinds.get(name, Column(name, "text")) for name in columns], key)


class Strata:
    """Strata between bounds.

    Raises
    ------
    UsageError
        Bounds don't rise, or aren't above 0 and at most 1.
    """

    def __init__(self, bounds: Sequence[float] = BOUNDS) -> None:
        values = [float(bound) for bound in bounds]
        rising = all(low < high for low, high in pairwise(values))
        if not values or not rising or not 0 < values[0] <= values[-1] <= 1:
            raise UsageError(
                f"bounds {', '.join(map(str, bounds)) or '(none)'}: there must be one at least, and they "
                "must rise from above 0 to at most 1"
            )
        self.bounds = tuple(values)

    @property
    def names(self) -> list[str]:
        """What they are called, from the least similar on."""
        between = [f"{low:g} to {high:g}" for low, high in pairwise(self.bounds)]
        return [f"below {self.bounds[0]:g}", *between, f"{self.bounds[-1]:g} and above"]

    def numbers(self, similarities: NDArray[np.float64]) -> NDArray[np.intp]:
        """Which of them each similarity is in, (N,)."""
        return np.searchsorted(self.bounds, similarities, side="right")

    def parts(self, similarities: NDArray[np.float64]) -> list[tuple[str, NDArray[np.bool_]]]:
        """What figures are of, by name, and which rows (N,) that are: `ALL`, then each of them."""
        numbers = self.numbers(similarities)
        strata = [(name, numbers == number) for number, name in enumerate(self.names)]
        return [(ALL, np.ones(len(numbers), np.bool_)), *strata]
