"""Which examples fine-tuning learns from, and on which it is measured: all drawn by seed."""

import numpy as np
import numpy.typing as npt

LEAST_EXAMPLES = 5
"""Of each class: a share that leaves fewer says nothing."""


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
