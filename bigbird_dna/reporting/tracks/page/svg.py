"""Figures of a track report as inline SVG: strips by group, scatter plots, ROC and PR curves.

Colours are classes (`g0` … for groups, `s0` … for chosen curves) whose meaning the page's style sheet
has, so that one drawing serves light, dark and paper. Groups differ in shape as well as in colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

COLOURS = 6
# Curves that are told apart by colour.
SLOTS = 8
# A strip plot of more groups than this would fill screens.
MAX_STRIPS = 24


class Dot(NamedTuple):
    """A track in a figure: its row in the table, its group's number, what a pointer shows."""

    row: int
    group: int
    title: str
    x: float
    y: float = 0.0


class Strip(NamedTuple):
    """The tracks of one group along an axis."""

    name: str
    dots: Sequence[Dot]


class Curve(NamedTuple):
    """A track's corners (P, 2) of false and true positives, drawn in colour `slot`."""

    slot: int
    points: NDArray[np.int64]


def strip_plot(strips: Sequence[Strip], label: str, *, zero: bool = False) -> str:
    """One row a group: a dot a track, the box of the middle half and the median.

    Dots that would overlap are heaped. With `zero` the axis has a line there and reaches to both
    sides of it.
    """
    values = [dot.x for strip in strips for dot in strip.dots]
    if not values:
        return ""
    axis = _Axis.of(values + ([0.0] if zero else []), 620, left=104, upper=None if zero else 1.0)
    height = 62
    bottom = 8 + height * len(strips)
    parts = [_vertical_grid(axis, 4, bottom, label)]
    if zero:
        x = axis.at(0)
        parts.append(f'<path class="zero" d="M{x:.1f} 4V{bottom}"/>')
    for number, strip in enumerate(strips):
        middle = 8 + height * number + height / 2
        parts.append(_strip(axis, strip, middle, height))
    return _svg(640, bottom + 40, f"{label} by group", parts)


def scatter_plot(dots: Sequence[Dot], x_label: str, y_label: str) -> str:
    """A dot a track in a square, with the diagonal where both are equal."""
    low = min(0.5, *(min(dot.x, dot.y) for dot in dots))
    axis = _Axis.of([low, 1.0], 384, left=56, upper=1.0)
    size = axis.last - axis.first
    parts = [
        _square_grid(axis, size, x_label, y_label),
        f'<path class="diagonal" d="M{axis.first} {8 + size}L{axis.last} 8"/>',
    ]
    for dot in dots:
        y = 8 + size - (axis.at(dot.y) - axis.first)
        parts.append(_mark(dot, axis.at(dot.x), y))
    return _svg(400, int(size) + 52, f"{y_label} over {x_label}", parts)


def curve_plot(kind: str, curves: Sequence[Curve]) -> str:
    """ROC ("roc") or precision–recall ("pr") curves in a square; the page's script draws others."""
    axis = _Axis(0.0, 1.0, 0.2, 56.0, 384.0)
    size = axis.last - axis.first
    labels = {
        "roc": ("false positive rate", "true positive rate"),
        "pr": ("recall", "precision"),
    }[kind]
    parts = [_square_grid(axis, size, *labels)]
    if kind == "roc":
        parts.append(f'<path class="diagonal" d="M{axis.first} {8 + size}L{axis.last} 8"/>')
    drawn = "".join(
        f'<path class="curve s{curve.slot}" d="{_path(kind, curve.points, axis, size)}"/>'
        for curve in curves
    )
    parts.append(f'<g class="curves" data-kind="{kind}">{drawn}</g>')
    name = "ROC curves" if kind == "roc" else "precision–recall curves"
    return _svg(400, int(size) + 52, f"{name} of the chosen tracks", parts)


def marker(group: int) -> str:
    """The sign of a group, for legends and cells; a letter that the style sheet has."""
    return f'<span class="marker k{group % 4} m{group % COLOURS}" aria-hidden="true"></span>'


def swatch(slot: int) -> str:
    """The line of a curve, for legends."""
    return (
        '<svg class="swatch" viewBox="0 0 26 4" aria-hidden="true">'
        f'<path class="curve s{slot}" d="M0 2H26"/></svg>'
    )


class _Axis(NamedTuple):
    """Values `low` to `high`, a tick every `step`, drawn from `first` to `last`."""

    low: float
    high: float
    step: float
    first: float
    last: float

    @classmethod
    def of(cls, values: Sequence[float], last: float, left: float, upper: float | None) -> _Axis:
        low, high = min(values), max(values) if upper is None else upper
        span = max(high - low, 1e-3)
        step = 10.0 ** math.floor(math.log10(span))
        step *= next(f for f in (0.2, 0.5, 1, 2) if span / (step * f) <= 6)
        low = math.floor(low / step + 1e-9) * step
        high = math.ceil(high / step - 1e-9) * step
        return cls(low, high if high > low else low + step, step, left, last)

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)

    def ticks(self) -> list[float]:
        return [
            self.low + self.step * i for i in range(round((self.high - self.low) / self.step) + 1)
        ]

    def text(self, value: float) -> str:
        digits = max(0, -math.floor(math.log10(self.step) + 1e-9))
        return f"{value if abs(value) > 1e-12 else 0:.{digits}f}".replace("-", "−")


def _vertical_grid(axis: _Axis, top: float, bottom: float, label: str) -> str:
    parts = []
    for value in axis.ticks():
        x = axis.at(value)
        parts.append(f'<path class="grid" d="M{x:.1f} {top}V{bottom}"/>')
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">'
            f"{axis.text(value)}</text>"
        )
    x = (axis.first + axis.last) / 2
    parts.append(f'<text x="{x:.0f}" y="{bottom + 33}" text-anchor="middle">{escape(label)}</text>')
    return "".join(parts)


def _square_grid(axis: _Axis, size: float, x_label: str, y_label: str) -> str:
    parts = [_vertical_grid(axis, 8, 8 + size, x_label)]
    for value in axis.ticks():
        y = 8 + size - (axis.at(value) - axis.first)
        parts.append(f'<path class="grid" d="M{axis.first} {y:.1f}H{axis.last}"/>')
        parts.append(
            f'<text class="tick" x="{axis.first - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{axis.text(value)}</text>"
        )
    y = 8 + size / 2
    parts.append(
        f'<text x="14" y="{y:.0f}" text-anchor="middle" transform="rotate(-90 14 {y:.0f})">'
        f"{escape(y_label)}</text>"
    )
    return "".join(parts)


def _strip(axis: _Axis, strip: Strip, middle: float, height: float) -> str:
    name = strip.name if len(strip.name) <= 14 else f"{strip.name[:13]}…"
    parts = [
        f'<text class="name" x="{axis.first - 12}" y="{middle + 4:.0f}" text-anchor="end">'
        f"<title>{escape(strip.name)}</title>{escape(name)}</text>"
    ]
    if strip.dots:
        values = np.array([dot.x for dot in strip.dots])
        for dot, offset in zip(strip.dots, _heaps(axis, values, height - 14), strict=True):
            parts.append(_mark(dot, axis.at(dot.x), middle + offset))
        low, median, high = (axis.at(v) for v in np.percentile(values, (25, 50, 75)))
        half = height / 2 - 7
        parts.append(
            f'<rect class="box" x="{low:.1f}" y="{middle - half:.1f}" '
            f'width="{max(high - low, 0.5):.1f}" height="{2 * half:.1f}" rx="3"/>'
            f'<path class="median" d="M{median:.1f} {middle - half - 3:.1f}v{2 * half + 6:.1f}"/>'
        )
    return "".join(parts)


def _heaps(axis: _Axis, values: NDArray[np.float64], height: float) -> NDArray[np.float64]:
    """How far above or below the middle each dot lies so that neighbours don't hide each other."""
    width = 4.0
    bins = np.floor([axis.at(value) / width for value in values]).astype(np.int64)
    _, inverse, counts = np.unique(bins, return_inverse=True, return_counts=True)
    gap = min(width, height / max(int(counts.max()), 1))
    place = np.empty(len(values), np.int64)
    for heap in range(len(counts)):
        members = np.flatnonzero(inverse == heap)
        place[members] = np.arange(len(members))
    # 0, +1, -1, +2, -2 … from the middle outwards.
    return gap * np.where(place % 2, (place + 1) // 2, -(place // 2))


def _mark(dot: Dot, x: float, y: float) -> str:
    return (
        f'<path class="dot g{dot.group % COLOURS}" data-i="{dot.row}" '
        f'transform="translate({x:.1f} {y:.1f})" d="{_shape(dot.group, 2.4)}">'
        f"<title>{escape(dot.title)}</title></path>"
    )


def _shape(group: int, r: float) -> str:
    """Circle, square, triangle and diamond in turn."""
    kind = group % 4
    if kind == 0:
        return f"M{-r} 0a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0"
    if kind == 1:
        s = round(0.88 * r, 2)
        return f"M{-s} {-s}h{2 * s}v{2 * s}h{-2 * s}z"
    if kind == 2:
        return f"M0 {-1.2 * r:.2f}L{1.1 * r:.2f} {0.8 * r:.2f}H{-1.1 * r:.2f}z"
    return f"M0 {-1.25 * r:.2f}L{1.25 * r:.2f} 0L0 {1.25 * r:.2f}L{-1.25 * r:.2f} 0z"


def _path(kind: str, points: NDArray[np.int64], axis: _Axis, size: float) -> str:
    """The curve in drawing units; the script `curvePath` does the same."""
    false, true = points[:, 0], points[:, 1]
    if kind == "roc":
        x = axis.first + size * false / false[-1]
        y = 8 + size * (1 - true / true[-1])
        return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
    reached = np.append(False, true[1:] > true[:-1])
    x = axis.first + size * true[reached] / true[-1]
    y = 8 + size * (1 - true[reached] / (true + false)[reached])
    steps = "".join(f"V{b:.1f}H{a:.1f}" for a, b in zip(x, y, strict=True))
    return f"M{axis.first:.1f} {y[0]:.1f}{steps}"


def _svg(width: int, height: float, name: str, parts: Sequence[str]) -> str:
    return (
        f'<svg class="figure" viewBox="0 0 {width} {height:.0f}" role="img" '
        f'aria-label="{escape(name, quote=True)}">{"".join(parts)}</svg>'
    )
