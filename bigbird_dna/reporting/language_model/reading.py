"""Tables of bits per base that `evaluate pretraining` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bigbird_dna.errors import DataError
from bigbird_dna.reporting.language_model.table import COLUMNS, FIGURES, MODEL, SPLIT
from bigbird_dna.reporting.tables import read_tsv

if TYPE_CHECKING:
    import pandas as pd


def read_bits(path: Path) -> pd.DataFrame:
    """Read such a table: `split` and the columns `COLUMNS`, for each split a row of the model.

    Raises
    ------
    DataError
        A column is missing, a figure is not a number, a predictor stands twice or the model nowhere.
    """
    import pandas as pd

    table = read_tsv(path, [SPLIT, *COLUMNS], text=True)
    for name in FIGURES:
        figures = pd.to_numeric(table[name].replace("", "nan"), errors="coerce")
        wrong = figures.isna() & ~table[name].isin(["", "nan", "NaN"])
        if name == FIGURES[0]:
            wrong |= figures.isna()
        if wrong.any():
            raise DataError(f"{path}: {name} {table[name][wrong].iloc[0]!r:.60} is not a number")
        table[name] = figures
    doubled = table.duplicated([SPLIT, "predictor"])
    if doubled.any():
        row = table[doubled].iloc[0]
        raise DataError(f"{path}: {row['predictor']!r:.60} stands twice for split {row[SPLIT]!r:.60}")
    for split, rows in table.groupby(SPLIT):
        if MODEL not in set(rows["predictor"]):
            raise DataError(f"{path}: split {split!r:.60} has no row {MODEL!r}")
    if table.empty:
        raise DataError(f"{path}: no row in the table")
    return table


def of_split(table: pd.DataFrame, split: str) -> pd.DataFrame:
    """The rows of a split; without any those of the first one there is."""
    rows = table[table[SPLIT] == split]
    return rows if len(rows) else table[table[SPLIT] == table[SPLIT].iloc[0]]
