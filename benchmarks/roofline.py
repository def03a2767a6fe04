"""The roofs of a machine, and a plot of what contenders reach below them.

A point is a contender: operations per byte that has to be moved, by its shapes (see `counts`), against
operations per second. The lines are the rate of matrix products, and the rate at which the memory supplies
operands.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.figure import looks_of
from benchmarks.page import label
from benchmarks.timing import matrix_product, turns
from bigbird_dna.reporting import result as style

COPIED = 1 << 28  # bytes of a copy: more than any cache
Shape = tuple[int, int, int]
SHAPES: Sequence[Shape] = (
    (256, 256, 256),
    (1024, 1024, 1024),
    (2048, 1024, 4096),
)  # of products; none is always the fastest
PRECISIONS = (torch.float32, torch.bfloat16)


def measure_roofs(
    repeats: int, copied: int = COPIED, shapes: Sequence[Shape] = SHAPES
) -> dict[str, Any]:
    """The highest rates of matrix products, by precision (operations/s), and of copies (bytes/s)."""
    source, cpu = torch.ones(copied // 4), torch.device("cpu")
    target = torch.zeros_like(source)
    products = [(shape, dtype) for dtype in PRECISIONS for shape in shapes]
    calls = [matrix_product(*shape, dtype, cpu) for shape, dtype in products]
    copies, *times = turns([lambda: (target.copy_(source),), *calls], repeats)
    rates: dict[str, float] = {}
    for (shape, dtype), seconds in zip(products, times, strict=True):
        name = str(dtype).removeprefix("torch.")
        rates[name] = max(rates.get(name, 0.0), 2 * math.prod(shape) / min(seconds))
    return {
        "rates": rates,
        "bandwidth": 2 * copied / min(copies),
        "copied": copied,
    }  # read and written


def draw_roofline(result: Mapping[str, Any], path: Path) -> None:
    """Draw the rows of a result that have a `panel`, the name of a `point`, and whether it is `hollow`."""
    rows = [
        row
        for row in result["results"]
        if row.get("panel") and row.get("rate") and row["bytes"]
    ]
    panels = list(dict.fromkeys(row["panel"] for row in rows)) or [""]
    lines = -(-len(panels) // 2)
    limits = _limits(rows, result["roofs"])
    with style.panels(lines, min(len(panels), 2), 4.9, 4.4) as (figure, axes):
        for axis, panel in zip(axes, panels, strict=False):
            shown = [row for row in rows if row["panel"] == panel]
            _draw_roofs(axis, result["roofs"], limits, _precisions(shown))
            _draw_points(axis, shown)
            axis.set_title(panel)
            if axis.get_legend_handles_labels()[0]:
                axis.legend(
                    loc="upper center",
                    bbox_to_anchor=(0.45, -0.16),
                    ncols=2,
                    columnspacing=1.2,
                )
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        style.save_figure(figure, path)


Limits = tuple[tuple[float, float], tuple[float, float]]


def _limits(rows: Sequence[Mapping[str, Any]], roofs: Mapping[str, Any]) -> Limits:
    """The range of operations per byte and of GFLOP/s that shows all points and the corner of the roofs."""
    products = [roofs["rates"][precision] for precision in _precisions(rows)]
    corners = [rate / roofs["bandwidth"] for rate in products]
    across = [*corners, *(row["operations"] / row["bytes"] for row in rows)]
    left = min(across) / 4
    rates = [left * roofs["bandwidth"], *products, *(row["rate"] for row in rows)]
    return (left, max(across) * 3), (min(rates) / 2e9, max(rates) * 4 / 1e9)


def _precisions(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        *dict.fromkeys(["float32", *(row.get("precision", "float32") for row in rows)])
    ]


def _draw_roofs(
    axis: Axes, roofs: Mapping[str, Any], limits: Limits, precisions: Sequence[str]
) -> None:
    (left, right), (low, high) = limits
    across = np.geomspace(left, right, 400)
    lines = [f"{roofs['bandwidth'] / 1e9:.3g} GB/s copied"]
    for precision in precisions:
        rate, style_ = (
            roofs["rates"][precision],
            "-" if precision == "float32" else "--",
        )
        heights = np.minimum(rate, across * roofs["bandwidth"]) / 1e9
        axis.plot(across, heights, color=style.INK, linestyle=style_, linewidth=1.2)
        lines.append(
            f"{rate / 1e9:.3g} GFLOP/s, products in {precision}{' (dashed)' * (style_ == '--')}"
        )
    axis.text(
        0.02, 0.98, "\n".join(lines), transform=axis.transAxes, va="top", fontsize=8
    )
    axis.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    axis.set(xlabel="operations per byte", ylabel="GFLOP/s")
    for each in (axis.xaxis, axis.yaxis):
        each.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        each.set_minor_formatter(NullFormatter())


def _draw_points(axis: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    names = list(dict.fromkeys(row["point"] for row in rows))
    looks = dict(zip(names, looks_of(names), strict=True))
    named: set[str] = set()
    for row in sorted(rows, key=lambda row: bool(row["hollow"])):
        color, marker, _ = looks[row["point"]]
        text = None if row["point"] in named else label(row["point"])
        named.add(row["point"])
        axis.plot(
            row["operations"] / row["bytes"],
            row["rate"] / 1e9,
            color=color,
            marker=marker,
            markerfacecolor="none" if row["hollow"] else color,
            markeredgecolor=color if row["hollow"] else "white",
            markersize=8,
            linestyle="",
            label=text,
        )
