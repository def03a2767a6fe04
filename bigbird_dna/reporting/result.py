"""A table of results for readers and programs: TSV, JSON and Markdown from one schema.

In Markdown a metric and its interval are one cell, and published metrics have a dagger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.tables import Schema, json_rows, write_table
from bigbird_dna.reporting.style import interval

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ResultTable:
    """Results under a title, with notes on all of them."""

    title: str
    schema: Schema
    frame: pd.DataFrame
    notes: Sequence[str] = ()

    @property
    def note(self) -> str:
        """The notes as one text."""
        return " ".join(self.notes)


def write_result(
    directory: Path,
    name: str,
    result: ResultTable,
    draw: Callable[[ResultTable, Path], None] | None = None,
    *,
    page: Callable[[ResultTable], str] | None = None,
) -> None:
    """Write NAME.tsv, NAME.json and NAME.md into a directory, and with `draw` NAME.svg.

    `page` is what the Markdown file holds; None: the title, the table and the notes.
    """
    write_table(directory / f"{name}.tsv", result.frame, result.schema)
    content = {"title": result.title, "note": result.note, "rows": json_rows(result.frame)}
    write_json(directory / f"{name}.json", content)
    (directory / f"{name}.md").write_text((page or result_page)(result), encoding="utf-8")
    if draw is not None:
        draw(result, directory / f"{name}.svg")


def result_page(result: ResultTable, show: Callable[[float], str] = "{:.3f}".format) -> str:
    """A result in Markdown; numbers without an interval are shown by `show`."""
    parts = [f"# {result.title}", markdown(readable(result.frame, show))]
    parts += [f"† {result.note}"] * bool(result.notes)
    return "\n\n".join(parts) + "\n"


def readable(table: pd.DataFrame, show: Callable[[float], str]) -> pd.DataFrame:
    """The cells of a table as texts, "" for undefined numbers; `show` formats those without an interval.

    The columns X_low and X_high go into X, as its interval. Numbers of columns called published… get a
    dagger; what they are numbers of (published…_of) doesn't.
    """
    cells = table.astype(object)
    for column in map(str, table.columns):
        ends = [f"{column}_low", f"{column}_high"]
        if ends[0] in table:
            estimates = table[[column, *ends]].itertuples(index=False, name=None)
            cells[column] = ["" if math.isnan(row[0]) else interval(*row) for row in estimates]
            cells = cells.drop(columns=ends)
    for column in map(str, cells.columns):
        mark = " †" if column.startswith("published") and not column.endswith("_of") else ""
        cells[column] = [text and text + mark for text in (_text(cell, show) for cell in cells[column])]
    return cells


def markdown(cells: pd.DataFrame) -> str:
    """A table in Markdown, without a line break at its end; cells are texts, in which no "|" stands bare."""
    head = [str(column).replace("_", " ") for column in cells.columns]
    lines = [head, ["---"] * len(head), *cells.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(value: object, show: Callable[[float], str]) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else show(value)
    return str(value).replace("|", "\\|")
