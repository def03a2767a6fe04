"""Comparators on chromatin bins: arrays of the test bins that `auc-report` reads, as those of the models."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bigbird_dna.baselines.comparators.interface import Comparator, Rows, blocks
from bigbird_dna.baselines.comparators.known_motifs import (
    KnownMotif,
    jaspar_motifs,
    motifs_of_factor,
    read_motifs,
)
from bigbird_dna.baselines.comparators.names import GKM, MOTIFS, NETWORK_NAMES, POSITION
from bigbird_dna.baselines.comparators.registry import make_comparator
from bigbird_dna.config import Config
from bigbird_dna.console import log, progress
from bigbird_dna.data.chromatin import BinWindows, checked_window, sample, training_bins
from bigbird_dna.disk.atomic import checksum, write_array
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.finetuning.evaluation import BASELINE_BINS, BASELINE_WINDOW, held_out_rows
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.chromatin.tracks import Track, write_tracks
from bigbird_dna.genome.reference import Reference
from bigbird_dna.tasks.comparators.options import Options, write_description

# Axes: n bins, T tracks.

PREDICTIONS = "predictions.npy"
TAXON = "vertebrates"
_AT_ONCE = 4096  # bins whose sequences are in memory


def fit_chromatin_comparator(
    config: Config,
    name: str,
    *,
    data: Path,
    reference: Path,
    output: Path,
    checkpoints: Path,
    options: Options,
    window: int | None = None,
    device: str = "auto",
) -> None:
    """Fit a comparator to the training bins, and predict the test bins.

    Writes to the directory `output` the probabilities `predictions.npy`, (n, T), with `bins.parquet`,
    `labels.npz` and `tracks.tsv` of the same bins and tracks, those that the comparator can predict;
    `comparator.json`; and the training log of a network. Networks learn from the share
    `chromatin.training.examples` of the training bins, others from a sample of 60,000.

    Parameters
    ----------
    window
        bp around a bin's middle that are looked at; None: 1,000, and the bin alone for motifs and gapped
        k-mers.

    Raises
    ------
    UsageError
        No such comparator, one of promoters alone, options that don't fit it, or no matrices at hand.
    ConfigError
        The window doesn't hold a bin in its middle.
    DataError
        The data set can't be used; no track's factor has a matrix.
    """
    _check(name, options)
    check_directory(output, [data, reference, checkpoints, *([options.model] if options.model else [])])
    bins, genome = read_dataset(data), Reference(reference)
    evaluation, size = config.chromatin.evaluation, bins.bin_size
    length = _window(window, name, size)
    test, valid = held_out_rows(bins, evaluation), bins.rows("valid")
    _check_splits(data, {"training": bins.rows("train"), "validation": valid})
    settings = options.settings(evaluation.seed, directed=False)
    motifs = _motifs(options, bins.tracks, data) if name == MOTIFS else ()
    if name in NETWORK_NAMES:
        learnt = training_bins(bins, config.chromatin.training)
    else:
        learnt = sample(bins.rows("train"), BASELINE_BINS, (evaluation.seed, 8))
    log(f"{name}: {len(learnt):,} training bins, {len(bins.tracks):,} tracks, windows of {length:,} bp")
    comparator = make_comparator(
        name,
        directed=False,
        sizes=(size, length) if length > size else (size,),
        kmer=evaluation.baseline_kmer,
        settings=settings,
        checkpoints=checkpoints,
        identity={
            "labels": checksum(data / "labels.npz"),
            "bins": checksum(data / "bins.parquet"),
            "examples": config.chromatin.training.examples,
            "examples_seed": config.chromatin.training.seed,
        },
        device=device,
        motifs=motifs,
        model=options.model,
        weights=options.weights,
    ).fit(*(BinWindows(bins, genome, length, rows) for rows in (learnt, valid)))
    values = _predicted(comparator, BinWindows(bins, genome, length, test))
    can = comparator.covered(len(bins.tracks))
    covered = np.flatnonzero(can)
    with atomic_directory(output) as directory:
        write_array(directory / PREDICTIONS, np.ascontiguousarray(values[:, covered]))
        bins.bins.iloc[test].to_parquet(directory / "bins.parquet", index=False)
        bins.labels.take(test).select(covered).save(directory / "labels.npz")
        write_tracks(directory / "tracks.tsv", [bins.tracks[one] for one in covered.tolist()])
        told = {
            "window": length,
            "training_bins": len(learnt),
            "tracks": len(covered),
            "tracks_left_out": [bins.tracks[one].name for one in np.flatnonzero(~can).tolist()],
        }
        write_description(directory, name, comparator, settings, **told)
    comparator.finish()


def _check(name: str, options: Options) -> None:
    """`UsageError` for options that don't fit a comparator, and for one of promoters alone."""
    options.check(name)
    if name == POSITION:
        raise UsageError(f"{POSITION}: is for promoters alone: bins have no direction and no start site")


def _predicted(comparator: Comparator, windows: BinWindows) -> npt.NDArray[np.float32]:
    """Probabilities (n, T), some windows at a time."""
    count, tracks = windows.shape
    values = np.empty((count, tracks), np.float32)
    for rows in progress(blocks(count, _AT_ONCE), "predicting", -(-count // _AT_ONCE), "parts"):
        values[rows] = comparator.predict(windows.sequences(rows))
    return values


def _check_splits(data: Path, splits: Mapping[str, Rows]) -> None:
    for split, rows in splits.items():
        if not len(rows):
            raise DataError(f"{data}: has no {split} bins")


def _window(window: int | None, name: str, size: int) -> int:
    if window is None:
        return size if name in (MOTIFS, GKM) else max(BASELINE_WINDOW, size)
    return checked_window(window, size)


def _motifs(options: Options, tracks: Sequence[Track], data: Path) -> list[tuple[KnownMotif, ...]]:
    """The matrices of each track's factor: its target, or where the table names none its name."""
    known = jaspar_motifs(options.taxon or TAXON) if options.motifs is None else read_motifs(options.motifs)
    found = [motifs_of_factor(track.target or track.name, known) for track in tracks]
    count = sum(map(bool, found))
    log(f"{count:,} of {len(tracks):,} tracks have a factor with a matrix, among {len(known):,} matrices")
    if not count:
        where = options.motifs or "JASPAR"
        raise DataError(f"{where}: has no matrix of the factors of {data / 'tracks.tsv'}")
    return found
