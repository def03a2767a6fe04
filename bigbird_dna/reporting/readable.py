"""Tables to be read (Markdown): a figure with its interval in one cell, published figures with a dagger."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from bigbird_dna.reporting.style import interval

if TYPE_CHECKING:
    import pandas as pd


def readable(table: pd.DataFrame, show: Callable[[float], str]) -> pd.DataFrame:
    """The cells of a table as texts; undefined figures are "".

    The columns X_low and X_high go into X, as its interval. Figures of columns called published… get a
    dagger; what they are figures of (published…_of) doesn't.

    Parameters
    ----------
    show
        A fraction as it stands in a cell, if it has no interval.
    """
    cells = table.astype(object)
    for column in map(str, table.columns):
        ends = [f"{column}_low", f"{column}_high"]
        if ends[0] in table:
            figures = table[[column, *ends]].itertuples(index=False, name=None)
            cells[column] = ["" if math.isnan(row[0]) else interval(*row) for row in figures]
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
