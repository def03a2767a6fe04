"""Rows whose true probabilities are known, and models of them that are wrong in a known way."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd


class Rows(NamedTuple):
    """N rows of a source of which a share `prior` is positive."""

    labels: np.ndarray  # (N,) of 0 and 1
    raw: np.ndarray  # (N,) what a model says
    true: np.ndarray  # (N,) the probability of a positive, given what the model sees


def mixture(
    n: int,
    prior: float,
    seed: int,
    *,
    apart: float = 1.5,
    slope: float = 1.6,
    lift: float = 0.4,
) -> Rows:
    """Positives and negatives with evidence of deviation 1, `apart` to either side of 0.

    The true log-odds at one half of positives are 2 `apart` x; the model's are `slope` times these plus
    `lift`.
    """
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < prior).astype(int)
    x = rng.normal(size=n) + apart * (2 * labels - 1)
    even = 2 * apart * x
    odds = even + np.log(prior / (1 - prior))
    raw = (1 / (1 + np.exp(-(slope * even + lift)))).astype(np.float32)
    return Rows(labels, raw, 1 / (1 + np.exp(-odds)))


def write_predictions(
    path: Path, n: int = 600, negative_set: str = "genomic", valid: str = "valid"
) -> None:
    """`n` validation and `n` test windows, each promoter with a negative, from one source."""
    parts = []
    for split, seed in ((valid, 1), ("test", 2)):
        rows = mixture(3 * n, 0.5, seed)
        for label in (1, 0):
            raw = rows.raw[rows.labels == label][: n // 2]
            place = 1000 * np.arange(len(raw)) + 500 * label
            parts.append(
                pd.DataFrame(
                    {
                        "contig": split,
                        "start": place,
                        "end": place + 60,
                        "strand": "+",
                        "split": split,
                        "negative_set": "positive" if label else negative_set,
                        "pair": np.arange(len(raw)),
                        "label": label,
                        "probability": raw,
                    }
                )
            )
    pd.concat(parts).to_parquet(path, index=False)
