"""Figures of promoter models on the test windows by how similar these are to the training.

A promoter and the negatives made for it stand in one stratum, that of the most similar of them: so both
classes are in every stratum in like numbers, and the one of the least similar has nothing that is like the
training in either class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import UsageError
from bigbird_dna.metrics.binary import binary_metrics
from bigbird_dna.reporting.promoters.predictions import KEY, compare, read_predictions
from bigbird_dna.reporting.similarity.figure import similarity_figure
from bigbird_dna.reporting.similarity.reading import similarities_of
from bigbird_dna.reporting.similarity.strata import BOUNDS, Strata
from bigbird_dna.reporting.tables import write_tsv

if TYPE_CHECKING:
    import pandas as pd

TABLE, FIGURE = "similarity.tsv", "similarity.svg"
_FIGURES = [f"{name}{end}" for name in ("auroc", "auprc") for end in ("", "_low", "_high")]


def promoter_similarity_report(
    predictions: Mapping[str, Mapping[str, Path]],
    nearest: Mapping[str, Path],
    output: Path,
    *,
    bounds: Sequence[float] = BOUNDS,
) -> pd.DataFrame:
    """Write `similarity.tsv` and `similarity.svg` to the directory `output`, and return the table.

    Parameters
    ----------
    predictions
        Negative set → predictor → its predictions (Parquet); all predictors of a set have the same windows.
    nearest
        Negative set → what `evaluate nearest-promoters` wrote of it.
    bounds
        Between the strata of similarity.

    Returns
    -------
    A row a set, stratum and predictor, first of all windows: `negative_set similarity model n positives`,
    AUROC with DeLong's interval, AUPRC with a bootstrap's over promoters and their negatives, and `note`,
    which says why a figure is missing.

    Raises
    ------
    UsageError
        Bounds that make no strata, no predictions, or a set of which one of the two is missing.
    DataError
        A file isn't as it should be, or the windows of two differ.
    """
    strata = Strata(bounds)
    if not predictions:
        raise UsageError("name the predictions of one negative set at least")
    for name in (*predictions, *nearest):
        if name not in nearest or name not in predictions:
            what = "nearest windows" if name not in nearest else "predictions"
            raise UsageError(f"set {name!r}: has no {what}")
    table = _table(predictions, nearest, strata)
    with into_directory(output) as files:
        write_tsv(files / TABLE, table)
        similarity_figure(table, strata, files / FIGURE)
    return table


def _of_pairs(similarities: NDArray[np.float64], pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """The largest similarity in each window's pair, (N,)."""
    names, codes = np.unique(pairs, return_inverse=True)
    largest = np.zeros(len(names))
    np.maximum.at(largest, codes, similarities)
    found: NDArray[np.float64] = largest[codes]
    return found


def _table(
    predictions: Mapping[str, Mapping[str, Path]], nearest: Mapping[str, Path], strata: Strata
) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for negative_set, files in predictions.items():
        compared = compare(negative_set, files)
        where = next(iter(files.values()))
        # In the order of the compared ones: both sort by the same columns.
        windows = read_predictions(where)
        similarities = similarities_of(nearest[negative_set], windows, KEY, where)
        for name, chosen in strata.parts(_of_pairs(similarities, compared.pairs)):
            for model, scores in compared.scores.items():
                metrics = binary_metrics(
                    compared.labels[chosen], scores[chosen], groups=compared.pairs[chosen]
                )._asdict()
                row = {"negative_set": negative_set, "similarity": name, "model": model}
                row |= {key: metrics[key] for key in ("n", "positives", *_FIGURES, "note")}
                rows.append(row)
    return pd.DataFrame(rows)
