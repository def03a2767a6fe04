"""Plots of the experiments' tables: one panel per facet, one color per arm, with intervals and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bigbird_dna.config import LONGER, PRETRAINED, RANDOM
from bigbird_dna.data.predictions import ALL, SPLIT
from bigbird_dna.papers.experiments.ablation_files import AblationResult, ByMechanism
from bigbird_dna.reporting.result import (
    BLUE,
    GRAY,
    GREEN,
    PURPLE,
    SERIES,
    VERMILION,
    add_legend,
    panels,
    save_figure,
    show_text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bigbird_dna.reporting.training import LogCurve
from bigbird_dna.papers.experiments.comparing import (
    FINE_TUNED,
    PROBED,
    StudyArm,
    mean_curve,
)

LOOKS = {
    PRETRAINED: ("pretrained weights", BLUE, "o"),
    RANDOM: ("random weights", VERMILION, "s"),
    LONGER: ("random weights, longer", GREEN, "^"),
}
# Horizontal distance of points of different initializations, as a fraction of the axis.
_APART = 0.012


def share_figure(arms: Sequence[StudyArm], path: Path) -> None:
    """Plot test AUROC against the fraction of examples: one point per seed, means joined by lines."""
    tasks = list(dict.fromkeys(arm.row.task for arm in arms))
    with panels(1, len(tasks), 5.6, 4.2) as (figure, axes):
        for axis, task in zip(axes, tasks, strict=True):
            of_task = [arm for arm in arms if arm.row.task == task]
            shares = sorted({arm.row.share for arm in of_task})
            width = max(np.log(shares[-1] / shares[0]), 1.0)
            axis.set_xscale("log")
            starts = [
                start
                for start in LOOKS
                if any(arm.row.start == start for arm in of_task)
            ]
            for place, start in enumerate(starts):
                label, color, marker = LOOKS[start]
                own = [arm for arm in of_task if arm.row.start == start]
                aside = np.exp((place - (len(starts) - 1) / 2) * _APART * width)
                x = np.array([arm.row.share for arm in own]) * aside
                for at, arm in zip(x, own, strict=True):
                    many = np.full(len(arm.aurocs), at)
                    axis.plot(
                        many,
                        arm.aurocs,
                        marker,
                        color=color,
                        markersize=5,
                        alpha=0.55,
                        markeredgewidth=0,
                    )
                axis.plot(x, [arm.auroc for arm in own], "-", color=color)
                # The legend shows line and point.
                axis.plot(
                    [], [], "-", marker=marker, color=color, markersize=5, label=label
                )
            axis.set_xticks(shares, [f"{100 * share:g} %" for share in shares])
            axis.minorticks_off()
            axis.set_xlim(
                shares[0] * np.exp(-0.12 * width), shares[-1] * np.exp(0.12 * width)
            )
            axis.set(
                title=task.capitalize(), xlabel="fraction of the training examples"
            )
            axis.set_ylabel(
                "AUROC, test"
                if task == "promoters"
                else "median AUROC of the tracks, test"
            )
        axes[0].legend(loc="best")
        save_figure(figure, path)


def steps_figure(arms: Sequence[StudyArm], path: Path) -> None:
    """Plot validation AUROC over steps, one panel per fraction: mean over seeds, with their range."""
    tasks = list(dict.fromkeys(arm.row.task for arm in arms))
    shares = sorted({arm.row.share for arm in arms})
    with panels(len(tasks), len(shares), 3.6, 3.2, sharey="row") as (figure, axes):
        for row, task in enumerate(tasks):
            line = axes[row * len(shares) :]
            of_shares = [
                [c for c in arms if (c.row.task, c.row.share) == (task, share)]
                for share in shares
            ]
            for axis, own in zip(line, of_shares, strict=False):
                axis.set_visible(bool(own))
                for arm in own:
                    _draw_steps(axis, arm)
                    examples = f"{arm.examples:,} {'promoters' if task == 'promoters' else 'bins'}"
                    axis.set_title(f"{100 * arm.row.share:g} %: {examples}")
                axis.set(xlabel="optimizer step")
                axis.set_xlim(left=0)
            first = next(
                axis for axis, own in zip(line, of_shares, strict=False) if own
            )
            first.tick_params(labelleft=True)
            first.set_ylabel(
                "AUROC, validation"
                if task == "promoters"
                else "median AUROC, validation"
            )
            add_legend(first)
        save_figure(figure, path)


def _draw_steps(axis: Axes, arm: StudyArm) -> None:
    label, color, _ = LOOKS[arm.row.start]
    curves = [model.valid for model in arm.models]
    mean = mean_curve(curves)
    if not len(mean.steps):
        return
    values = np.stack(
        [curve.values[np.isin(curve.steps, mean.steps)] for curve in curves]
    )
    axis.fill_between(
        mean.steps,
        values.min(axis=0),
        values.max(axis=0),
        color=color,
        alpha=0.18,
        linewidth=0,
    )
    # Longer runs are drawn below the random ones, with which they coincide initially.
    order = 1.9 if arm.row.start == LONGER else 2.0
    axis.plot(
        mean.steps,
        mean.values,
        color=color,
        marker="o",
        markersize=3,
        label=label,
        zorder=order,
    )


def trainings_figure(
    table: pd.DataFrame, curves: Sequence[LogCurve], path: Path
) -> None:
    """Plot validation AUROC over steps at the chosen learning rates, one panel per window and negative set.

    Rows of `table` have a curve each; language models from random weights are dashed.
    """
    chosen = table[table["chosen"] == "yes"]
    # Windows of tracks differ by predictor: one panel has all.
    sets = chosen["negative_set"] + chosen["window"].map(", {:.0f} bp".format)
    groups = list(
        chosen.groupby(sets.where(chosen["negative_set"] != "", ""), sort=False)
    )
    columns = max(1, min(_COLUMNS, len(groups)))
    with panels(max(1, -(-len(groups) // columns)), columns, 5.6, 3.8) as (
        figure,
        axes,
    ):
        names = list(dict.fromkeys(chosen["predictor"]))
        for axis, (title, rows) in zip(axes, groups, strict=False):
            named = zip(
                rows.index.tolist(), rows["predictor"], rows["weights"], strict=True
            )
            for index, name, weights in named:
                style, color = (
                    "--" if weights == RANDOM else "-",
                    SERIES[names.index(name) % len(SERIES)],
                )
                label, curve = f"{name} {weights}".strip(), curves[index]
                axis.plot(
                    curve.steps,
                    curve.values,
                    style,
                    color=color,
                    linewidth=1.4,
                    label=label,
                )
            what = "AUROC" if title else "median AUROC"
            axis.set(
                title=title or "Tracks",
                xlabel="optimizer step",
                ylabel=f"{what}, validation",
            )
            axis.set_xlim(left=0)
            axis.legend(loc="best", fontsize=8)
        for axis in axes[len(groups) :]:
            axis.set_visible(False)
        save_figure(figure, path)


_COLUMNS = 3  # panels per row
_LINE = 0.26  # inches per predictor
_SCATTERS = 6  # most panels of tracks
_KEY = ["predictor", "weights", "training", "window"]
_SPLITS = {"valid": "validation"}


def bits_figure(table: pd.DataFrame, path: Path) -> None:
    with panels(1, 1, 7.2, 1.2 + _LINE * len(table)) as (figure, axes):
        colors = [
            BLUE if str(name).startswith("model") else GRAY
            for name in table["predictor"]
        ]
        _intervals(
            axes[0],
            table["predictor"].tolist(),
            table[["bits_per_base", "low", "high"]],
            colors,
        )
        split = str(table[SPLIT].iloc[0])
        axes[0].set(xlabel=f"bits per base, {_SPLITS.get(split, split)}")
        axes[0].set_title("Bits per base of held-out sequence")
        save_figure(figure, path)


def negative_windows(table: pd.DataFrame) -> pd.Series[str]:
    """Return the negative set of each row of Table 6, with the stratum unless that is all windows."""
    sets, strata = table["negative_set"], table["stratum"]
    return sets.where(strata == ALL, sets + " " + strata)


def promoters_figure(table: pd.DataFrame, path: Path) -> None:
    """Plot Table 6: AUROC of each predictor, one panel per window size, negative set and stratum."""
    known: Mapping[str, str] = {PRETRAINED: BLUE, RANDOM: VERMILION}
    groups = list(table.groupby(["window", negative_windows(table)], sort=False))
    columns = min(_COLUMNS, len(groups))
    rows, most = -(-len(groups) // columns), max(len(group) for _, group in groups)
    with panels(rows, columns, 4.8, 1.1 + _LINE * most) as (figure, axes):
        for axis in axes[len(groups) :]:
            axis.set_visible(False)
        for axis, ((window, negative_set), group) in zip(axes, groups, strict=False):
            figures = group[["auroc", "auroc_low", "auroc_high"]]
            colors = [known.get(weights, GREEN) for weights in group["weights"]]
            _intervals(
                axis, [_label(row) for row in group.to_dict("records")], figures, colors
            )
            axis.set(
                xlabel="AUROC, test",
                title=f"{negative_set}, {window:,} bp".replace("_", " "),
            )
        save_figure(figure, path)


def tracks_figure(table: pd.DataFrame, path: Path) -> None:
    """Plot Table 7 by track: the fine-tuned pretrained model against each other predictor.

    Colors of tracks show their groups, or, for a single group, whether a known motif exists.
    """
    table = table.fillna({"window": 0})  # missing windows must compare equal
    areas: dict[Any, pd.Series[float]] = {
        row: part.set_index("track")["auroc"]
        for row, part in table.groupby(_KEY, sort=False)
    }
    own = next(
        (row for row in areas if row[1:3] == (PRETRAINED, FINE_TUNED)),
        next(iter(areas)),
    )
    others = sorted(
        (row for row in areas if row != own), key=lambda row: _order(row, own)
    )[:_SCATTERS]
    kinds = _kinds(table)
    columns = min(_COLUMNS, max(1, len(others)))
    with panels(-(-max(1, len(others)) // columns), columns, 3.6, 3.6) as (
        figure,
        axes,
    ):
        for axis in axes[max(1, len(others)) :]:
            axis.set_visible(False)
        for axis, other in zip(axes, others, strict=False):
            both = (
                areas[own]
                .to_frame("own")
                .join(areas[other].rename("other"), how="inner")
            )
            for color, (kind, tracks) in zip(SERIES, kinds.items(), strict=False):
                some = both[both.index.isin(tracks)]
                (dots,) = axis.plot(
                    some["other"], some["own"], "o", color=color, label=kind
                )
                dots.set(markersize=3, alpha=0.6)
            low = float(min(0.5, both.min().min())) if len(both) else 0.5
            axis.plot([low, 1], [low, 1], "-", color=GRAY, linewidth=0.8)
            won = int((both["own"] > both["other"]).sum())
            axis.set(
                xlabel=_label(_named(other)),
                title=f"above on {won:,} of {len(both):,} tracks",
            )
        axes[0].set_ylabel(_label(_named(own)))
        if not others:
            show_text(axes[0], "no other predictor to compare with")
        add_legend(axes[0])
        save_figure(figure, path)


def _order(row: tuple[Any, ...], own: tuple[Any, ...]) -> int:
    """Return the rank of a panel: random weights of `own`, comparators, other models, probes."""
    if row[2] == FINE_TUNED:
        return 0 if (row[0], row[3]) == (own[0], own[3]) else 2
    return 3 if row[2] == PROBED else 1


def _kinds(table: pd.DataFrame) -> dict[str, set[str]]:
    """Return the names of tracks by color class."""
    groups = {
        str(name): set(part["track"])
        for name, part in table.groupby("group", sort=False)
    }
    words = {"yes": "with a known motif", "no": "without"}
    motifs = {
        word: set(table["track"][table["known_motif"] == cell])
        for cell, word in words.items()
        if (table["known_motif"] == cell).any()
    }
    return motifs if len(groups) == 1 and motifs else groups


def _named(row: Sequence[object]) -> dict[str, object]:
    return dict(zip(_KEY, row, strict=True))


def _label(row: Mapping[Any, object]) -> str:
    """Return the label of a predictor in plots, e.g. bigbird, pretrained, probed."""
    words = [str(row["predictor"])]
    if row["weights"]:
        words.append(str(row["weights"]))
        words += [PROBED] if row["training"] == PROBED else []
    return ", ".join(words)


def _intervals(
    axis: Axes, names: Sequence[str], figures: pd.DataFrame, colors: Sequence[str]
) -> None:
    """Plot one line per predictor from top to bottom, with its interval."""
    values = figures.to_numpy(dtype=float)  # (N, 3): value, low, high
    for place, ((value, low, high), color) in enumerate(
        zip(values, colors, strict=True)
    ):
        if low == low:
            axis.plot([low, high], [place, place], "-", color=color, linewidth=1.2)
        axis.plot([value], [place], "o", color=color, markersize=5)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.4, -0.6)


_LINES_APART = 0.16  # distance of two points of one mechanism, in lines
_BELOW = -0.42  # inches; puts the legend below the axis labels for any number of lines


_LINES: Sequence[Mapping[str, Any]] = [
    {"color": color, "marker": marker, "linestyle": line, "markersize": 4}
    for line, marker in (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"))
    for color in SERIES
] * 5


def mechanism_figure(found: AblationResult, path: Path) -> None:
    """Plot one line per mechanism: bits per base at equal steps and time, speed, memory, AUROC of tracks."""
    names = found.names
    tracks = {name: reached for name, reached in found.tracks.items() if reached}
    with panels(1, 3 + bool(tracks), 3.4, 1.7 + 0.26 * len(names), sharey=True) as (
        figure,
        axes,
    ):
        groups = {"equal steps": found.steps, "equal time": found.time}
        _points(axes[0], names, groups, (BLUE, VERMILION))
        axes[0].set(xlabel="bits per base, test", title="Masked tokens")
        axes[0].locator_params(axis="x", nbins=5)
        axes[0].axvline(
            found.steps[found.section.reference].value.value,
            color=GRAY,
            linewidth=0.8,
            zorder=1,
        )
        axes[1].xaxis.set_major_formatter("{x:,.0f}")
        axes[1].locator_params(axis="x", nbins=4)  # more labels would overlap
        for axis, key, label in (
            (axes[1], "tokens_per_second", "training tokens/s"),
            (axes[2], "peak_mib", "peak memory per step (MiB)"),
        ):
            values = [found.cost(name, found.section.tokens)[key] for name in names]
            axis.barh(range(len(names)), values, height=0.6, color=GREEN)
            axis.set(xlabel=label)
        axes[1].set_title(f"{found.section.tokens:,} tokens per input")
        if tracks:
            _points(axes[3], names, tracks, (PURPLE, VERMILION, BLUE, GREEN))
            axes[3].axvline(0.5, color=GRAY, linewidth=0.8, zorder=1)
            axes[3].set(xlabel="AUROC, test", title="Long-range tracks")
        axes[0].set_yticks(range(len(names)), names)
        axes[0].set_ylim(len(names) - 0.4, -0.6)
        save_figure(figure, path)


def length_figure(found: AblationResult, path: Path) -> None:
    """Plot bits per base, training time per token, and memory against the input length."""
    lengths = found.lengths
    with panels(1, 3, 4.2, 4.4) as (figure, axes):
        for name, looks in zip(found.names, _LINES, strict=False):
            reached = [(tokens, of[name].value.value) for tokens, of in lengths.items()]
            axes[0].plot(*zip(*reached, strict=True), label=name, **looks)
            rows = found.costs[name].lengths
            measured = [row.tokens for row in rows]
            axes[1].plot(
                measured, [1e6 / row.tokens_per_second for row in rows], **looks
            )
            axes[2].plot(measured, [row.peak for row in rows], **looks)
        labels = (
            "bits per base, test",
            "training time per token (µs)",
            "peak memory per step (MiB)",
        )
        for place, (axis, label) in enumerate(zip(axes, labels, strict=True)):
            axis.set(xscale="log", xlabel="input length (tokens)", ylabel=label)
            # Unmeasured memory has no line, and a logarithmic axis needs at least one value.
            if (
                any(
                    np.nan_to_num(line.get_ydata()).max(initial=0) > 0
                    for line in axis.lines
                )
                and place
            ):
                axis.set_yscale("log")
                for formatter in (
                    axis.yaxis.set_major_formatter,
                    axis.yaxis.set_minor_formatter,
                ):
                    formatter("{x:g}")
            axis.set_xticks(
                sorted(lengths), [f"{tokens:,}" for tokens in sorted(lengths)]
            )
            axis.xaxis.minorticks_off()
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=5)
        save_figure(figure, path)


def _points(
    axis: Axes,
    names: Sequence[str],
    groups: Mapping[str, ByMechanism],
    colors: Sequence[str],
) -> None:
    """Plot a point with its interval per mechanism with a value, and a ring per seed if there are several
    seeds."""
    from matplotlib.transforms import ScaledTranslation

    for number, (label, reached) in enumerate(groups.items()):
        color = colors[number % len(colors)]
        aside = (number - (len(groups) - 1) / 2) * 2 * _LINES_APART
        rows = [
            (place + aside, reached[name].value)
            for place, name in enumerate(names)
            if name in reached
        ]
        height, values = [row[0] for row in rows], [row[1].value for row in rows]
        ends = np.array(
            [[one.value - one.low, one.high - one.value] for _, one in rows]
        ).T
        axis.errorbar(
            values,
            height,
            xerr=np.nan_to_num(np.abs(ends)),
            fmt="o",
            markersize=4,
            linewidth=1.2,
            color=color,
            label=label,
        )
        for place, name in enumerate(names):
            seeds = list(reached[name].by_seed.values()) if name in reached else []
            if len(seeds) > 1:
                heights = [place + aside] * len(seeds)
                axis.scatter(
                    seeds,
                    heights,
                    s=12,
                    facecolors="none",
                    edgecolors=color,
                    linewidths=0.8,
                )
    figure = axis.get_figure()
    assert figure is not None
    below = axis.transAxes + ScaledTranslation(0, _BELOW, figure.dpi_scale_trans)
    axis.legend(
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=below,
        ncols=2,
        fontsize=8,
    )
