"""Tables of bits per base: of predictors on the same masked tokens, and of models on the same spans."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.disk.tables import Column, Schema, columns, read_table
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.resampling import bits_per_base

if TYPE_CHECKING:
    import pandas as pd


MODEL = "model"
SPLIT = "split"
UNIFORM = "uniform"
ONE_AT_A_TIME = ", told the rest"
"""End of the names of predictors that see all tokens but the one in question, other hidden ones too."""
MODELS = (MODEL, MODEL + ONE_AT_A_TIME)
# Bits per base of a predictor with an interval, and the model's minus them with one.
_RATES = (Column("bits_per_base"), *columns("metric low high", "estimate difference"))
BITS = Schema((*columns(f"text {SPLIT} predictor"), *_RATES, *columns("text note")), key=(SPLIT, "predictor"))
FIGURES = Schema(_RATES).names
COLUMNS = tuple(BITS.names[1:])
SPANS = Schema(
    (
        *columns("text model"),
        Column("vocabulary", "whole", missing=True),
        *columns("metric tokens_per_span"),
        *_RATES,
        *columns("count spans"),
    ),
    key=("model",),
)


def language_model_table(
    bits: Mapping[str, ArrayLike],
    bases: ArrayLike,
    blocks: ArrayLike,
    notes: Mapping[str, str] | None = None,
    *,
    model: str = MODEL,
    seed: int = 0,
) -> pd.DataFrame:
    """A row for each predictor, in the order of its `bits` (M,) of the hidden tokens, with the columns
    `COLUMNS`.

    `bases` and `blocks` (M,) are the bases of each token, and the block of sequence that it is in. A negative
    `difference` is in favor of the model; it is NaN for the model itself, and intervals with one block only.
    """
    import pandas as pd

    found = bits_per_base(bits, bases, blocks, model, seed=seed)
    notes = notes or {}
    rows = [
        (name, *rate.bits_per_base, *rate.difference, notes.get(name, "")) for name, rate in found.items()
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def read_bits(path: Path) -> pd.DataFrame:
    """Read such a table: `split` and the columns `COLUMNS`, for each split a row of the model."""
    table = read_table(path, BITS)
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


class ComparedModel(NamedTuple):
    """Bits of N spans by a model, or by a predictor without tokens."""

    bits: NDArray[np.float64]  # (N,)
    vocabulary: int | None = None
    tokens_per_span: float = math.nan


def comparison_table(
    found: Mapping[str, ComparedModel], bases: ArrayLike, blocks: ArrayLike, *, seed: int = 0
) -> pd.DataFrame:
    """A row for each model, in their order, with the columns of `SPANS`; arguments as above, of N spans.

    `difference` is the row's bits per base minus those of the first row: a negative one is in the row's
    favor.
    """
    import pandas as pd

    if not found:
        raise ValueError("no model to compare")
    first = next(iter(found))
    rates = bits_per_base({name: one.bits for name, one in found.items()}, bases, blocks, first, seed=seed)
    rows = []
    for name, (bits, vocabulary, tokens) in found.items():
        own, (value, low, high) = rates[name]
        rows.append((name, vocabulary, tokens, *own, -value, -high, -low, len(bits)))
    return pd.DataFrame(rows, columns=SPANS.names).astype({"vocabulary": "Int64"})
