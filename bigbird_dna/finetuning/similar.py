"""Chromatin data sets without the training bins that are similar to a held-out bin."""

from pathlib import Path
from typing import Any

import numpy as np

from bigbird_dna.console import log
from bigbird_dna.data.chromatin import BinWindows, checked_window
from bigbird_dna.data.similar import similar_rows
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.errors import DataError, UsageError, check_fraction
from bigbird_dna.genome.chromatin.dataset import (
    ChromatinData,
    read_dataset,
    write_dataset,
)
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.similarity import SequenceWindows
from bigbird_dna.model.settings import KMER_WINDOW

SIMILAR = "similar"
"""Key in `dataset.json` that describes the excluded training bins."""


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
