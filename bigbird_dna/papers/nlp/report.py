"""Page of the tasks on text: measured and published values, and curves of pretraining."""

from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from bigbird_dna.disk.atomic import atomic_path, read_json
from bigbird_dna.errors import DataError

WIDTH, HEIGHT, LEFT, FOOT = 560, 220, 60, 30  # plot size and margins, pixels


def report_tasks(evaluations: Sequence[Path], output: Path) -> None:
    """Write the page from files of `bigbird-dna nlp evaluate`; `DataError` if a file is damaged."""
    from jinja2 import Environment

    rows, curves = [], []
    for path in evaluations:
        values = read_json(path)
        try:
            rows += _rows(values)
            curves += _curves(values)
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
            raise DataError(f"{path}: not an evaluation of a task on text") from None
    template, style = (
        files(f"bigbird_dna.{package}").joinpath(name).read_text(encoding="utf-8")
        for package, name in (("papers.nlp", "report.html"), ("reporting", "page.css"))
    )
    sizes = {
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "version": version("bigbird-dna"),
    }
    page = (
        Environment(autoescape=True)
        .from_string(template)
        .render(rows=rows, curves=curves, style=style, **sizes)
    )
    with atomic_path(output) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _rows(values: dict[str, Any]) -> list[dict[str, str]]:
    """Return the measured and published values of a task."""
    task, kind, figures = (
        str(values["task"]),
        str(values["kind"]),
        dict(values["figures"]),
    )
    published = {str(name): float(value) for name, value in values["published"].items()}
    kept = {
        name: one
        for name, one in figures.items()
        if one is None or isinstance(one, int | float | str)
    }
    found = {name: _shown(one) for name, one in kept.items()}
    found |= {name: "" for name in published if name not in figures}
    return [
        {
            **{"task": task, "kind": kind, "figure": name.replace("_", " ")},
            **{"measured": measured, "published": _shown(published.get(name, ""))},
        }
        for name, measured in found.items()
    ]


def _shown(value: object) -> str:
    if value is None:
        return "undefined"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _curves(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return bits per character by step, and the level of the character n-gram."""
    figures = values["figures"]
    if not figures.get("curve"):
        return []
    curve = [(float(step), float(bits)) for step, bits in figures["curve"]]
    level = figures.get("character_ngram")
    heights = [bits for _, bits in curve] + (
        [float(level)] if level is not None else []
    )
    low, high, last = min(heights) * 0.97, max(heights), max(step for step, _ in curve)

    def y_of(bits: float) -> float:
        return round(15 + (HEIGHT - FOOT - 15) * (high - bits) / (high - low), 1)

    points = " ".join(
        f"{LEFT + (WIDTH - LEFT - 10) * step / last:.1f},{y_of(bits)}"
        for step, bits in curve
    )
    words = [(LEFT - 45, y_of(bits), f"{bits:.2f}") for bits in (high, min(heights))]
    words += [(LEFT, HEIGHT - 8, "0"), (WIDTH - 90, HEIGHT - 8, f"{last:,.0f} steps")]
    labels = [dict(zip(["x", "y", "text"], one, strict=True)) for one in words]
    level = None if level is None else y_of(float(level))
    return [
        {
            "task": str(values["task"]),
            "points": points,
            "level": level,
            "labels": labels,
        }
    ]
