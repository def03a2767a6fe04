"""Results as tables (TSV, JSON and Markdown in one step), and plots in a common style.

In Markdown, a metric and its interval are in one cell, and published metrics are marked with a dagger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.disk.atomic import atomic_path, write_json
from bigbird_dna.disk.tables import json_rows, write_tsv
from bigbird_dna.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Palette of Okabe & Ito (2008), distinguishable under the common forms of color blindness.
BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, SKY, ORANGE = "#CC79A7", "#56B4E9", "#E69F00"
GRAY, PALE, INK = "#7A7A7A", "#D9D9D9", "#222222"

FORMATS = (".svg", ".png", ".pdf")


@contextmanager
def panels(
    rows: int, columns: int, width: float, height: float, **grid: Any
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a `Figure` of `rows` × `columns` panels of `width` × `height` inches, and its axes in row order.

    Draw and save inside the block: the style applies only there, and no global state is changed.
    """
    import matplotlib
    from matplotlib.figure import Figure

    style = files("bigbird_dna.reporting").joinpath("plots.mplstyle")
    with as_file(style) as path, matplotlib.rc_context(fname=path):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, **grid)
        yield figure, list(axes.flat)


def save_figure(figure: Figure, path: Path) -> None:
    """Write SVG, PNG or PDF, by the suffix of `path`, atomically and without a date.

    A `$` in a text is a dollar sign, not the beginning of a formula: texts are names from users' files.
    """
    from matplotlib.text import Text

    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(
            f"{path}: the file name of a plot must end in {', '.join(FORMATS)}"
        )

    texts: Any = figure.findobj(Text)
    for text in texts:
        # The labels of logarithmic axes, such as 10², are formulas.
        if "$" in text.get_text() and "$\\mathdefault{" not in text.get_text():
            text.set_parse_math(False)

    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with atomic_path(path) as temporary:
        figure.savefig(temporary, metadata=dates.get(suffix), dpi=150)


RULE = (
    "The model is better or worse if the 95 % interval of the difference excludes 0; where many tracks are "
    "compared, at a false discovery rate of 5 %, which is the same rule for a single one."
)
"""The one rule that decides which of two predictors is better (Benjamini & Hochberg 1995)."""


def interval(value: float, low: float, high: float, *, form: str = ".3f") -> str:
    """Format a value and its interval as in legends: `0.894 [0.871, 0.917]`."""
    if value != value:
        return "not defined"
    return (
        f"{value:{form}}"
        if low != low
        else f"{value:{form}} [{low:{form}}, {high:{form}}]"
    )


def verdict(difference: float, low: float, high: float, *, sign: int = 1) -> str:
    """Return in words what a difference, with its interval, says about the first of two predictors.

    `sign` is that of the difference of a better predictor.
    """
    if math.isnan(low) or math.isnan(high):
        return "not compared (no interval)"
    if low <= 0 <= high:
        return "not measurably different"
    return "better" if sign * difference > 0 else "worse"


def write_result(
    directory: Path,
    name: str,
    title: str,
    table: pd.DataFrame,
    notes: Sequence[str] = (),
) -> None:
    """Write NAME.tsv, NAME.json and NAME.md into a directory."""
    write_tsv(directory / f"{name}.tsv", table)
    content = {"title": title, "note": " ".join(notes), "rows": json_rows(table)}
    write_json(directory / f"{name}.json", content)
    text = f"# {title}\n\n{markdown(readable(table, '{:.3f}'.format))}\n"
    if notes:
        text += f"\n† {' '.join(notes)}\n"

    (directory / f"{name}.md").write_text(text, encoding="utf-8")


def readable(table: pd.DataFrame, show: Callable[[float], str]) -> pd.DataFrame:
    """Return the cells of a table as text, "" for NaN; `show` formats numbers without an interval.

    Columns X_low and X_high are merged into X as its interval. Values of columns named published… get a
    dagger, except those of published…_row, which name the published quantity.
    """

    def text(cell: object) -> str:
        if isinstance(cell, float):
            return "" if math.isnan(cell) else show(cell)
        return str(cell).replace("|", "\\|")

    cells = table.astype(object)
    for column in map(str, table.columns):
        ends = [f"{column}_low", f"{column}_high"]
        if column not in cells:
            continue

        if ends[0] in table:
            estimates = table[[column, *ends]].itertuples(index=False, name=None)
            cells[column] = [
                "" if row[0] != row[0] else interval(*row) for row in estimates
            ]
            cells = cells.drop(columns=ends)

        cells[column] = cells[column].map(text)
        if column.startswith("published") and not column.endswith("_row"):
            cells[column] = [cell and f"{cell} †" for cell in cells[column]]

    return cells


def markdown(cells: pd.DataFrame) -> str:
    """Return a table in Markdown without a final line break; cells must have no unescaped "|"."""
    head = [str(column).replace("_", " ") for column in cells.columns]
    lines = [head, ["---"] * len(head), *cells.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
