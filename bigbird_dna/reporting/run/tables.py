"""Tables as the page of a run shows them: figures short, with their intervals beside them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import ENDS
from bigbird_dna.reporting.tables import read_tsv

_LOW, _HIGH = ENDS[1:]
_MOST = 5_000  # rows; a page of more would be slow


class Table(NamedTuple):
    """Headings, whether each column holds numbers, and the cells as text."""

    headings: list[str]
    numeric: list[bool]
    rows: list[list[str]]
    left_out: int  # rows beyond the first 5,000


def shown_table(path: Path) -> Table:
    """Read a table; `x`, `x_low` and `x_high` become one column, and columns without a cell none.

    Raises
    ------
    DataError
        The file can't be read, or isn't a table.
    """
    table = read_tsv(path, text=True)
    names = [str(name) for name in table.columns]
    if not names:
        raise DataError(f"{path}: has no column")
    cells = {name: [str(cell) for cell in table[name].tolist()] for name in names}
    headings, numeric, columns = [], [], []
    for name in names:
        base = name.removesuffix(_LOW).removesuffix(_HIGH)
        if (base != name and base in cells) or not any(cells[name]):
            continue
        column = [_short(cell) for cell in cells[name]]
        if name + _LOW in cells and name + _HIGH in cells:
            ends = zip(column, cells[name + _LOW], cells[name + _HIGH], strict=True)
            column = [_interval(*three) for three in ends]
        elif name == "value" and {"low", "high"} <= cells.keys():
            column = [_interval(*three) for three in zip(column, cells["low"], cells["high"], strict=True)]
        elif name in ("low", "high") and "value" in cells:
            continue
        headings.append(name.replace("_", " "))
        numeric.append(all(_is_number(cell) for cell in cells[name] if cell))
        columns.append(column)
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Table(headings, numeric, rows[:_MOST], max(0, len(rows) - _MOST))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _short(cell: str) -> str:
    """Four digits of a fraction, commas in a whole number, other text as it is."""
    if not _is_number(cell):
        return cell
    value = float(cell)
    if value.is_integer() and "." not in cell and "e" not in cell.lower():
        return f"{int(value):,}"
    return f"{value:.4f}".replace("-", "−") if 1e-3 <= abs(value) < 1e6 else f"{value:.3g}".replace("-", "−")


def _interval(value: str, low: str, high: str) -> str:
    return f"{value} [{_short(low)}, {_short(high)}]" if value and low and high else value
