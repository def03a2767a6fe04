"""Bits per base of the model and of simpler predictors, on the same hidden tokens, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from bigbird_dna.metrics.resampling import bits_per_base

if TYPE_CHECKING:
    import pandas as pd

MODEL = "model"
SPLIT = "split"
UNIFORM = "uniform"
TOLD = ", told the rest"
"""End of the names of predictors that see all tokens but the one in question, other hidden ones too."""
MODELS = (MODEL, MODEL + TOLD)
# Bits per base of a predictor with an interval, and the model's minus them with one.
FIGURES = ("bits_per_base", "low", "high", "difference", "difference_low", "difference_high")
COLUMNS = ("predictor", *FIGURES, "note")


def language_model_table(
    bits: Mapping[str, ArrayLike],
    bases: ArrayLike,
    blocks: ArrayLike,
    notes: Mapping[str, str] | None = None,
    *,
    model: str = MODEL,
    seed: int = 0,
) -> pd.DataFrame:
    """A row for each predictor, in the order of `bits`, with the columns `COLUMNS`.

    Parameters
    ----------
    bits : by predictor, bits (M,) of the hidden tokens; one of them is the model.
    bases, blocks : bases (M,) that each token covers, and the block of sequence that it is in.
    notes : by predictor, what there is to say about it.
    model : what the model is called in `bits`.
    seed : of the bootstrap over blocks (see `metrics.blocks`).

    Returns
    -------
    A negative `difference` is in favour of the model; it is NaN for the model itself. Where there is one
    block only, intervals are NaN.

    Raises
    ------
    ValueError : as `metrics.blocks.bits_per_base`.
    """
    import pandas as pd

    found = bits_per_base(bits, bases, blocks, model, seed=seed)
    said = notes or {}
    rows = [(name, *rate.bits_per_base, *rate.difference, said.get(name, "")) for name, rate in found.items()]
    return pd.DataFrame(rows, columns=COLUMNS)
