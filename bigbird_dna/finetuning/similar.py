"""The nearest training window per held-out window, the nearest-window baseline, and similarity filtering."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from bigbird_dna.baselines.windows import NearestWindow, TextWindows
from bigbird_dna.config import Config
from bigbird_dna.console import log
from bigbird_dna.data.chromatin import BinWindows, checked_window
from bigbird_dna.data.predictions import CODING, HOMOLOGY
from bigbird_dna.data.promoter_windows import read_windows, window_sequences
from bigbird_dna.data.similar import NEAREST, SIMILARITY, Strata, similar_rows
from bigbird_dna.disk.atomic import check_writable, write_array
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.disk.tables import write_table
from bigbird_dna.errors import DataError, UsageError, check_fraction
from bigbird_dna.finetuning.evaluation import held_out_rows, write_predictions
from bigbird_dna.genome.chromatin.dataset import (
    ChromatinData,
    read_dataset,
    write_dataset,
)
from bigbird_dna.genome.records import read_records
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.similarity import Nearest, SequenceWindows, aligned_pairs
from bigbird_dna.model.settings import KMER_WINDOW

ORIENTATION = "orientation"
SIMILAR = "similar"
"""Key in `dataset.json` that describes the excluded training bins."""


def _check(inputs: Sequence[Path], *outputs: Path | None) -> None:
    """Raise `UsageError` if an output cannot be written or is an input."""
    for path in outputs:
        if path is not None:
            check_writable(path)
            check_output(path, inputs)


def _write(
    path: Path,
    kind: str,
    queries: pd.DataFrame,
    others: Mapping[str, npt.ArrayLike],
    nearest: Nearest,
) -> pd.DataFrame:
    """Write and return a table of queries, their `similarity`, their nearest window, and `orientation`.

    `others` are the columns of the nearest window. `orientation` is "+" if both windows match as they are
    read, "-" if one is reverse-complemented. Without a nearest window, its columns are empty and the
    similarity is 0.
    """
    table = queries.reset_index(drop=True).assign(**{SIMILARITY: nearest.similarities})
    for name, column in others.items():
        cells = (
            pd.Series(np.asarray(column, dtype=object)).reindex(nearest.rows).to_numpy()
        )
        table[name] = ["" if cell != cell else cell for cell in cells]
    table[ORIENTATION] = np.where(
        nearest.rows >= 0, np.where(nearest.turned, "-", "+"), ""
    )
    write_table(path, table, NEAREST[kind])
    return table


def _log_similarities(what: str, table: pd.DataFrame) -> None:
    """Log the number of windows in each range of similarity to the nearest training window."""
    _, *strata = Strata().parts(table[SIMILARITY].to_numpy())
    parts = ", ".join(f"{int(rows.sum()):,} {name}" for name, rows in strata)
    log(f"{len(table):,} {what}; similarity of the nearest training window: {parts}")


def find_nearest(held_out: Path, training: Path, output: Path) -> pd.DataFrame:
    """Write the nearest `training` record per `held_out` record.

    Both are FASTA files of windows, whose lengths may differ. Returns the table.
    """
    _check([held_out, training], output)
    queries, others = read_records(held_out).sequences, read_records(training).sequences
    texts = list(queries.values())
    found = aligned_pairs(texts, SequenceWindows.of(list(others.values()))).nearest(
        len(texts)
    )
    records = pd.DataFrame({"name": [*queries]})
    table = _write(output, "records", records, {"nearest": [*others]}, found)
    _log_similarities(f"records of {held_out.name}", table)
    return table


def find_nearest_promoters(
    config: Config,
    negative_set: str,
    *,
    windows: Path,
    reference: Path,
    output: Path,
    predictions: Path | None = None,
) -> pd.DataFrame:
    """Write a table with the nearest training window per validation and test window, and return the table.

    Candidates are the training promoters and their negatives of the same set. `predictions` is an output file
    for the nearest-window baseline.
    """
    files = [windows / name for name in ("windows.parquet", "labels.npz")]
    _check([reference, *files], output, predictions)
    data = read_windows(windows, negative_set)
    sequences = window_sequences(Reference(reference), data.rows, config.seed)
    training = np.flatnonzero((data.rows["split"] == "train").to_numpy())
    held_out = np.flatnonzero(data.rows["split"].isin(["valid", "test"]).to_numpy())
    if not len(training):
        raise DataError(f"{windows / 'windows.parquet'}: contains no training windows")
    learned = TextWindows(
        [sequences[row] for row in training.tolist()], data.labels[training]
    )
    baseline = NearestWindow(balanced=True).fit(learned)
    pairs = baseline.pairs([sequences[row] for row in held_out.tolist()])
    rows = data.rows.drop(columns="name").assign(label=data.labels)
    queries = rows.iloc[held_out].reset_index(drop=True)
    columns = ("contig", "start", "end", "strand", "negative_set", "label")
    names = {
        column: f"nearest_{column.removeprefix('negative_')}" for column in columns
    }
    others = {names[column]: rows[column].to_numpy()[training] for column in columns}
    listed = queries.drop(columns=[CODING, HOMOLOGY], errors="ignore")
    table = _write(output, "promoters", listed, others, pairs.nearest(len(held_out)))
    if predictions is not None:
        probabilities = baseline.predict_pairs(pairs, len(held_out))[:, 0]
        write_predictions(predictions, queries.assign(probability=probabilities))
    for split in ("valid", "test"):
        _log_similarities(
            f"{split} windows ({negative_set})", table[table["split"] == split]
        )
    return table


def find_nearest_bins(
    config: Config,
    *,
    data: Path,
    reference: Path,
    output: Path,
    predictions: Path | None = None,
    window: int | None = None,
) -> pd.DataFrame:
    """Write a table with the nearest training bin per test bin, by the windows around bins; return the table.

    Coordinates are those of bins. Rows are the test bins that metrics are computed on, in their order.
    `predictions` is an output `.npy` file (bins, tracks) of the nearest-window baseline. `window` is as in
    `_compared_window`.
    """
    _check([data, reference], output, predictions)
    bins, genome = read_dataset(data), Reference(reference)
    length = _compared_window(bins, window)
    test, training = (
        held_out_rows(bins, config.chromatin.evaluation),
        bins.rows("train"),
    )
    if not len(training):
        raise DataError(f"{data}: contains no training bins")
    log(
        f"comparing {len(test):,} test bins with {len(training):,} training bins, windows of {length:,} bp"
    )
    baseline = NearestWindow().fit(BinWindows(bins, genome, length, training))
    texts = BinWindows(bins, genome, length, test).sequences(np.arange(len(test)))
    pairs = baseline.pairs(texts)
    columns = ("contig", "start", "end")
    others = {
        f"nearest_{column}": bins.bins[column].to_numpy()[training]
        for column in columns
    }
    table = _write(
        output, "bins", bins.bins.iloc[test], others, pairs.nearest(len(test))
    )
    if predictions is not None:
        write_array(
            predictions, baseline.predict_pairs(pairs, len(test)).astype(np.float32)
        )
    _log_similarities("test bins", table)
    return table


def drop_similar_bins(
    data: Path,
    reference: Path,
    output: Path,
    similarity: float,
    *,
    window: int | None = None,
) -> dict[str, Any]:
    """Write to `output` the data set `data` without training bins that are similar to a held-out bin.

    A training bin is excluded if the window around a validation or test bin has at least `similarity` to its
    window. Tracks and held-out bins do not change. Returns the value of `SIMILAR` in `dataset.json`.
    """
    check_fraction("similarity", similarity)
    if not similarity:
        raise UsageError(
            "--similarity 0: must be above 0; 0 would exclude all training bins"
        )
    check_directory(output, [data, reference])
    bins, genome = read_dataset(data), Reference(reference)
    length = _compared_window(bins, window)
    training = bins.rows("train")
    held_out = np.flatnonzero((bins.bins["split"] != "train").to_numpy())
    texts = BinWindows(bins, genome, length, held_out).sequences(
        np.arange(len(held_out))
    )
    windows = BinWindows(bins, genome, length, training)
    similar = similar_rows(
        texts, SequenceWindows(len(training), length, windows.sequences), similarity
    )
    if similar.all():
        raise DataError(
            f"{data}: all {len(training):,} training bins have a similarity of at least {similarity:g} to a "
            "held-out bin; no training bins remain"
        )
    kept = np.ones(len(bins), np.bool_)
    kept[training[similar]] = False
    dropped = {
        "similarity": similarity,
        "window": length,
        "left_out": int(similar.sum()),
    }
    computed = {"format", "bins", "tracks"}
    info = {
        name: value for name, value in bins.info.items() if name not in computed
    } | {SIMILAR: dropped}
    rows = bins.bins[kept].reset_index(drop=True)
    made = write_dataset(output, rows, bins.labels.take(kept), bins.tracks, info)
    log(
        f"{dropped['left_out']:,} of {len(training):,} training bins are similar to a held-out bin: excluded"
    )
    positives = made.labels.positives(made.rows("train"))
    bare = [
        track.name
        for track, count in zip(made.tracks, positives, strict=True)
        if not count
    ]
    if bare:
        log(
            f"warning: {len(bare):,} tracks have no positive training bins left: {', '.join(bare[:3])}"
        )
    return dropped


def _compared_window(data: ChromatinData, window: int | None) -> int:
    """Return the window size in bp for the comparison of bins; None: 1,000, or the bin size if larger."""
    size = data.bin_size
    if window is None:
        return max(KMER_WINDOW - (KMER_WINDOW - size) % 2, size)
    return checked_window(window, size)
