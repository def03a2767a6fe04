"""The report of scored variants against their known effects: `variants.tsv` and `variants.svg`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, columns, write_table
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.metrics.curves import Floats
from bigbird_dna.reporting.known_effects import DEFAULT_FIELDS, Fields, KnownEffect, read_known_effects
from bigbird_dna.reporting.style import BLUE, GREY, INK, ORANGE, panels, save_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


_METRICS = ("estimate auroc", "metric auroc_log_odds right_sign")
VARIANTS = Schema(columns("text subset", "count variants with_effect", *_METRICS), key=["subset"])
ALL, HELD_OUT = "all", "held-out"
# The sign of a change that such an effect should have; other effects have no known direction.
DIRECTIONS = {"gain": 1, "loss": -1}

# Axes: n variants.
Flags = NDArray[np.bool_]

# More points than these can't be distinguished in a row, and would swell the file.
MOST_POINTS = 300
# Fractions of the golden ratio fill a row evenly, whatever the number of points.
_GOLDEN = 0.6180339887498949


class VariantReport(NamedTuple):
    """The table as written, the alleles that it evaluates, and how many were left out, by reason."""

    table: pd.DataFrame
    variants: list[KnownEffect]
    left_out: Counter[str]


def variant_report(
    scored: Path,
    output: Path,
    *,
    truth: Path | None = None,
    fields: Fields = DEFAULT_FIELDS,
    track: str | None = None,
    no_effect: str = "none",
    held_out: Collection[str] = (),
) -> VariantReport:
    """Evaluate predicted effects of variants by known ones.

    How well their size separates those with an effect. Writes the table of `variant_table` and the figure of
    `variant_figure` to the directory `output`. `no_effect` is the word, in any case, for variants without
    effect; further rows are for the contigs of `held_out` alone. The other arguments, and errors, are those
    of `read_known_effects`.
    """
    variants, left_out = read_known_effects(scored, truth, fields, track)
    none = no_effect.lower()
    table = variant_table(variants, held_out, none)
    with into_directory(output) as files:
        write_table(files / "variants.tsv", table, VARIANTS)
        variant_figure(variants, files / "variants.svg", none)
    return VariantReport(table, variants, left_out)


def variant_table(
    variants: Sequence[KnownEffect], held_out: Collection[str] = (), no_effect: str = "none"
) -> pd.DataFrame:
    """Rows of `VARIANTS`: all variants, each place, each track; then the same on the contigs of `held_out`.

    AUROCs are of the size of the change, for having an effect. A place whose variants all have an effect is
    compared with all variants without one, and the other way round; one with both with itself. `variants` and
    `with_effect` count the rows of the areas; `right_sign` is the fraction of those known to gain or lose
    whose change has that sign, for a place of its own variants. A place or track of no or of all variants has
    no row.
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
            values = known[kind].to_numpy(object)
            names = sorted(set(values.tolist()) - {""})
            for name in names if len(names) > 1 else ():
                members = values == name
                own, rows = inside & members, members
                if kind == "place" and len(set(has[members])) == 1:  # and all rows of the other class
                    rows = members | (has != has[members][0])
                if own.any():
                    subsets.append((f"{prefix}{kind}={name}", inside & rows, own))
    deltas, log_odds = known[["delta", "log_odds"]].to_numpy(np.float64).T
    directions = np.array([DIRECTIONS.get(effect, 0) for effect in known["effect"]], np.int64)
    table = []
    for name, rows, signs in subsets:
        areas = auroc(has[rows], np.abs(deltas[rows]))
        other = auroc(has[rows], np.abs(log_odds[rows])).value
        directed = signs & (directions != 0)
        right = math.nan
        if directed.any():
            right = float((np.sign(deltas[directed]) == directions[directed]).mean())
        table.append([name, int(rows.sum()), int(has[rows].sum()), *areas, other, right])
    return pd.DataFrame(table, columns=VARIANTS.names)


def has_effect(variants: Sequence[KnownEffect], no_effect: str = "none") -> Flags:
    """Which variants have an effect (n,)."""
    return np.array([variant.effect != no_effect for variant in variants], dtype=bool)


class _CategoryEffects(NamedTuple):
    label: str
    color: str
    deltas: Floats  # sizes, ascending
    log_odds: Floats  # likewise


def variant_figure(variants: Sequence[KnownEffect], path: Path, no_effect: str = "none") -> None:
    """A row for each place, or each effect where places are unknown: points, median, quartiles, 5 to 95 %.

    Places whose variants have an effect are above those whose variants have none.
    """
    groups = _groups(variants, no_effect)
    with panels(1, 2, 4.6, 1.3 + 0.48 * len(groups), sharey=True) as (figure, axes):
        for axis, name, label in (
            (axes[0], "deltas", "|change of probability|"),
            (axes[1], "log_odds", "|change of log-odds|"),
        ):
            for row, group in enumerate(reversed(groups)):
                _draw(axis, row, getattr(group, name), group.color)
            axis.set_xlabel(label)
            axis.set_xlim(left=0)
            axis.grid(visible=False, axis="y")
            axis.tick_params(axis="y", length=0)
        labels = [f"{group.label} ({len(group.deltas):,})" for group in reversed(groups)]
        axes[0].set_yticks(range(len(groups)), labels)
        axes[0].set_title("Size of the predicted effect on the variant's own track")
        for color, text in ((BLUE, "with a true effect"), (ORANGE, "without")):
            axes[1].plot([], [], "o", color=color, markeredgewidth=0, label=text)
        axes[1].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, handletextpad=0.2)
        save_figure(figure, path)


def _groups(variants: Sequence[KnownEffect], no_effect: str) -> list[_CategoryEffects]:
    has = has_effect(variants, no_effect)
    by_place = any(variant.place for variant in variants)
    names = np.array([(v.place or "(none)") if by_place else v.effect for v in variants])
    sizes = np.abs([(variant.delta, variant.log_odds) for variant in variants])
    found = []
    for name in np.unique(names).tolist():
        rows = names == name
        deltas, log_odds = np.sort(sizes[rows], axis=0).T
        fraction = float(has[rows].mean())
        color = {0.0: ORANGE, 1.0: BLUE}.get(fraction, GREY)
        found.append((-fraction, -float(np.median(deltas)), _CategoryEffects(name, color, deltas, log_odds)))
    return [group for *_, group in sorted(found, key=lambda one: one[:2])]


def _draw(axis: Axes, row: int, sizes: Floats, color: str) -> None:
    shown = sizes
    if len(sizes) > MOST_POINTS:  # as many quantiles: of the same distribution
        shown = np.quantile(sizes, (np.arange(MOST_POINTS) + 0.5) / MOST_POINTS)
    heights = row + 0.56 * ((np.arange(len(shown)) * _GOLDEN) % 1 - 0.5)
    axis.plot(shown, heights, "o", color=color, alpha=0.4, markersize=3.2, markeredgewidth=0, zorder=2)
    low, first, median, third, high = np.quantile(sizes, (0.05, 0.25, 0.5, 0.75, 0.95))
    axis.plot([low, high], [row, row], color=INK, linewidth=1, zorder=3)
    axis.plot([first, third], [row, row], color=INK, linewidth=4.5, solid_capstyle="butt", zorder=3)
    axis.plot([median], [row], "o", color="white", markeredgecolor=INK, markersize=6, zorder=4)
