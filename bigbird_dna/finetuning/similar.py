"""Chromatin data sets without the training bins that are similar to a held-out bin."""

from pathlib import Path
from typing import Any

import numpy as np

from bigbird_dna.console import log
from bigbird_dna.data.chromatin import BinWindows
from bigbird_dna.data.similar import similar_rows
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.dataset import (
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

    A training bin is excluded if the window around a validation or test bin has at least `similarity`, above
    0, to its window of `window` bp (None: 1,000, or the bin size if larger). Tracks and held-out bins do not
    change. Returns the value of `SIMILAR` in `dataset.json`.
    """
    bins, genome = read_dataset(data), Reference(reference)
    size = bins.bin_size
    length = window or max(KMER_WINDOW - (KMER_WINDOW - size) % 2, size)
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
    remaining = np.ones(len(bins), np.bool_)
    remaining[training[similar]] = False
    left_out = int(similar.sum())
    excluded = {"similarity": similarity, "window": length, "left_out": left_out}
    info = {**bins.info, SIMILAR: excluded}
    for name in ("format", "bins", "tracks"):  # written anew
        info.pop(name, None)
    rows, labels = bins.bins[remaining].reset_index(drop=True), bins.labels
    dataset = write_dataset(output, rows, labels.take(remaining), bins.tracks, info)
    log(
        f"{left_out:,} of {len(training):,} training bins are similar to a held-out bin: excluded"
    )
    positives = dataset.labels.positives(dataset.rows("train"))
    empty = [
        track.name
        for track, count in zip(dataset.tracks, positives, strict=True)
        if not count
    ]
    if empty:
        log(
            f"warning: {len(empty):,} tracks have no positive training bins left: {', '.join(empty[:3])}"
        )
    return excluded
