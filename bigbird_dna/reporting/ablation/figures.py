"""Mechanisms as points with intervals, one line each; and length against bits, time and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigbird_dna.reporting.ablation.comparing import Reached
from bigbird_dna.reporting.ablation.table import Found
from bigbird_dna.reporting.style import BLUE, GREEN, GREY, PURPLE, SERIES, VERMILLION, panels, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_APART = 0.16  # of a line: two points of one mechanism
_BELOW = -0.42  # inches: legends under the labels of the axis, however many lines there are


def mechanism_figure(found: Found, path: Path) -> None:
    """A line a mechanism: bits per base at the same steps and time, speed, memory, AUROC of tracks."""
    names = found.names
    tracks = {name: reached for name, reached in found.tracks.items() if reached}
    costs = [found.costs[name].at(found.tokens) if name in found.costs else None for name in names]
    with panels(1, 3 + bool(tracks), 3.4, 1.7 + 0.26 * len(names), sharey=True) as (figure, axes):
        groups = {"same steps": found.steps, **({"same time": found.time} if found.time else {})}
        _points(axes[0], names, groups, (BLUE, VERMILLION))
        axes[0].set(xlabel="bits per base, test", title="Masked tokens")
        axes[0].locator_params(axis="x", nbins=5)
        axes[0].axvline(found.steps[found.reference].value.value, color=GREY, linewidth=0.8, zorder=1)
        axes[1].xaxis.set_major_formatter("{x:,.0f}")
        axes[1].locator_params(axis="x", nbins=4)  # more don't stand side by side
        for axis, key, label in (
            (axes[1], "tokens_per_second", "tokens a second of training"),
            (axes[2], "peak_mib", "peak memory of a step, MiB"),
        ):
            values = [np.nan if cost is None else getattr(cost, key) for cost in costs]
            axis.barh(range(len(names)), values, height=0.6, color=GREEN)
            axis.set(xlabel=label)
        axes[1].set_title(f"{found.tokens:,} tokens an input")
        if tracks:
            _points(axes[3], names, tracks, (PURPLE, VERMILLION, BLUE, GREEN))
            axes[3].axvline(0.5, color=GREY, linewidth=0.8, zorder=1)
            axes[3].set(xlabel="AUROC, test", title="Tracks told from afar")
        axes[0].set_yticks(range(len(names)), names)
        axes[0].set_ylim(len(names) - 0.4, -0.6)
        save_figure(figure, path)


def length_figure(found: Found, path: Path) -> None:
    """Bits per base, seconds a step of as many tokens, and memory, against the tokens of an input."""
    lengths = {found.tokens: found.steps, **found.lengths}
    with panels(1, 3, 4.2, 4.4) as (figure, axes):
        for name, looks in zip(found.names, _looks(), strict=False):
            reached = [(tokens, of[name].value.value) for tokens, of in lengths.items() if name in of]
            axes[0].plot(*zip(*reached, strict=True), label=name, **looks)
            if name not in found.costs:
                continue
            of_steps = found.costs[name].lengths
            rows = [(row.tokens, 1e6 / row.tokens_per_second, row.peak_mib) for row in of_steps]
            axes[1].plot([row[0] for row in rows], [row[1] for row in rows], **looks)
            axes[2].plot([row[0] for row in rows], [row[2] for row in rows], **looks)
        labels = ("bits per base, test", "µs of training a token", "peak memory of a step, MiB")
        for place, (axis, label) in enumerate(zip(axes, labels, strict=True)):
            axis.set(xscale="log", xlabel="tokens of an input", ylabel=label)
            # Memory that no system said has no line, and a logarithmic axis can't be without any.
            if any(np.nan_to_num(line.get_ydata()).max(initial=0) > 0 for line in axis.lines) and place:
                axis.set_yscale("log")
                for formatter in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
                    formatter("{x:g}")
            axis.set_xticks(sorted(lengths), [f"{tokens:,}" for tokens in sorted(lengths)])
            axis.xaxis.minorticks_off()
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=5)
        save_figure(figure, path)


def _looks() -> Sequence[Mapping[str, Any]]:
    return [
        {"color": colour, "marker": marker, "linestyle": line, "markersize": 4}
        for line, marker in (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"))
        for colour in SERIES
    ] * 5


def _points(
    axis: Axes, names: Sequence[str], groups: Mapping[str, Mapping[str, Reached]], colours: Sequence[str]
) -> None:
    """A point with its interval for each mechanism and group, a ring for each seed where there are several.

    Mechanisms without a value are left out.
    """
    from matplotlib.transforms import ScaledTranslation

    for number, (label, reached) in enumerate(groups.items()):
        colour = colours[number % len(colours)]
        aside = (number - (len(groups) - 1) / 2) * 2 * _APART
        rows = [(place + aside, reached[name].value) for place, name in enumerate(names) if name in reached]
        height, values = [row[0] for row in rows], [row[1].value for row in rows]
        ends = np.array([[one.value - one.low, one.high - one.value] for _, one in rows]).T
        axis.errorbar(
            values,
            height,
            xerr=np.nan_to_num(np.abs(ends)),
            fmt="o",
            markersize=4,
            linewidth=1.2,
            color=colour,
            label=label,
        )
        for place, name in enumerate(names):
            seeds = list(reached[name].by_seed.values()) if name in reached else []
            if len(seeds) > 1:
                heights = [place + aside] * len(seeds)
                axis.scatter(seeds, heights, s=12, facecolors="none", edgecolors=colour, linewidths=0.8)
    figure = axis.get_figure()
    assert figure is not None
    below = axis.transAxes + ScaledTranslation(0, _BELOW, figure.dpi_scale_trans)
    axis.legend(loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below, ncols=2, fontsize=8)
