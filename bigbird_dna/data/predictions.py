"""Read, check and align prediction files for promoter windows, and tables of bits per base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.disk.arrays import read_frame
from bigbird_dna.disk.tables import check_columns, read_table
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.resampling import bits_per_base, joined, sequence_blocks

COLUMNS = [
    "contig",
    "start",
    "end",
    "strand",
    "split",
    "negative_set",
    "pair",
    "label",
    "probability",
]
# Optional columns: the number of the window's group of similar windows, and the probability from the network
# of an ensemble alone.
HOMOLOGY, NETWORK = "homology", "network"
# Columns that identify an example in different files.
KEY = ["contig", "start", "end", "strand", "negative_set", "pair", "label"]
POSITIVE = "positive"

# Distances in bp by which windows of validation promoters are moved.
SHIFTS = (1, 2, 5, 10, 25)

# Names of the predictors that a report compares, in addition to `NETWORK`.
MODEL, CONTROL, CNN = "model", "control", "cnn"
PROMOTER_BASELINES = KMER, POSITION, COMPOSITION = "k-mer", "position", "composition"
CPG = "cpg"


@dataclass(frozen=True)
class AlignedPredictions:
    """Scores of several predictors on the same windows: the positives and one negative set of one split."""

    negative_set: str
    labels: NDArray[np.int64]  # (N,)
    blocks: NDArray[np.int64]  # (N,) ids of the blocks of the genome, or of a sequence
    scores: Mapping[str, NDArray[np.float64]]  # predictor → (N,)


def read_predictions(path: Path, split: str = "test") -> pd.DataFrame:
    """Read the rows of `split` of a prediction file, in the order of `KEY`; errors count rows from 1.

    The columns `homology` and `network` are kept if the file has them.
    """
    frame = read_frame(path)
    check_columns(path, frame, COLUMNS)
    optional = [name for name in (HOMOLOGY, NETWORK) if name in frame]
    frame = frame[[*COLUMNS, *optional]].reset_index(drop=True)
    texts = ["contig", "strand", "split", "negative_set"]
    for name in frame.columns.difference(texts):
        if not pd.api.types.is_numeric_dtype(frame[name]):
            raise DataError(
                f"{path}: column {name!r} must be numeric, not {frame[name].dtype}"
            )

    faults = {
        "a missing value": frame.isna().any(axis=1),
        "label is not 0 or 1": ~frame["label"].isin([0, 1]),
        "negative_set does not fit the label": (
            (frame["negative_set"] == POSITIVE) != (frame["label"] == 1)
        ),
        "a duplicate window": frame.duplicated(KEY) & (frame["split"] == split),
    }
    for name in ("probability", NETWORK):
        if name in frame:
            faults[f"{name} is outside [0, 1]"] = ~frame[name].between(0, 1)

    for fault, bad in faults.items():
        if bad.any():
            raise DataError(f"{path}: row {int(bad.to_numpy().argmax()) + 1}: {fault}")

    rows = frame[frame["split"] == split]
    if rows.empty:
        found = ", ".join(sorted(map(str, frame["split"].unique()))) or "no rows"
        raise DataError(f"{path}: no rows of split {split!r} (found: {found})")

    negative_sets = negative_sets_of(rows)
    if len(negative_sets) > 1:
        raise DataError(
            f"{path}: more than one negative set: {', '.join(negative_sets)}"
        )

    return rows.sort_values(KEY, kind="stable", ignore_index=True)


def compare(negative_set: str, files: Mapping[str, Path]) -> AlignedPredictions:
    """Align the predictors of `files` (name → prediction file) on the test windows of `negative_set`.

    The network of an ensemble is a further predictor, after the model.
    `DataError` names the file that differs from the first one, and the window.
    """
    frames = {name: read_predictions(path) for name, path in files.items()}
    first_name, first = next(iter(frames.items()))
    for name, frame in frames.items():
        found = negative_sets_of(frame)
        if found not in ([], [negative_set]):
            raise DataError(
                f"{files[name]}: contains negative set {found[0]!r}, expected {negative_set!r}"
            )

        if not frame[KEY].equals(first[KEY].astype(frame[KEY].dtypes.to_dict())):
            merged = first[KEY].merge(frame[KEY], how="outer", on=KEY, indicator=True)
            odd = merged[merged["_merge"] != "both"].iloc[0]
            window = f"{odd['contig']}:{odd['start']}-{odd['end']}({odd['strand']})"
            raise DataError(
                f"{files[name]}: cannot be compared with {files[first_name]}: {odd['negative_set']} window {window} "
                f"of pair {odd['pair']} is only in one of them"
            )

    scores = {}
    for name, frame in frames.items():
        scores[name] = frame["probability"].to_numpy(np.float64)
        if name == MODEL and NETWORK in frame:
            scores[NETWORK] = frame[NETWORK].to_numpy(np.float64)

    return AlignedPredictions(
        negative_set,
        first["label"].to_numpy(dtype=np.int64),
        blocks_of(first),
        scores,
    )


def blocks_of(windows: pd.DataFrame) -> NDArray[np.int64]:
    """Return the ids (N,) of the blocks in which windows start (`sequence_blocks`), joined by `homology`."""
    blocks = sequence_blocks(windows["contig"].to_numpy(), windows["start"].to_numpy())
    return (
        joined(blocks, windows[HOMOLOGY].to_numpy()) if HOMOLOGY in windows else blocks
    )


def negative_set_of(path: Path) -> str:
    """Return the negative set of a prediction file; `DataError` if it contains only positives."""
    found = negative_sets_of(read_predictions(path))
    if not found:
        raise DataError(f"{path}: split 'test' contains no negatives")
    return found[0]


def negative_sets_of(frame: pd.DataFrame) -> list[str]:
    """Return the names of the negative sets among predictions."""
    return sorted(set(map(str, frame["negative_set"].unique())) - {POSITIVE})


# Bits per base

SPLIT = "split"
UNIFORM = "uniform"
# Bits per base of a predictor, and the difference model minus predictor, with intervals.
BITS = [
    "split",
    "predictor",
    "bits_per_base",
    "low",
    "high",
    "difference",
    "difference_low",
    "difference_high",
    "note",
]
BITS_COLUMNS = tuple(BITS[1:])


def language_model_table(
    bits: Mapping[str, ArrayLike],
    bases: ArrayLike,
    blocks: ArrayLike,
    notes: Mapping[str, str],
) -> pd.DataFrame:
    """Return one row per predictor in `bits`, with the columns `BITS_COLUMNS`.

    `bits`, `bases` and `blocks` (M,) are the bits, the number of bases and the sequence block of each masked
    token. A negative `difference` favors the model; it is NaN for the model itself. Intervals need at least
    two blocks.
    """
    found = bits_per_base(bits, bases, blocks, MODEL)
    rows = [
        (name, *rate.bits_per_base, *rate.difference, notes.get(name, ""))
        for name, rate in found.items()
    ]
    return pd.DataFrame(rows, columns=BITS_COLUMNS)


def read_bits(path: Path) -> pd.DataFrame:
    """Read such a table: `split` and `BITS_COLUMNS`, with one row of the model per split."""
    table = read_table(path, BITS, text=(SPLIT, "predictor", "note"))
    for split, rows in table.groupby(SPLIT):
        if MODEL not in set(rows["predictor"]):
            raise DataError(f"{path}: split {split!r:.60} needs a row {MODEL!r}")
    if table.empty:
        raise DataError(f"{path}: the table contains no rows")
    return table


def of_split(table: pd.DataFrame, split: str) -> pd.DataFrame:
    """Return the rows of a split, or those of the first split in the table if there are none."""
    rows = table[table[SPLIT] == split]
    return rows if len(rows) else table[table[SPLIT] == table[SPLIT].iloc[0]]
