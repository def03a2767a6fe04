"""Files of predictions on promoter windows, checked and aligned; and tables of bits per base."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.disk.foreign import read_frame
from bigbird_dna.disk.tables import Column, Schema, check_columns, columns, read_table
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.resampling import bits_per_base

COLUMNS = ("contig", "start", "end", "strand", "split", "negative_set", "pair", "label", "probability")
# Optional: the fraction of the window's bases in protein-coding sequence (CDS).
CODING = "coding"
# What makes two files' rows the same example.
KEY = ["contig", "start", "end", "strand", "negative_set", "pair", "label"]
POSITIVE = "positive"
HALF = 0.5
# The split of further negatives, which are for a calibration and its figures alone.
EXTRA_NEGATIVES = {"valid": "valid-further", "test": "test-further"}

# Names of the predictors that a report compares.
MODEL, KMER, POSITION, CONTROL = "model", "k-mer", "position", "control"
# Strata of a report: all windows, and the pairs whose promoter and negative are both less than half coding.
ALL, NONCODING = "all", "noncoding"


@dataclass(frozen=True)
class AlignedPredictions:
    """Predictors on the same windows: the positives and one negative set of one split."""

    negative_set: str
    labels: NDArray[np.int64]  # (N,)
    pairs: NDArray[np.int64]  # (N,) the same for a promoter and the negatives made for it
    scores: Mapping[str, NDArray[np.float64]]  # predictor → (N,)
    coding: NDArray[np.float64] | None = None  # (N,) fraction of coding bases, NaN where it is not known

    def noncoding(self) -> Self | None:
        """The windows of the pairs in which promoter and negative are both less than half coding.

        A window stays if it is less than half coding itself and its pair has a promoter and a negative that
        are. None where it is not known how much of the windows is coding.
        """
        if self.coding is None:
            return None
        low = self.coding < HALF
        kept = low.copy()
        for label in (0, 1):
            kept &= np.isin(self.pairs, self.pairs[low & (self.labels == label)])
        return replace(
            self,
            labels=self.labels[kept],
            pairs=self.pairs[kept],
            scores={name: values[kept] for name, values in self.scores.items()},
            coding=self.coding[kept],
        )


class CalibrationRows(NamedTuple):
    """The N windows that a calibration is fitted to, or evaluated on."""

    labels: NDArray[np.int64]  # (N,)
    probabilities: NDArray[np.float64]  # (N,) as the model gives them
    pairs: NDArray[np.int64]  # (N,)
    negative_weight: float
    """Of a negative, where a promoter weighs 1: with further negatives the classes' shares stay the same."""
    further: int  # negatives among the windows that other figures leave out

    @classmethod
    def of(cls, predictions: pd.DataFrame, split: str) -> Self:
        """The windows of a split among predictions, and its further negatives."""
        further = predictions["split"] == EXTRA_NEGATIVES.get(split)
        rows = predictions[(predictions["split"] == split) | further]
        labels, more = rows["label"].to_numpy(np.int64), int(further.sum())
        negatives = len(labels) - int(labels.sum())
        weight = (negatives - more) / negatives if negatives else 1.0
        values = rows["probability"].to_numpy(np.float64)
        return cls(labels, values, rows["pair"].to_numpy(np.int64), weight, more)


def read_predictions(path: Path, split: str = "test", *, further: bool = False) -> pd.DataFrame:
    """Rows of `split` of a predictions file, in the order of `KEY`; rows are counted from 1 in errors.

    With `further` its extra negatives as well, of which several may be made of one window. The column
    `coding` is there if the file has it.
    """
    frame = read_frame(path)
    check_columns(path, frame, COLUMNS)
    optional = [CODING] if CODING in frame.columns else []
    frame = frame[[*COLUMNS, *optional]].reset_index(drop=True)
    for name in COLUMNS:
        _refuse(path, frame, name, frame[name].isna(), "is a missing value")
    _refuse(path, frame, "label", ~frame["label"].isin([0, 1]), "is not 0 or 1")
    for name in ("start", "end", "pair", "probability", *optional):
        if not pd.api.types.is_numeric_dtype(frame[name]):
            raise DataError(f"{path}: column {name!r} is not numeric but {frame[name].dtype}")
    _refuse(path, frame, "probability", ~frame["probability"].between(0, 1), "is outside [0, 1]")
    for name in optional:
        impossible = frame[name].notna() & ~frame[name].between(0, 1)
        _refuse(path, frame, name, impossible, "is outside [0, 1]")
    unlike = (frame["negative_set"] == POSITIVE) != (frame["label"] == 1)
    _refuse(path, frame, "negative_set", unlike, "does not fit the row's label")
    beside = frame["split"].isin(EXTRA_NEGATIVES.values())
    again = frame[~beside].duplicated(KEY).reindex(frame.index, fill_value=False)
    _refuse(path, frame, "start", again, "begins a window that was there before")
    _refuse(path, frame, "label", beside & (frame["label"] == 1), "is that of a further negative")
    rows = frame[frame["split"] == split]
    if rows.empty:
        found = ", ".join(sorted(map(str, frame["split"].unique()))) or "no rows"
        raise DataError(f"{path}: no row of split {split!r} (found: {found})")
    if further:
        rows = frame[frame["split"].isin([split, EXTRA_NEGATIVES.get(split)])]
    negative_sets = negative_sets_of(rows)
    if len(negative_sets) > 1:
        raise DataError(f"{path}: more than one negative set: {', '.join(negative_sets)}")
    return rows.sort_values(KEY, kind="stable", ignore_index=True)


def compare(negative_set: str, files: Mapping[str, Path], split: str = "test") -> AlignedPredictions:
    """Line up the predictors of `files` (name → predictions file) on the windows of `negative_set`.

    A `DataError` says which file differs from the first one, and in which window.
    """
    frames = {name: read_predictions(path, split) for name, path in files.items()}
    first_name, first = next(iter(frames.items()))
    for name, frame in frames.items():
        found = negative_sets_of(frame)
        if found not in ([], [negative_set]):
            raise DataError(f"{files[name]}: holds negative set {found[0]!r}, not {negative_set!r}")
        if not frame[KEY].equals(first[KEY].astype(frame[KEY].dtypes.to_dict())):
            raise DataError(_difference(files[first_name], first, files[name], frame))
    known = (frame[CODING] for frame in frames.values() if CODING in frame and frame[CODING].notna().any())
    coding = next(known, None)
    return AlignedPredictions(
        negative_set,
        first["label"].to_numpy(dtype=np.int64),
        first["pair"].to_numpy(dtype=np.int64),
        {name: frame["probability"].to_numpy(dtype=np.float64) for name, frame in frames.items()},
        None if coding is None else coding.to_numpy(dtype=np.float64),
    )


def negative_set_of(path: Path, split: str = "test") -> str:
    """The negative set that a predictions file is about; a `DataError` if it holds positives only."""
    found = negative_sets_of(read_predictions(path, split))
    if not found:
        raise DataError(f"{path}: split {split!r} holds no negatives")
    return found[0]


def negative_sets_of(frame: pd.DataFrame) -> list[str]:
    """The names of the negative sets among predictions."""
    return sorted(set(map(str, frame["negative_set"].unique())) - {POSITIVE})


def _refuse(path: Path, frame: pd.DataFrame, column: str, bad: pd.Series[bool], why: str) -> None:
    """Raise for the first row of which `bad` is true."""
    places = np.flatnonzero(bad.to_numpy())
    if places.size:
        value = frame[column].tolist()[places[0]]
        raise DataError(f"{path}: row {places[0] + 1}: {column} {value!r} {why}")


def _difference(first: Path, ours: pd.DataFrame, second: Path, theirs: pd.DataFrame) -> str:
    merged = ours[KEY].merge(theirs[KEY], how="outer", on=KEY, indicator=True)
    odd = merged[merged["_merge"] != "both"].iloc[0]
    absent, present = (second, first) if odd["_merge"] == "left_only" else (first, second)
    window = f"{odd['contig']}:{odd['start']}-{odd['end']}({odd['strand']})"
    return (
        f"{absent}: has no {odd['negative_set']} window {window} of pair {odd['pair']}, "
        f"which {present} has: they can't be compared"
    )


# Bits per base

SPLIT = "split"
UNIFORM = "uniform"
ONE_AT_A_TIME = ", told the rest"
"""End of the names of predictors that see all tokens but the one in question, other hidden ones too."""
MODELS = (MODEL, MODEL + ONE_AT_A_TIME)
# Bits per base of a predictor with an interval, and the model's minus them with one.
_RATES = (Column("bits_per_base"), *columns("metric low high", "estimate difference"))
BITS = Schema((*columns(f"text {SPLIT} predictor"), *_RATES, *columns("text note")), key=(SPLIT, "predictor"))
FIGURES = Schema(_RATES).names
BITS_COLUMNS = tuple(BITS.names[1:])
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
    `BITS_COLUMNS`.

    `bases` and `blocks` (M,) are the bases of each token, and the block of sequence that it is in. A negative
    `difference` is in favor of the model; it is NaN for the model itself, and intervals with one block only.
    """
    found = bits_per_base(bits, bases, blocks, model, seed=seed)
    notes = notes or {}
    rows = [
        (name, *rate.bits_per_base, *rate.difference, notes.get(name, "")) for name, rate in found.items()
    ]
    return pd.DataFrame(rows, columns=BITS_COLUMNS)


def read_bits(path: Path) -> pd.DataFrame:
    """Read such a table: `split` and the columns `BITS_COLUMNS`, for each split a row of the model."""
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
    if not found:
        raise ValueError("no model to compare")
    first = next(iter(found))
    rates = bits_per_base({name: one.bits for name, one in found.items()}, bases, blocks, first, seed=seed)
    rows = []
    for name, (bits, vocabulary, tokens) in found.items():
        own, (value, low, high) = rates[name]
        rows.append((name, vocabulary, tokens, *own, -value, -high, -low, len(bits)))
    return pd.DataFrame(rows, columns=SPANS.names).astype({"vocabulary": "Int64"})
