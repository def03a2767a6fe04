"""Results as tables (TSV, JSON and Markdown from one schema), and plots in a common style.

In Markdown, a metric and its interval are in one cell, and published metrics are marked with a dagger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.disk.atomic import atomic_path, write_json
from bigbird_dna.disk.tables import Schema, json_rows, write_table
from bigbird_dna.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Palette of Okabe & Ito (2008), distinguishable under the common forms of color blindness.
BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, SKY, ORANGE = "#CC79A7", "#56B4E9", "#E69F00"
SERIES = (BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE)
GRAY, PALE, INK = "#7A7A7A", "#D9D9D9", "#222222"

_MOST_TICKS = 100  # of a logarithmic axis
FORMATS = (".svg", ".png", ".pdf")

_PARAMETERS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelsize": 10,
    "axes.labelcolor": INK,
    "axes.edgecolor": GRAY,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E8E8E8",
    "grid.linewidth": 0.8,
    "xtick.color": GRAY,
    "ytick.color": GRAY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "text.color": INK,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    # Salt of the hashes used as ids in SVG, so that the same plot gives the same file.
    "svg.hashsalt": "bigbird_dna",
    "path.simplify_threshold": 0.2,
}


@contextmanager
def panels(
    rows: int, columns: int, width: float, height: float, **grid: Any
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a `Figure` of `rows` × `columns` panels of `width` × `height` inches, and its axes in row order.

    Draw and save inside the block: the style applies only there, and no global state is changed.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_PARAMETERS):  # type: ignore[arg-type]
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, **grid)
        yield figure, list(axes.flat)


def add_legend(axis: Axes) -> None:
    """Add a legend at the best location, if there is anything to label."""
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="best")


def legend_label(name: str) -> str:
    """Return a name as a label: matplotlib leaves those that begin with "_" out of legends."""
    return f"\u200b{name}" if name.startswith("_") else name


def square_panel(axis: Axes, title: str, rows: str, legend: str) -> None:
    """Set both axes of a panel to 0–1; add a title, and the text `rows` above the panel.

    The legend with its title is below the panel, where it hides no curve.
    """
    axis.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    axis.set_box_aspect(1)
    axis.set_anchor("N")
    axis.set_title(title)
    axis.text(
        1, 1.02, rows, transform=axis.transAxes, ha="right", va="bottom", fontsize=9, color=GRAY
    )  # fmt: skip
    if axis.get_legend_handles_labels()[0]:
        axis.legend(
            loc="upper left",
            bbox_to_anchor=(-0.04, -0.14),
            title=legend,
            alignment="left",
        )
    else:
        axis.text(
            0.5,
            0.5,
            "one class only",
            ha="center",
            color=GRAY,
            transform=axis.transAxes,
        )


def show_text(axis: Axes, text: str) -> None:
    """Show text in a panel that has no data."""
    axis.text(
        0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes, color=GRAY
    )
    axis.set(xticks=[], yticks=[])


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Write SVG, PNG or PDF, by the suffix of `path`, atomically and without a date.

    A `$` in a text is a dollar sign, not the beginning of a formula: texts are names from users' files.
    """
    from matplotlib import rc_context
    from matplotlib.text import Text
    from matplotlib.ticker import LogFormatter

    check_format(path)
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(
        path.suffix.lower()
    )
    with rc_context({"text.parse_math": False}), atomic_path(path) as temporary:
        texts: Any = figure.findobj(Text)
        for text in texts:
            text.set_parse_math(False)
        for axis in (
            one for panel in figure.axes for one in (panel.xaxis, panel.yaxis)
        ):
            # The labels of logarithmic axes, such as 10², are formulas.
            ticks = (
                [*axis.get_major_ticks(_MOST_TICKS)]
                if isinstance(axis.get_major_formatter(), LogFormatter)
                else []
            )
            if isinstance(axis.get_minor_formatter(), LogFormatter):
                ticks += axis.get_minor_ticks(_MOST_TICKS)
            for tick in ticks:
                tick.label1.set_parse_math(True)
                tick.label2.set_parse_math(True)
        figure.savefig(temporary, metadata=metadata, dpi=dpi)


def check_format(path: Path) -> None:
    """Raise `UsageError` if the suffix of a plot's file name is not in `FORMATS`."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(
            f"{path}: the file name of a plot must end in {', '.join(FORMATS)}"
        )


def interval(value: float, low: float, high: float, *, form: str = ".3f") -> str:
    """Format a value and its interval as in legends: `0.894 [0.871, 0.917]`."""
    if value != value:
        return "not defined"
    return (
        f"{value:{form}}"
        if low != low
        else f"{value:{form}} [{low:{form}}, {high:{form}}]"
    )


@dataclass(frozen=True)
class ResultTable:
    """Results with a title and notes."""

    title: str
    schema: Schema
    frame: pd.DataFrame
    notes: Sequence[str] = ()

    @property
    def note(self) -> str:
        """The notes as one string."""
        return " ".join(self.notes)


def write_result(
    directory: Path,
    name: str,
    result: ResultTable,
    draw: Callable[[ResultTable, Path], None] | None = None,
    *,
    page: Callable[[ResultTable], str] | None = None,
) -> None:
    """Write NAME.tsv, NAME.json and NAME.md into a directory, and NAME.svg if `draw` is given.

    `page` returns the content of the Markdown file; None: title, table and notes.
    """
    write_table(directory / f"{name}.tsv", result.frame, result.schema)
    content = {
        "title": result.title,
        "note": result.note,
        "rows": json_rows(result.frame),
    }
    write_json(directory / f"{name}.json", content)
    (directory / f"{name}.md").write_text(
        (page or result_page)(result), encoding="utf-8"
    )
    if draw is not None:
        draw(result, directory / f"{name}.svg")


def result_page(
    result: ResultTable, show: Callable[[float], str] = "{:.3f}".format
) -> str:
    """Return a result in Markdown; `show` formats numbers without an interval."""
    parts = [f"# {result.title}", markdown(readable(result.frame, show))]
    parts += [f"† {result.note}"] * bool(result.notes)
    return "\n\n".join(parts) + "\n"


def readable(table: pd.DataFrame, show: Callable[[float], str]) -> pd.DataFrame:
    """Return the cells of a table as text, "" for NaN; `show` formats numbers without an interval.

    Columns X_low and X_high are merged into X as its interval. Values of columns named published… get a
    dagger, except those of published…_of, which name the published quantity.
    """
    cells = table.astype(object)
    for column in map(str, table.columns):
        ends = [f"{column}_low", f"{column}_high"]
        if ends[0] in table:
            estimates = table[[column, *ends]].itertuples(index=False, name=None)
            cells[column] = [
                "" if math.isnan(row[0]) else interval(*row) for row in estimates
            ]
            cells = cells.drop(columns=ends)
    for column in map(str, cells.columns):
        mark = (
            " †"
            if column.startswith("published") and not column.endswith("_row")
            else ""
        )
        cells[column] = [
            text and text + mark
            for text in (_text(cell, show) for cell in cells[column])
        ]
    return cells


def markdown(cells: pd.DataFrame) -> str:
    """Return a table in Markdown without a final line break; cells must have no unescaped "|"."""
    head = [str(column).replace("_", " ") for column in cells.columns]
    lines = [head, ["---"] * len(head), *cells.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(value: object, show: Callable[[float], str]) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else show(value)
    return str(value).replace("|", "\\|")
