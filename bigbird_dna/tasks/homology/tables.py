"""The table of nearest windows: what is known of each window, its nearest one, and how similar they are."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.console import log
from bigbird_dna.data.strata import BOUNDS, SIMILARITY, Strata, nearest_schema
from bigbird_dna.disk.tables import write_table
from bigbird_dna.genome.similarity import Nearest

ORIENTATION = "orientation"


def nearest_table(
    queries: pd.DataFrame, others: Mapping[str, npt.ArrayLike], nearest: Nearest
) -> pd.DataFrame:
    """The columns of the queries, then `similarity`, those of the nearest ones, and `orientation`.

    Parameters
    ----------
    others
        Columns of the windows that were compared with, under the names that they have in the table.

    Notes
    -----
    `orientation` is "+" where both are alike as they are read, "-" where one is turned. Where there is no
    nearest window, its columns are empty and the similarity is 0.
    """
    table = queries.reset_index(drop=True).assign(**{SIMILARITY: nearest.similarities})
    there = nearest.rows >= 0
    for name, column in others.items():
        cells = pd.Series(np.asarray(column, dtype=object)).reindex(nearest.rows).to_numpy()
        table[name] = ["" if cell != cell else cell for cell in cells]
    table[ORIENTATION] = np.where(there, np.where(nearest.turned, "-", "+"), "")
    return table


def write_nearest(path: Path, table: pd.DataFrame) -> None:
    """Write such a table; `nearest_schema` says how it is read."""
    write_table(path, table, nearest_schema(map(str, table.columns)))


def say_similarities(what: str, table: pd.DataFrame) -> None:
    """Log how many windows of a table are how similar to their nearest one."""
    strata = Strata(BOUNDS)
    numbers = strata.numbers(table[SIMILARITY].to_numpy())
    counts = np.bincount(numbers, minlength=len(strata.names))
    told = ", ".join(f"{count:,} {name}" for name, count in zip(strata.names, counts.tolist(), strict=True))
    log(f"{len(table):,} {what}; similarity of the nearest training window: {told}")
