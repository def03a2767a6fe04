"""The nearest training window of each test bin, the baseline that goes by it, and data sets without likes."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.baselines.comparators.nearest import NearestWindow
from bigbird_dna.checks import check_fraction
from bigbird_dna.config import Config
from bigbird_dna.console import log
from bigbird_dna.directories import check_directory
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.files import check_writable, write_array
from bigbird_dna.genome.chromatin.dataset import ChromatinData, read_dataset, write_dataset
from bigbird_dna.genome.homology.nearest import Windows
from bigbird_dna.genome.reference import Reference
from bigbird_dna.outputs import check_output
from bigbird_dna.reporting.tables import write_tsv
from bigbird_dna.tasks.chromatin.bin_windows import BinWindows, checked_window
from bigbird_dna.tasks.chromatin.evaluation import BASELINE_WINDOW, held_out_rows
from bigbird_dna.tasks.homology.leaving_out import similar_rows
from bigbird_dna.tasks.homology.tables import nearest_table, say_similarities

_NEAREST = {"contig": "nearest_contig", "start": "nearest_start", "end": "nearest_end"}
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
    others = {name: bins.bins[column].to_numpy()[training] for column, name in _NEAREST.items()}
    table = nearest_table(bins.bins.iloc[test], others, pairs.nearest(len(test)))
    write_tsv(output, table)
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
    similar = similar_rows(texts, Windows(len(training), length, windows.sequences), similarity)
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
