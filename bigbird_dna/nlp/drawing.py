"""What is drawn of rows and records: parts of a public split, and the records that are watched.

Data sets are often sorted, by class for one, so that the first of them stand for nothing but themselves. What
is drawn doesn't follow a training's seed: parts of a split share no row, and all trainings watch the same.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.nlp.sections import PART

T = TypeVar("T")
_SEED = 20_200_728


def rows_of(name: str, count: int) -> NDArray[np.int64]:
    """The rows that a part of a split of `count` rows has, ascending; `name` is as `sections.PART` has it."""
    part = PART.fullmatch(name)
    assert part is not None
    return np.sort(_order(count)[slice(*(_bound(text, count) for text in part.groups()[1:]))])


def some_of(records: Sequence[T], most: int) -> list[T]:
    """At most so many of the records, in their order."""
    return [records[index] for index in np.sort(_order(len(records))[:most])]


def _order(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(_SEED).permutation(count)


def _bound(text: str | None, count: int) -> int | None:
    if text is None:
        return None
    return round(int(text[:-1]) * count / 100) if text.endswith("%") else int(text)
