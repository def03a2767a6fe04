"""Similarity to training windows: strata, tables of nearest windows, and exclusion of training windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.config.promoters import DERIVED_SETS
from bigbird_dna.console import log
from bigbird_dna.data.predictions import EXTRA_NEGATIVES, POSITIVE
from bigbird_dna.errors import DataError
from bigbird_dna.genome.similar_groups import SIMILAR, similar_groups
from bigbird_dna.genome.similarity import SequenceWindows, aligned_pairs

Flags = NDArray[np.bool_]


def similar_rows(
    held_out: Sequence[str], training: SequenceWindows, threshold: float
) -> Flags:
    """Return the training windows (N,) that have at least this similarity to a held-out window.

    The remaining windows are compared again until no similar one is found. Then the nearest training window
    of each held-out window, as found by `aligned_pairs`, is below the threshold.
    """
    similar = np.zeros(training.number, np.bool_)
    # Held-out windows whose candidates have changed; the others would find the same pairs again.
    asked = np.ones(len(held_out), np.bool_)
    while True:
        rows = np.flatnonzero(~similar)

        def read(numbers: NDArray[np.intp], rows: NDArray[np.intp] = rows) -> list[str]:
            return training.read(rows[numbers])

        left = SequenceWindows(len(rows), training.length, read)
        first = not similar.any()
        pairs = aligned_pairs(
            held_out, left, threshold=threshold if first else None, asked=asked
        )
        close = pairs.similarities >= threshold
        found = np.unique(pairs.others[close])
        if not len(found):
            return similar
        similar[rows[found]] = True
        asked = np.isin(
            np.arange(len(held_out)), pairs.queries[np.isin(pairs.others, found)]
        )


def homology_groups(
    rows: pd.DataFrame, read: Callable[[pd.DataFrame], list[str]]
) -> NDArray[np.int64]:
    """Return a number (N,) per window, which similar windows of a held-out split have in common.

    Training windows are in no group, nor are derived negatives, which are at the place of their promoter.
    `read` returns the sequences of rows.
    """
    numbers, derived = np.arange(len(rows)), rows["negative_set"].isin(DERIVED_SETS)
    for splits in EXTRA_NEGATIVES.items():
        asked = np.flatnonzero(rows["split"].isin(splits) & ~derived)
        numbers[asked] = asked[similar_groups(read(rows.iloc[asked]), SIMILAR)]
    return numbers


def drop_similar(
    rows: pd.DataFrame, sequences: Sequence[str], threshold: float
) -> tuple[pd.DataFrame, Mapping[str, Any]]:
    """Return a promoter data set without training windows similar to held-out ones, and counts.

    Held-out windows are compared with the training windows of a model: the promoters and one negative set.
    The negatives of an excluded promoter are excluded too, since pairs stay complete. For a derived negative,
    so are the others of its set, which are numbered per pair. `DataError` if no training promoter is left.
    """
    training = (rows["split"] == "train").to_numpy()
    sets, pairs = rows["negative_set"].to_numpy(), rows["pair"]
    promoter = sets == POSITIVE
    found, dropped = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    new = True
    while new:  # windows excluded for one set change the comparison of another
        new = False
        for name in sorted({*sets[~promoter]}):
            learned = promoter | (sets == name)
            held_out, asked = (
                np.flatnonzero(learned & some).tolist()
                for some in (~training, training & ~dropped)
            )
            others = SequenceWindows.of([sequences[row] for row in asked])
            here = np.zeros(len(rows), np.bool_)
            here[asked] = similar_rows(
                [sequences[row] for row in held_out], others, threshold
            )
            new = new or bool(here.any())
            found |= here
            dropped |= here | (training & pairs.isin(pairs[here & promoter]).to_numpy())
            if name in DERIVED_SETS:
                dropped |= (
                    training
                    & (sets == name)
                    & pairs.isin(pairs[here & ~promoter]).to_numpy()
                )
    if not (training & promoter & ~dropped).any():
        raise DataError(
            "all training promoters are similar to a held-out window, none is left for training "
            f"(splits.max_train_test_similarity {threshold:g})"
        )
    counts = {
        "training promoters like a held-out window": int((found & promoter).sum()),
        "training negatives like a held-out window": int((found & ~promoter).sum()),
        "training windows left out for likeness": int(dropped.sum()),
    }
    log(
        f"{int(dropped.sum()):,} of {int(training.sum()):,} training windows are excluded: they or their "
        f"promoters have a similarity of at least {threshold:g} to a held-out window"
    )
    return rows[~dropped].reset_index(drop=True), {"similarity": threshold, **counts}
