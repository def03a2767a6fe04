"""Report of scored variants compared with their known effects, and with the effects of random variants."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import ENDS, Floats, auroc, auroc_difference
from bigbird_dna.metrics.resampling import sequence_blocks
from bigbird_dna.reporting.known_effects import (
    DEFAULT_FIELDS,
    Fields,
    KnownEffect,
    read_known_effects,
    read_random,
)
from bigbird_dna.reporting.result import BLUE, GRAY, INK, ORANGE, panels, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_METRICS = ("estimate auroc", "metric auroc_log_odds sign_accuracy")
VARIANTS = Schema.of(
    "text subset; count variants with_effect", *_METRICS, key=["subset"]
)
RANDOM = Schema.of(
    "text subset; count variants random; estimate auroc; metric median_p_value",
    key=["subset"],
)
COMPARED = Schema.of(
    "text subset predictor; count variants with_effect; estimate auroc difference; metric sign_accuracy",
    key=["subset", "predictor"],
)
P_VALUES = Schema.of(
    "text contig; count position; text ref alt track category effect; number delta; count random",
    "fraction p_value",
)
ALL, HELD_OUT = "all", "held-out"
# Expected sign of the change; other effects have no known direction.
DIRECTIONS = {"gain": 1, "loss": -1}

# Axes: n variants.
Flags = NDArray[np.bool_]

# More points per row cannot be distinguished, and would make the file large.
MOST_POINTS = 300
_GOLDEN = (
    0.6180339887498949  # multiples modulo 1 fill a row evenly for any number of points
)


class VariantReport(NamedTuple):
    """The tables as written, the evaluated alleles, and the number of excluded alleles by reason."""

    table: pd.DataFrame
    variants: list[KnownEffect]
    left_out: Counter[str]
    random: pd.DataFrame | None = None
    compared: pd.DataFrame | None = None


def variant_report(
    scored: Path,
    output: Path,
    *,
    truth: Path | None = None,
    null: Path | None = None,
    compare: Mapping[str, Path] | None = None,
    effect_field: str = DEFAULT_FIELDS.effect,
    track_field: str = DEFAULT_FIELDS.track,
    category_field: str = DEFAULT_FIELDS.category,
    track: str | None = None,
    no_effect: str = "none",
    held_out: Collection[str] = (),
) -> VariantReport:
    """Evaluate predicted effects of variants with known effects: AUROC of their size for having an effect.

    Writes the table of `variant_table` and the plot of `variant_figure` to the directory `output`, and the
    tables of `random_tables` with `null`, scored random variants (see `read_random`); all effects may be
    unknown then. With `compare`, the same variants scored by other predictors, also writes `compared_table`.
    `no_effect` is the word, in any case, for variants without an effect. With `held_out`, additional rows
    evaluate these contigs alone. Other arguments and errors are those of `read_known_effects`.
    """
    fields = Fields(effect_field, track_field, category_field)
    unknown = "" if null is None else "unknown"
    variants, left_out = read_known_effects(scored, truth, fields, track, unknown)
    none = no_effect.lower()
    table = variant_table(variants, held_out, none)
    random = (
        None
        if null is None
        else random_tables(*read_random(null, variants), held_out, none)
    )
    others = {
        name: read_known_effects(path, truth, fields, track)[0]
        for name, path in (compare or {}).items()
    }
    compared = compared_table(variants, others, held_out, none) if others else None
    with into_directory(output) as files:
        write_table(files / "variants.tsv", table, VARIANTS)
        variant_figure(variants, files / "variants.svg", none)
        if random is not None:
            write_table(files / "random_variants.tsv", random[0], RANDOM)
            write_table(files / "variant_p_values.tsv", random[1], P_VALUES)
        if compared is not None:
            write_table(files / "compared_variants.tsv", compared, COMPARED)
    return VariantReport(table, variants, left_out, random and random[0], compared)


def variant_table(
    variants: Sequence[KnownEffect],
    held_out: Collection[str] = (),
    no_effect: str = "none",
) -> pd.DataFrame:
    """Return rows of `VARIANTS`: all variants, each category, each track; then again for `held_out` contigs.

    AUROC ranks variants by the absolute change, to separate variants with and without an effect. A category
    (`category`) with only one of the two classes is compared with all variants of the other class; a category
    with both is evaluated by itself. `variants` and `with_effect` count the variants in the AUROC;
    `sign_accuracy` is the fraction of known gains and losses (of the category itself) whose change has the
    expected sign. A category or track that contains no variants, or all variants, has no row.
    """
    has = has_effect(variants, no_effect)
    known = pd.DataFrame(variants, columns=list(KnownEffect._fields))
    deltas, log_odds = known[["delta", "log_odds"]].to_numpy(np.float64).T
    blocks = sequence_blocks(known["contig"].to_numpy(), known["position"].to_numpy())
    directions = np.array(
        [DIRECTIONS.get(effect, 0) for effect in known["effect"]], np.int64
    )
    table = []
    for name, rows, signs in _subsets(known, has, held_out):
        areas = auroc(has[rows], np.abs(deltas[rows]), blocks[rows])
        other = auroc(has[rows], np.abs(log_odds[rows])).value
        directed = signs & (directions != 0)
        right = math.nan
        if directed.any():
            right = float((np.sign(deltas[directed]) == directions[directed]).mean())
        table.append(
            [name, int(rows.sum()), int(has[rows].sum()), *areas, other, right]
        )
    return pd.DataFrame(table, columns=VARIANTS.names)


def random_tables(
    variants: Sequence[KnownEffect],
    random: Sequence[KnownEffect],
    held_out: Collection[str] = (),
    no_effect: str = "none",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compare variants with the `random` variants drawn for them; return rows of `RANDOM` and of `P_VALUES`.

    A p-value is the fraction of the random variants of the same track whose absolute change is not smaller,
    where the variant itself counts as one of them. In `RANDOM`, variants of a subset that have an effect (all
    variants, if none has) are compared with their own random variants: AUROC ranks both by absolute change.
    """
    both = [*variants, *random]
    known, given = (
        pd.DataFrame(both, columns=list(KnownEffect._fields)),
        np.arange(len(both)) < len(variants),
    )
    has, sizes = has_effect(both, no_effect), known["delta"].abs().to_numpy(np.float64)
    blocks = sequence_blocks(known["contig"].to_numpy(), known["position"].to_numpy())
    drawn, above = np.zeros((2, len(variants)), np.int64)
    for track in known["track"].unique():
        own = (known["track"] == track).to_numpy()
        null = np.sort(sizes[own & ~given])
        drawn[own[given]] = len(null)
        above[own[given]] = len(null) - np.searchsorted(null, sizes[own & given])
    p_values = (1 + above) / (1 + drawn)
    table = []
    for name, _, own in _subsets(known, has, held_out):
        rows = own & has if (own & has).any() else own
        counts = int((rows & given).sum()), int((rows & ~given).sum())
        median = float(np.median(p_values[rows[given]])) if counts[0] else math.nan
        table.append(
            [name, *counts, *auroc(given[rows], sizes[rows], blocks[rows]), median]
        )
    each = known[given].assign(random=drawn, p_value=p_values)[P_VALUES.names]
    return pd.DataFrame(table, columns=RANDOM.names), each


def compared_table(
    variants: Sequence[KnownEffect],
    others: Mapping[str, Sequence[KnownEffect]],
    held_out: Collection[str] = (),
    no_effect: str = "none",
) -> pd.DataFrame:
    """Return rows of `COMPARED`: metrics of other predictors as in `variant_table`, on the common variants.

    `difference` is the AUROC of `variants` minus that of the predictor. `DataError`: no common variants.
    """
    tables = []
    for name, scored in others.items():
        found = {one._replace(delta=0, log_odds=0): one for one in scored}
        common = {
            one: found[key]
            for one in variants
            if (key := one._replace(delta=0, log_odds=0)) in found
        }
        if not common:
            raise DataError(
                f"--compare {name}: the file has none of the evaluated variants"
            )
        table = variant_table([*common.values()], held_out, no_effect)
        known, has = (
            pd.DataFrame([*common], columns=list(KnownEffect._fields)),
            has_effect([*common], no_effect),
        )
        own, theirs = np.abs(
            [(one.delta, other.delta) for one, other in common.items()]
        ).T
        blocks = sequence_blocks(
            known["contig"].to_numpy(), known["position"].to_numpy()
        )
        table[[f"difference{end}" for end in ENDS]] = [
            auroc_difference(has[rows], own[rows], theirs[rows], blocks[rows]).estimate
            for _, rows, _ in _subsets(known, has, held_out)
        ]
        tables.append(table.assign(predictor=name)[COMPARED.names])
    return pd.concat(tables, ignore_index=True)


def _subsets(
    known: pd.DataFrame, has: Flags, held_out: Collection[str]
) -> Iterator[tuple[str, Flags, Flags]]:
    """Yield the name of each row of a table, the variants for AUROC, and those of the subset itself."""
    scopes = [("", ALL, np.ones(len(has), bool))]
    if held_out:
        scopes.append(
            (f"{HELD_OUT} ", HELD_OUT, known["contig"].isin(held_out).to_numpy())
        )
    for prefix, whole, inside in scopes:
        yield whole, inside, inside
        for kind in ("category", "track"):
            values = known[kind].to_numpy(object)
            names = sorted(set(values.tolist()) - {""})
            for name in names if len(names) > 1 else ():
                members = values == name
                own, rows = inside & members, members
                if (
                    kind == "category" and len(set(has[members])) == 1
                ):  # add all rows of the other class
                    rows = members | (has != has[members][0])
                if own.any():
                    yield f"{prefix}{kind}={name}", inside & rows, own


def has_effect(variants: Sequence[KnownEffect], no_effect: str = "none") -> Flags:
    """Return which variants have an effect (n,)."""
    return np.array([variant.effect != no_effect for variant in variants], dtype=bool)


class _CategoryEffects(NamedTuple):
    label: str
    color: str
    deltas: Floats  # absolute values, ascending
    log_odds: Floats  # absolute values, ascending


def variant_figure(
    variants: Sequence[KnownEffect], path: Path, no_effect: str = "none"
) -> None:
    """Draw a row per category, or per effect without categories: points, median, quartiles, 5 to 95 %.

    Categories with an effect are above categories without an effect.
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
        labels = [
            f"{group.label} ({len(group.deltas):,})" for group in reversed(groups)
        ]
        axes[0].set_yticks(range(len(groups)), labels)
        axes[0].set_title("Size of the predicted effect on the variant's track")
        for color, text in ((BLUE, "with a known effect"), (ORANGE, "without")):
            axes[1].plot([], [], "o", color=color, markeredgewidth=0, label=text)
        axes[1].legend(
            loc="lower right", bbox_to_anchor=(1, 1), ncols=2, handletextpad=0.2
        )
        save_figure(figure, path)


def _groups(variants: Sequence[KnownEffect], no_effect: str) -> list[_CategoryEffects]:
    has = has_effect(variants, no_effect)
    by_category = any(variant.category for variant in variants)
    names = np.array(
        [(v.category or "(none)") if by_category else v.effect for v in variants]
    )
    sizes = np.abs([(variant.delta, variant.log_odds) for variant in variants])
    found = []
    for name in np.unique(names).tolist():
        rows = names == name
        deltas, log_odds = np.sort(sizes[rows], axis=0).T
        fraction = float(has[rows].mean())
        color = {0.0: ORANGE, 1.0: BLUE}.get(fraction, GRAY)
        found.append(
            (
                -fraction,
                -float(np.median(deltas)),
                _CategoryEffects(name, color, deltas, log_odds),
            )
        )
    return [group for *_, group in sorted(found, key=lambda one: one[:2])]


def _draw(axis: Axes, row: int, sizes: Floats, color: str) -> None:
    shown = sizes
    if len(sizes) > MOST_POINTS:  # quantiles have the same distribution
        shown = np.quantile(sizes, (np.arange(MOST_POINTS) + 0.5) / MOST_POINTS)
    heights = row + 0.56 * ((np.arange(len(shown)) * _GOLDEN) % 1 - 0.5)
    axis.plot(
        shown,
        heights,
        "o",
        color=color,
        alpha=0.4,
        markersize=3.2,
        markeredgewidth=0,
        zorder=2,
    )
    low, first, median, third, high = np.quantile(sizes, (0.05, 0.25, 0.5, 0.75, 0.95))
    axis.plot([low, high], [row, row], color=INK, linewidth=1, zorder=3)
    axis.plot(
        [first, third],
        [row, row],
        color=INK,
        linewidth=4.5,
        solid_capstyle="butt",
        zorder=3,
    )
    axis.plot(
        [median], [row], "o", color="white", markeredgecolor=INK, markersize=6, zorder=4
    )
