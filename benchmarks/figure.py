"""A picture of a benchmark: time and memory against length, or bars where there is one length."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks.page import label, seconds, title
from bigbird_dna.reporting import result as style

# Color, marker and line of each contender, the same in every figure; no two share two of the three.
LOOKS = {
    "native": (style.BLUE, "o", "-"),
    "blocked": (style.SKY, "s", "-"),
    "flex": (style.GREEN, "D", "-"),
    "dense": (style.GRAY, "v", ":"),
    "auto": (style.INK, "P", "-"),
    "sdpa": (style.ORANGE, "^", "--"),
    "sdpa-mask": (style.PURPLE, "X", "--"),
    "convolution": (style.PURPLE, "P", ":"),
    "huggingface": (style.VERMILION, "h", "-."),
    "bigbird": (style.BLUE, "o", "-"),
    "full": (style.ORANGE, "^", "--"),
}
# Of contenders by any other name, in the order of the figure.
OTHER_LOOKS = [
    (color, marker, line)
    for line, marker in (("-", "o"), ("--", "s"), (":", "D"))
    for color in (
        style.BLUE,
        style.ORANGE,
        style.GREEN,
        style.VERMILION,
        style.SKY,
        style.PURPLE,
    )
]
QUANTITIES = {"median": "seconds per call", "peak_mib": "peak memory, MiB"}


def draw(benchmark: Mapping[str, Any], path: Path) -> None:
    """Draw the contents of a benchmark.json: time (left) and memory (right) of each pass."""
    results = benchmark["results"]
    works = list(dict.fromkeys(row["pass"] for row in results))
    several = len({row["length"] for row in results}) > 1
    height = 3.3 if several else 1.2 + 0.4 * len({row["contender"] for row in results})
    with style.panels(
        len(works), 2, 4.6, height + 0.3 * (several and len(works) == 1)
    ) as (figure, axes):
        named: dict[str, Any] = {}
        for place, axis in enumerate(axes):
            work, key = works[place // 2], list(QUANTITIES)[place % 2]
            # Zero has no place on a logarithmic axis.
            rows = [row for row in results if row["pass"] == work and row.get(key)]
            rows = [row for row in rows if row["status"] == "measured"]
            (_draw_lines if several else _draw_bars)(axis, rows, key)
            if key == "median":
                axis.set_title(title(benchmark, work))
            handles, labels = axis.get_legend_handles_labels()
            named |= dict(zip(labels, handles, strict=True))
        if named:
            figure.legend(
                handles=list(named.values()),
                labels=list(named),
                loc="outside lower center",
                ncols=min(4, len(named)),
            )
        style.save_figure(figure, path)


def _draw_lines(axis: Axes, rows: list[Mapping[str, Any]], key: str) -> None:
    axis.set(xscale="log", yscale="log", xlabel="tokens", ylabel=QUANTITIES[key])
    names = list(dict.fromkeys(row["contender"] for row in rows))
    for name, (color, marker, line) in zip(names, looks_of(names), strict=True):
        points = [(row["length"], row[key]) for row in rows if row["contender"] == name]
        looks: dict[str, Any] = {
            "color": color,
            "marker": marker,
            "linestyle": line,
            "markersize": 5,
        }
        axis.plot(*zip(*points, strict=True), label=label(name), **looks)
    lengths = sorted({row["length"] for row in rows})
    axis.set_xticks(
        lengths, [f"{n // 1024}k" if n % 1024 == 0 else str(n) for n in lengths]
    )
    axis.minorticks_off()
    axis.yaxis.set_major_locator(LogLocator(10))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def looks_of(names: list[str]) -> list[tuple[str, str, str]]:
    others = [name for name in names if name not in LOOKS]
    return [
        LOOKS.get(name) or OTHER_LOOKS[others.index(name) % len(OTHER_LOOKS)]
        for name in names
    ]


def _draw_bars(axis: Axes, rows: list[Mapping[str, Any]], key: str) -> None:
    rows = rows[::-1]  # the first on top
    names, numbers = [row["contender"] for row in rows], [row[key] for row in rows]
    axis.barh(
        range(len(rows)),
        numbers,
        height=0.62,
        color=[look[0] for look in looks_of(names)],
    )
    for place, number in enumerate(numbers):
        text = seconds(number) if key == "median" else f"{number:,.0f} MiB"
        axis.text(number, place, f" {text}", va="center", fontsize=9)
    axis.set_yticks(range(len(rows)), [label(name) for name in names])
    axis.set(xlabel=QUANTITIES[key], xlim=(0, 1.35 * max(numbers, default=1)))
    axis.grid(visible=False)
    axis.tick_params(axis="y", length=0)
