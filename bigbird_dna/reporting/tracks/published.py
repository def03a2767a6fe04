"""Published AUROCs of tracks, from a table with names of tracks or in their order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from bigbird_dna.errors import DataError, shortened
from bigbird_dna.reporting.tables import read_tsv

# The first of these columns is taken, else the only one that begins with "auc" or "auroc".
_COLUMNS = ("published_auroc", "auroc", "auc")


def read_published(path: Path, names: Sequence[str]) -> list[float]:
    """The published AUROC of each track in `names`, NaN where there is none.

    The table is tab-separated with a header. With a column `track` rows are found by name and others
    are left out; without it there must be a row for each track, in order, and a column `index`, if
    there is one, must count them from 0. Cells that are empty or begin with NA are no figure.

    Raises
    ------
    DataError
        The file can't be read as such a table, no name or no figure in it is of use, or a figure is
        outside 0 to 1.
    """
    table = read_tsv(path, text=True)
    column = _column(path, [str(name) for name in table.columns])
    figures = [_figure(path, row + 2, text) for row, text in enumerate(table[column])]
    if "track" in table:
        doubled = table["track"][table["track"].duplicated()]
        if len(doubled):
            raise DataError(f"{path}: track {doubled.iloc[0]!r} stands in it twice")
        known = dict(zip(table["track"], figures, strict=True))
        found = [known.get(name, math.nan) for name in names]
        if not set(names) & set(known):
            raise DataError(f"{path}: none of its tracks is called as one of the report's")
    else:
        if len(figures) != len(names):
            raise DataError(f"{path}: {len(figures)} rows and no column 'track', for {len(names)} tracks")
        if "index" in table:
            for row, text in enumerate(table["index"]):
                if text != str(row):
                    raise DataError(f"{path}: line {row + 2}: index {text!r}, expected {row}")
        found = figures
    if all(math.isnan(value) for value in found):
        raise DataError(f"{path}: column {column!r} has no figure for any track")
    return found


def _column(path: Path, columns: Sequence[str]) -> str:
    for name in _COLUMNS:
        if name in columns:
            return name
    near = [name for name in columns if name.startswith(("auc", "auroc"))]
    if len(near) == 1:
        return near[0]
    listed = shortened(", ".join(columns), 300)
    raise DataError(f"{path}: no column 'published_auroc', 'auroc' or 'auc' (found: {listed})")


def _figure(path: Path, line: int, text: str) -> float:
    text = text.strip()
    if not text or text.upper().startswith("NA"):
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise DataError(f"{path}: line {line}: AUROC {text!r} is not a number from 0 to 1")
    return value
