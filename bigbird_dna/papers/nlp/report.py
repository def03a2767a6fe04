"""One page of tasks on text: what was measured beside what the paper has, and curves of pretraining."""

from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from bigbird_dna.disk.atomic import atomic_path, read_json
from bigbird_dna.errors import DataError

WIDTH, HEIGHT, LEFT, FOOT = 560, 220, 60, 30  # of a curve's picture, pixels
_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Tasks on text</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>{{ style }}
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; padding-left: 1.5rem; }
th { text-align: left; } .published { font-style: italic; }</style></head><body>
<h1>Tasks on text</h1>
<p>Measured here, and beside it in italics what was published for the task's data set: those figures are the
paper's, not this run's. A task without a published figure is one of this package's own.</p>
<table><thead><tr><th>task</th><th>kind</th><th>figure</th><th class="number">measured</th>
<th class="number published">published</th></tr></thead><tbody>
{% for row in rows %}{% set first = loop.first or loop.previtem.task != row.task %}<tr>
<td>{{ row.task if first }}</td><td>{{ row.kind if first }}</td><td>{{ row.figure }}</td>
<td class="number">{{ row.measured }}</td><td class="number published">{{ row.published }}</td></tr>
{% endfor %}</tbody></table>
{% for curve in curves %}<h2>{{ curve.task }}: bits per character while it learns</h2>
<p>On documents to watch; the line is the character n-gram on those to judge on, which sees all characters to
the left, also those that are hidden from the model.</p>
<svg viewBox="0 0 {{ width }} {{ height }}" width="{{ width }}" height="{{ height }}" role="img"
 aria-label="bits per character by step">
<polyline fill="none" stroke="var(--g0)" stroke-width="2" points="{{ curve.points }}"/>
{% if curve.level is not none %}<line x1="{{ left }}" x2="{{ width }}" y1="{{ curve.level }}"
 y2="{{ curve.level }}" stroke="var(--g1)" stroke-dasharray="6 4"/>{% endif %}
{% for label in curve.labels %}<text x="{{ label.x }}" y="{{ label.y }}" font-size="12"
 fill="var(--soft)">{{ label.text }}</text>{% endfor %}
</svg>{% endfor %}
<p><small>bigbird-dna {{ version }}</small></p></body></html>
"""


class TextMetric(NamedTuple):
    """A figure of a task."""

    task: str
    kind: str
    figure: str
    measured: str
    published: str


class PlotLabel(NamedTuple):
    """A word of a picture."""

    x: float
    y: float
    text: str


class BitsCurve(NamedTuple):
    """A picture of bits per character by step."""

    task: str
    points: str
    level: float | None  # of the character n-gram
    labels: tuple[PlotLabel, ...]


def report_tasks(evaluations: Sequence[Path], output: Path) -> None:
    """Write the page of what `bigbird-dna nlp evaluate` wrote; `DataError` if a file is damaged."""
    from jinja2 import Environment

    rows, curves = [], []
    for path in evaluations:
        values = read_json(path)
        try:
            rows += _rows(values)
            curves += _curves(values)
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
            raise DataError(f"{path}: not figures of a task on text") from None
    style = files("bigbird_dna.reporting").joinpath("page.css").read_text(encoding="utf-8")
    template = Environment(autoescape=True).from_string(_TEMPLATE)
    page = template.render(
        rows=rows,
        curves=curves,
        style=style,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        version=version("bigbird-dna"),
    )
    with atomic_path(output) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _rows(values: dict[str, Any]) -> list[TextMetric]:
    task, kind, figures = str(values["task"]), str(values["kind"]), dict(values["figures"])
    published = {str(name): float(value) for name, value in values["published"].items()}
    found = [
        TextMetric(task, kind, name.replace("_", " "), _shown(value), _shown(published.get(name, "")))
        for name, value in figures.items()
        if value is None or isinstance(value, int | float | str)
    ]
    missing = (name for name in published if name not in figures)
    return found + [
        TextMetric(task, kind, name.replace("_", " "), "", _shown(published[name])) for name in missing
    ]


def _shown(value: object) -> str:
    if value is None:
        return "undefined"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _curves(values: dict[str, Any]) -> list[BitsCurve]:
    figures = values["figures"]
    if not figures.get("curve"):
        return []
    curve = [(float(step), float(bits)) for step, bits in figures["curve"]]
    level = figures.get("character_ngram")
    heights = [bits for _, bits in curve] + ([float(level)] if level is not None else [])
    low, high, last = min(heights) * 0.97, max(heights), max(step for step, _ in curve)

    def y_of(bits: float) -> float:
        return round(15 + (HEIGHT - FOOT - 15) * (high - bits) / (high - low), 1)

    points = " ".join(f"{LEFT + (WIDTH - LEFT - 10) * step / last:.1f},{y_of(bits)}" for step, bits in curve)
    labels = [PlotLabel(LEFT - 45, y_of(bits), f"{bits:.2f}") for bits in (high, min(heights))]
    labels += [PlotLabel(LEFT, HEIGHT - 8, "0"), PlotLabel(WIDTH - 90, HEIGHT - 8, f"{last:,.0f} steps")]
    return [
        BitsCurve(str(values["task"]), points, None if level is None else y_of(float(level)), tuple(labels))
    ]
