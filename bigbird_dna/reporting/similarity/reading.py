"""Tables of nearest windows, checked and lined up with the windows that were predicted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError
from bigbird_dna.reporting.similarity.strata import SIMILARITY
from bigbird_dna.reporting.tables import read_tsv

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = ("start", "end", "pair", "label")


def read_similarities(path: Path, key: Sequence[str]) -> pd.DataFrame:
    """The columns `key`, which tell windows apart, and `similarity`, of a table of nearest windows.

    Raises
    ------
    DataError
        It is not such a table: a column is missing, a cell isn't a number or outside [0, 1], or a window is
        there twice.
    """
    text = read_tsv(path, [*key, SIMILARITY], text=True)
    table = text[[*key, SIMILARITY]].copy()
    for name in table.columns:
        if name in NUMBERS:
            table[name] = _whole(path, name, text[name].tolist())
    values = [_share(path, row, cell) for row, cell in enumerate(text[SIMILARITY].tolist(), start=1)]
    table[SIMILARITY] = np.array(values, np.float64)
    twice = table.duplicated([*key]).to_numpy()
    if twice.any():
        raise DataError(f"{path}: row {int(twice.argmax()) + 1:,}: its window was there before")
    return table


def similarities_of(
    path: Path, windows: pd.DataFrame, key: Sequence[str], where: Path
) -> NDArray[np.float64]:
    """The similarity (N,) of each of some `windows`, which are those of the file `where`.

    Raises
    ------
    DataError
        As `read_similarities`; or the table lacks a window.
    """
    table = read_similarities(path, key)
    windows = windows[[*key]].astype({name: table[name].dtype for name in key})
    found = windows.merge(table, how="left", on=[*key])[SIMILARITY].to_numpy(np.float64)
    missing = np.isnan(found)
    if missing.any():
        row = windows.iloc[int(missing.argmax())]
        window = f"{row['contig']}:{row['start']}-{row['end']}"
        raise DataError(
            f"{path}: has no window {window}, which {where} has ({int(missing.sum()):,} are missing): they "
            "don't belong together"
        )
    return found


def _whole(path: Path, name: str, cells: Sequence[str]) -> list[int]:
    values = []
    for row, cell in enumerate(cells, start=1):
        if not (cell.isdecimal() and cell.isascii() and len(cell) <= 18):
            raise DataError(f"{path}: row {row:,}: {name} {cell!r:.60} is not a whole number")
        values.append(int(cell))
    return values


def _share(path: Path, row: int, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise DataError(f"{path}: row {row:,}: {SIMILARITY} {cell!r:.60} is not a number from 0 to 1")
    return value
