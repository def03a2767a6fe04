"""Training windows that are like held-out ones, to be left out: `splits.max_train_test_similarity`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.config import DERIVED_SETS
from bigbird_dna.console import log
from bigbird_dna.data.predictions import POSITIVE
from bigbird_dna.errors import DataError
from bigbird_dna.genome.similarity import SequenceWindows, aligned_pairs

Flags = npt.NDArray[np.bool_]


def similar_rows(held_out: Sequence[str], training: SequenceWindows, threshold: float) -> Flags:
    """Which training windows (N,) a held-out window has at least this similarity to.

    What is left is compared again until nothing more is found: no nearest training window of a held-out one,
    as `evaluate nearest-fasta` finds it, is as similar any more.
    """
    similar = np.zeros(training.number, np.bool_)
    # Those whose candidates have changed: others would find the same ones once more.
    asked = np.ones(len(held_out), np.bool_)
    while True:
        rows = np.flatnonzero(~similar)

        def read(numbers: npt.NDArray[np.intp], rows: npt.NDArray[np.intp] = rows) -> list[str]:
            return training.read(rows[numbers])

        windows = SequenceWindows(len(rows), training.length, read)
        first = not similar.any()
        pairs = aligned_pairs(held_out, windows, threshold=threshold if first else None, asked=asked)
        close = pairs.similarities >= threshold
        found = np.unique(pairs.others[close])
        if not len(found):
            return similar
        similar[rows[found]] = True
        asked = np.isin(np.arange(len(held_out)), pairs.queries[np.isin(pairs.others, found)])


def without_similar(
    rows: pd.DataFrame, sequences: Sequence[str], threshold: float
) -> tuple[pd.DataFrame, Mapping[str, Any]]:
    """The windows of a promoter data set without training ones that are like a held-out one; and counts.

    Held-out windows are compared with those that a model learns from, the promoters and one negative set.
    With a promoter go its negatives, as pairs don't part; with a negative that is made of a promoter the
    others of that set, which are numbered within the pair.

    Raises
    ------
    DataError
        No training promoter is left.
    """
    training = (rows["split"] == "train").to_numpy()
    sets, pairs = rows["negative_set"].to_numpy(), rows["pair"]
    promoter = sets == POSITIVE
    found, dropped = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    new = True
    while new:  # what is left out for one set changes what is compared for another
        new = False
        for name in sorted({*sets[~promoter]}):
            learnt = promoter | (sets == name)
            here = _similar(sequences, learnt & ~training, learnt & training & ~dropped, threshold)
            new = new or bool(here.any())
            found |= here
            dropped |= here | (training & pairs.isin(pairs[here & promoter]).to_numpy())
            if name in DERIVED_SETS:
                dropped |= training & (sets == name) & pairs.isin(pairs[here & ~promoter]).to_numpy()
    if not (training & promoter & ~dropped).any():
        raise DataError(
            "all training promoters are like a held-out window: nothing is left to train on "
            f"(splits.max_train_test_similarity {threshold:g})"
        )
    counts = {
        "training promoters like a held-out window": int((found & promoter).sum()),
        "training negatives like a held-out window": int((found & ~promoter).sum()),
        "training windows left out for likeness": int(dropped.sum()),
    }
    log(
        f"{int(dropped.sum()):,} of {int(training.sum()):,} training windows are left out: similarity "
        f"{threshold:g} to a held-out window, or negatives of such"
    )
    return rows[~dropped].reset_index(drop=True), {"similarity": threshold, **counts}


def _similar(sequences: Sequence[str], held_out: Flags, training: Flags, threshold: float) -> Flags:
    """Which rows (N,) of `training` one of `held_out` is like."""
    texts = [sequences[row] for row in np.flatnonzero(held_out).tolist()]
    learnt = np.flatnonzero(training)
    similar = similar_rows(texts, SequenceWindows.of([sequences[row] for row in learnt.tolist()]), threshold)
    found = np.zeros(len(training), np.bool_)
    found[learnt[similar]] = True
    return found
