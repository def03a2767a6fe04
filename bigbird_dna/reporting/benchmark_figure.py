"""A picture of a benchmark: time and memory against length, or bars where there is one length."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.reporting.benchmark_table import label, pass_title, seconds
from bigbird_dna.reporting.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    check_format,
    panels,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colour, marker and line of each contender, the same in every figure; no two share two of the three.
LOOKS = {
    "native": (BLUE, "o", "-"),
    "blocked": (SKY, "s", "-"),
    "flex": (GREEN, "D", "-"),
    "dense": (GREY, "v", ":"),
    "auto": (INK, "P", "-"),
    "sdpa": (ORANGE, "^", "--"),
    "sdpa-mask": (PURPLE, "X", "--"),
    "huggingface": (VERMILLION, "h", "-."),
    "bigbird": (BLUE, "o", "-"),
    "full": (ORANGE, "^", "--"),
}
QUANTITIES = {"median": "seconds a call", "peak_mib": "peak memory, MiB"}


def benchmark_figure(benchmark: Mapping[str, Any], path: Path) -> None:
    """Draw the contents of a benchmark.json: time (left) and memory (right) of each pass."""
    check_format(path)
    rows = benchmark["results"]
    works = list(dict.fromkeys(row["pass"] for row in rows))
    several = len({row["length"] for row in rows}) > 1
    height = 3.3 if several else 1.2 + 0.4 * len({row["contender"] for row in rows})
    with panels(len(works), 2, 4.6, height + 0.3 * (several and len(works) == 1)) as (figure, axes):
        for place, (work, (key, name)) in enumerate(
            (work, quantity) for work in works for quantity in QUANTITIES.items()
        ):
            axis = axes[place]
            values = _values(benchmark, work, key)
            if several:
                _draw_lines(axis, values)
                axis.set(xlabel="tokens", ylabel=name)
            else:
                _draw_bars(axis, values, key)
                axis.set_xlabel(name)
            if key == "median":
                axis.set_title(pass_title(benchmark, work))
        if several:
            named = {
                name: handle
                for axis in axes
                for handle, name in zip(*axis.get_legend_handles_labels(), strict=True)
            }
            if named:
                figure.legend(
                    handles=list(named.values()),
                    labels=list(named),
                    loc="outside lower center",
                    ncols=min(4, len(named)),
                )
        save_figure(figure, path)


def _values(benchmark: Mapping[str, Any], work: str, key: str) -> dict[str, dict[int, float]]:
    """Value by length of each contender that has one; zero has no place on a logarithmic axis."""
    values: dict[str, dict[int, float]] = {}
    for row in benchmark["results"]:
        if row["pass"] == work and row["status"] == "measured" and (row[key] or 0) > 0:
            values.setdefault(row["contender"], {})[row["length"]] = row[key]
    return values


def _draw_lines(axis: Axes, values: Mapping[str, Mapping[int, float]]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    for contender, points in values.items():
        colour, marker, line = LOOKS.get(contender, (INK, "d", "-"))
        axis.plot(
            list(points),
            list(points.values()),
            color=colour,
            marker=marker,
            linestyle=line,
            markersize=5,
            label=label(contender),
        )
    lengths = sorted({length for points in values.values() for length in points})
    axis.set_xticks(lengths, [_tokens(length) for length in lengths])
    axis.minorticks_off()
    axis.yaxis.set_major_locator(LogLocator(10))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def _draw_bars(axis: Axes, values: Mapping[str, Mapping[int, float]], key: str) -> None:
    names = list(values)[::-1]
    numbers = [next(iter(values[name].values())) for name in names]
    colours = [LOOKS.get(name, (INK, "", ""))[0] for name in names]
    axis.barh(range(len(names)), numbers, height=0.62, color=colours)
    for place, number in enumerate(numbers):
        text = seconds(number) if key == "median" else f"{number:,.0f} MiB"
        axis.text(number, place, f" {text}", va="center", fontsize=9)
    axis.set_yticks(range(len(names)), [label(name) for name in names])
    axis.set_xlim(0, 1.35 * max(numbers, default=1))
    axis.grid(visible=False)
    axis.tick_params(axis="y", length=0)


def _tokens(length: int) -> str:
    """4096 as 4k, the way lengths are spoken of."""
    return f"{length // 1024}k" if length % 1024 == 0 else str(length)
