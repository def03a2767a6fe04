"""The nearest training window of each test window, in sequence and on the genome.

The nearest record of one FASTA file to each of another.

The nearest training window of each held-out promoter window, and the baseline that goes by it.

The nearest training window of each test bin, the baseline that goes by it, and data sets without likes.

The table of nearest windows: what is known of each window, its nearest one, and how similar they are.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.baselines.nearest import NearestWindow
from bigbird_dna.config import Config
from bigbird_dna.console import log
from bigbird_dna.data.chromatin import BinWindows, checked_window
from bigbird_dna.data.promoter_windows import WindowSet, read_windows, window_sequences
from bigbird_dna.data.similarity_filter import similar_rows
from bigbird_dna.data.strata import BOUNDS, SIMILARITY, Strata, nearest_schema
from bigbird_dna.disk.atomic import check_writable, write_array
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.disk.tables import write_table
from bigbird_dna.errors import DataError, UsageError, check_fraction
from bigbird_dna.finetuning.evaluation import BASELINE_WINDOW, held_out_rows
from bigbird_dna.finetuning.promoters import write_predictions
from bigbird_dna.genome.chromatin.dataset import ChromatinData, read_dataset, write_dataset
from bigbird_dna.genome.records import read_records
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.similarity import Nearest, SequenceWindows, aligned_pairs

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


def find_nearest(held_out: Path, training: Path, output: Path) -> pd.DataFrame:
    """Write the nearest record of `training` to each of `held_out` (`name similarity nearest orientation`).

    Both are FASTA files of windows; their lengths may differ. Returns the table.

    Raises
    ------
    DataError
        A file can't be used (see `read_records`).
    UsageError
        The output can't be written, or is an input.
    """
    check_writable(output)
    check_output(output, [held_out, training])
    queries, others = read_records(held_out).sequences, read_records(training).sequences
    texts = list(queries.values())
    found = aligned_pairs(texts, SequenceWindows.of(list(others.values()))).nearest(len(texts))
    table = nearest_table(pd.DataFrame({"name": [*queries]}), {"nearest": [*others]}, found)
    write_nearest(output, table)
    say_similarities(f"records of {held_out.name}", table)
    return table


Rows = npt.NDArray[np.intp]

_NEAREST_PROMOTER = {
    "contig": "nearest_contig",
    "start": "nearest_start",
    "end": "nearest_end",
    "strand": "nearest_strand",
    "negative_set": "nearest_set",
    "label": "nearest_label",
}


class LabelledPromoters:
    """Some windows of a promoter data set with their one label."""

    def __init__(self, sequences: list[str], labels: npt.NDArray[np.uint8], rows: Rows) -> None:
        self._sequences, self._labels, self._rows = sequences, labels, rows

    @property
    def shape(self) -> tuple[int, int]:
        """(N, 1)."""
        return len(self._rows), 1

    @property
    def length(self) -> int:
        """bp of a window."""
        return max((len(self._sequences[row]) for row in self._rows.tolist()), default=0)

    def sequences(self, rows: Rows) -> list[str]:
        """The sequences of some windows."""
        return [self._sequences[row] for row in self._rows[rows].tolist()]

    def labels(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """Their labels, (n, 1)."""
        return self._labels[self._rows[rows], None]


def find_nearest_promoters(
    config: Config,
    negative_set: str,
    *,
    windows: Path,
    reference: Path,
    output: Path,
    predictions: Path | None = None,
) -> pd.DataFrame:
    """Write the nearest training window of each window of validation and test, and return that table.

    Compared with are the training promoters and their negatives of the same set. Columns are those of the
    predictions files but for the probability, then `similarity`, the nearest window's place, set and label,
    and `orientation`.

    Parameters
    ----------
    predictions
        Where the predictions of the nearest-window baseline go, as those of a model; None: nowhere.

    Raises
    ------
    UsageError
        An output can't be written, or is an input.
    DataError
        The data set can't be used, or has no training window.
    """
    for path in (output, predictions):
        if path is not None:
            check_writable(path)
            check_output(path, [reference, *(windows / name for name in ("windows.parquet", "labels.npz"))])
    data = read_windows(windows, negative_set)
    sequences = window_sequences(Reference(reference), data.rows, config.seed)
    held_out, training = split_rows(data)
    if not len(training):
        raise DataError(f"{windows / 'windows.parquet'}: has no training window")
    baseline = NearestWindow(balanced=True).fit(LabelledPromoters(sequences, data.labels, training))
    pairs = baseline.pairs([sequences[row] for row in held_out.tolist()])
    rows = data.rows.drop(columns="name").assign(label=data.labels)
    queries = rows.iloc[held_out].reset_index(drop=True)
    others = {name: rows[column].to_numpy()[training] for column, name in _NEAREST_PROMOTER.items()}
    table = nearest_table(queries, others, pairs.nearest(len(held_out)))
    write_nearest(output, table)
    if predictions is not None:
        probabilities = baseline.predict_pairs(pairs, len(held_out))[:, 0]
        write_predictions(predictions, queries.assign(probability=probabilities))
    for split in ("valid", "test"):
        say_similarities(f"{split} windows ({negative_set})", table[table["split"] == split])
    return table


def split_rows(data: WindowSet) -> tuple[Rows, Rows]:
    """The rows of validation and test, and those of training."""
    training = (data.rows["split"] == "train").to_numpy()
    return np.flatnonzero(data.rows["split"].isin(["valid", "test"]).to_numpy()), np.flatnonzero(training)


_NEAREST_BIN = {"contig": "nearest_contig", "start": "nearest_start", "end": "nearest_end"}
LEFT_OUT = "similar"
"""What `dataset.json` has of the training bins that were left out."""


def find_nearest_bins(
    config: Config,
    *,
    data: Path,
    reference: Path,
    output: Path,
    predictions: Path | None = None,
    window: int | None = None,
) -> pd.DataFrame:
    """Write the nearest training window of the window around each test bin, and return that table.

    Columns are `contig start end split similarity nearest_contig nearest_start nearest_end orientation`, with
    the places of bins; rows are the test bins that figures are computed on, in their order.

    Parameters
    ----------
    predictions
        Where the predictions of the nearest-window baseline go, (bins, tracks) as `.npy`; None: nowhere.
    window
        bp around each bin that are compared; None: 1,000, or the bin where that is larger.

    Raises
    ------
    ConfigError
        The window doesn't hold a bin in its middle.
    UsageError
        An output can't be written, or is an input.
    DataError
        The data set can't be used, or has no training or no test bin.
    """
    for path in (output, predictions):
        if path is not None:
            check_writable(path)
            check_output(path, [data, reference])
    bins, genome = read_dataset(data), Reference(reference)
    length = compared_window(bins, window)
    test, training = held_out_rows(bins, config.chromatin.evaluation), bins.rows("train")
    if not len(training):
        raise DataError(f"{data}: has no training bins")
    log(f"comparing {len(test):,} test bins with {len(training):,} training bins, windows of {length:,} bp")
    baseline = NearestWindow().fit(BinWindows(bins, genome, length, training))
    texts = BinWindows(bins, genome, length, test).sequences(np.arange(len(test)))
    pairs = baseline.pairs(texts)
    others = {name: bins.bins[column].to_numpy()[training] for column, name in _NEAREST_BIN.items()}
    table = nearest_table(bins.bins.iloc[test], others, pairs.nearest(len(test)))
    write_nearest(output, table)
    if predictions is not None:
        write_array(predictions, baseline.predict_pairs(pairs, len(test)).astype(np.float32))
    say_similarities("test bins", table)
    return table


def drop_similar_bins(
    data: Path, reference: Path, output: Path, similarity: float, *, window: int | None = None
) -> dict[str, Any]:
    """Write the data set `output`: that of `data` without training bins that are like a held-out one.

    Left out are those to whose window that of a bin of validation or test has at least this similarity.
    Tracks, and bins of validation and test, stay as they are.

    Returns
    -------
    What `dataset.json` says of it under `similar`: `similarity`, `window`, and how many were left out
    (`left_out`).

    Raises
    ------
    UsageError
        The similarity is not above 0 and at most 1, or the window doesn't hold a bin in its middle.
    DataError
        The data set can't be used, or nothing is left to train on.
    """
    check_fraction("similarity", similarity)
    if not similarity:
        raise UsageError("similarity 0 would leave out all training bins")
    check_directory(output, [data, reference])
    bins, genome = read_dataset(data), Reference(reference)
    length = compared_window(bins, window)
    training = bins.rows("train")
    held_out = np.flatnonzero((bins.bins["split"] != "train").to_numpy())
    texts = BinWindows(bins, genome, length, held_out).sequences(np.arange(len(held_out)))
    windows = BinWindows(bins, genome, length, training)
    similar = similar_rows(texts, SequenceWindows(len(training), length, windows.sequences), similarity)
    if similar.all():
        raise DataError(
            f"{data}: all {len(training):,} training bins are like a held-out one: nothing is left to train "
            f"on (similarity {similarity:g})"
        )
    kept = np.ones(len(bins), np.bool_)
    kept[training[similar]] = False
    told = {"similarity": similarity, "window": length, "left_out": int(similar.sum())}
    computed = {"format", "bins", "tracks"}
    info = {name: value for name, value in bins.info.items() if name not in computed} | {LEFT_OUT: told}
    rows = bins.bins[kept].reset_index(drop=True)
    made = write_dataset(output, rows, bins.labels.take(kept), bins.tracks, info)
    log(f"{told['left_out']:,} of {len(training):,} training bins are like a held-out one: left out")
    bare = [track.name for track, count in zip(made.tracks, _positives(made), strict=True) if not count]
    if bare:
        log(f"warning: {len(bare):,} tracks have no positive training bin left: {', '.join(bare[:3])}")
    return told


def compared_window(data: ChromatinData, window: int | None) -> int:
    """bp around a bin that are compared; `ConfigError` where they don't have it in their middle."""
    size = data.bin_size
    if window is None:
        return max(BASELINE_WINDOW - (BASELINE_WINDOW - size) % 2, size)
    return checked_window(window, size)


def _positives(data: ChromatinData) -> npt.NDArray[np.int64]:
    return data.labels.positives(data.rows("train"))
