"""Bits per base of models with any tokenizers on the same spans, as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.metrics.resampling import bits_per_base

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    *("model", "vocabulary", "tokens_per_span", "bits_per_base", "low", "high"),
    *("difference", "difference_low", "difference_high", "spans"),
)


class ComparedModel(NamedTuple):
    """What a model, or a predictor without tokens, makes of N spans."""

    bits: NDArray[np.float64]  # (N,)
    vocabulary: int | None = None
    tokens_per_span: float = math.nan


def comparison_table(
    found: Mapping[str, ComparedModel], bases: ArrayLike, blocks: ArrayLike, *, seed: int = 0
) -> pd.DataFrame:
    """A row for each model, in their order, with the columns `COLUMNS`.

    `bases` and `blocks` (N,) are the bases of each span, and the block of sequence that it is in.
    `difference` is the row's bits per base minus those of the first row: a negative one is in the row's
    favour. It is NaN for the first row itself, and intervals are NaN where there is one block only.

    Raises
    ------
    ValueError : as `metrics.blocks.bits_per_base`; or there is no model.
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
    return pd.DataFrame(rows, columns=COLUMNS).astype({"vocabulary": "Int64"})
