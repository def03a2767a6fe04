"""How well predicted effects of variants tell those that have one: a table, by place, track and contigs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.metrics.auroc import auroc

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = [
    *("subset", "variants", "with_effect", "auroc", "auroc_low", "auroc_high"),
    *("auroc_log_odds", "right_sign"),
]
ALL, HELD_OUT = "all", "held-out"
DIRECTIONS = {"gain": 1, "loss": -1}
"""The sign of a change that such an effect should have; other effects have no known direction."""

# Axes: n variants.
Flags = NDArray[np.bool_]


class KnownEffect(NamedTuple):
    """What is known of a variant, and what was predicted on the track that it is known for.

    `effect` is a word: `DIRECTIONS` or another, or the one that stands for none. `place` is a kind of
    variant, "" if there are none. Both changes are ALT minus REF: of the probability, and of the natural
    log-odds.
    """

    contig: str
    track: str
    place: str
    effect: str
    delta: float
    log_odds: float


def variant_table(
    variants: Sequence[KnownEffect], held_out: Collection[str] = (), no_effect: str = "none"
) -> pd.DataFrame:
    """Rows of `COLUMNS`: all variants, each place, each track; then the same on the contigs of `held_out`.

    `auroc` (with DeLong's 95 % interval) is the area under the ROC curve of the size of the change of
    probability, for having an effect; `auroc_log_odds` that of the size of the change of log-odds. A place
    whose variants all have an effect stands against all variants without one, and the other way round; one
    with both stands for itself. `variants` and `with_effect` count the rows that the areas rest on.
    `right_sign` is the share of variants known to gain or lose whose change has that sign, for a place of
    its own variants. Figures that are not defined are NaN. A place or track that no variant is of has no
    row, nor has one that all of them are of.
    """
    import pandas as pd

    has = has_effect(variants, no_effect)
    known = pd.DataFrame(variants, columns=list(KnownEffect._fields))
    scopes = [("", ALL, np.ones(len(has), bool))]
    if held_out:
        scopes.append((f"{HELD_OUT} ", HELD_OUT, known["contig"].isin(held_out).to_numpy()))
    subsets: list[tuple[str, Flags, Flags]] = []  # name, rows of the areas, rows of the signs
    for prefix, whole, inside in scopes:
        subsets.append((whole, inside, inside))
        for kind in ("place", "track"):
            for name, members in _parts(known[kind].to_numpy(object)):
                own = inside & members
                rows = inside & _against(members, has) if kind == "place" else own
                if own.any():
                    subsets.append((f"{prefix}{kind}={name}", rows, own))
    deltas, log_odds = known[["delta", "log_odds"]].to_numpy(np.float64).T
    directions = np.array([DIRECTIONS.get(effect, 0) for effect in known["effect"]], np.int64)
    table = []
    for name, rows, signs in subsets:
        areas = auroc(has[rows], np.abs(deltas[rows]))
        other = auroc(has[rows], np.abs(log_odds[rows])).value
        right = _right_sign(deltas[signs], directions[signs])
        table.append([name, int(rows.sum()), int(has[rows].sum()), *areas, other, right])
    return pd.DataFrame(table, columns=COLUMNS)


def has_effect(variants: Sequence[KnownEffect], no_effect: str = "none") -> Flags:
    """Which variants have an effect (n,)."""
    return np.array([variant.effect != no_effect for variant in variants], dtype=bool)


def _parts(values: NDArray[np.object_]) -> Iterator[tuple[str, Flags]]:
    """Each value in alphabetical order with its rows; nothing where all rows have the same."""
    names = sorted(set(values.tolist()) - {""})
    if len(names) > 1:
        yield from ((name, values == name) for name in names)


def _against(members: Flags, has: Flags) -> Flags:
    """A place's rows, and if they are of one class all rows of the other."""
    if has[members].all():
        return members | ~has
    return members if has[members].any() else members | has


def _right_sign(deltas: NDArray[np.float64], directions: NDArray[np.int64]) -> float:
    known = directions != 0
    if not known.any():
        return math.nan
    return float((np.sign(deltas[known]) == directions[known]).mean())
