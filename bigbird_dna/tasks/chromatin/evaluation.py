"""Predictions of held-out bins, by models and by the k-mer baseline, as arrays that `auc-report` reads."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bigbird_dna.baselines.kmer_tracks import KmerProfiles, profile_features
from bigbird_dna.config import ChromatinConfig
from bigbird_dna.console import log, progress
from bigbird_dna.errors import DataError, ModelError
from bigbird_dna.files import atomic_directory, atomic_path
from bigbird_dna.genome.chromatin.dataset import ChromatinData
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model.directory import Model
from bigbird_dna.tasks.chromatin.inference import bins_together, predict_profiles
from bigbird_dna.tasks.chromatin.shared_windows import WINDOWS_AT_ONCE, share_windows

# Axes: n bins, T tracks.

BINS_AT_ONCE = 512
BASELINE_WINDOW = 1000  # bp, the wider of the two windows whose k-mers the baseline sees
BASELINE_BINS = 60_000  # most training bins the baseline is fitted to


def held_out_rows(data: ChromatinData, config: ChromatinConfig) -> npt.NDArray[np.intp]:
    """The test bins that figures are computed on: all, or a sample of `test_bins`."""
    rows = data.rows("test")
    if not len(rows):
        raise DataError("the chromatin data set has no test bins")
    return _sample(rows, config.test_bins, (config.seed, 7)) if config.test_bins else rows


def write_held_out(out: Path, data: ChromatinData, rows: npt.NDArray[np.intp]) -> None:
    """Write the bins and labels that predictions are judged by: `bins.parquet` and `labels.npz`."""
    with atomic_directory(out) as directory:
        data.bins.iloc[rows].to_parquet(directory / "bins.parquet", index=False)
        data.labels.take(rows).save(directory / "labels.npz")


def predict_bins(
    models: Sequence[Model],
    data: ChromatinData,
    reference: Reference,
    rows: npt.NDArray[np.intp],
    *,
    middle: float = 0.0,
    batch_size: int = 16,
    device: str = "auto",
) -> npt.NDArray[np.float32]:
    """Probabilities (n, T) of some bins: mean of the models and of both strands.

    With `middle` neighbouring bins share a window (see `share_windows`): those in this part of it.

    Raises
    ------
    ModelError
        A model predicts other tracks or another size of bins than the data set has.
    """
    for model in models:
        names = [track["track"] for track in model.settings["tracks"]]
        if names != [track.name for track in data.tracks]:
            raise ModelError(f"{model.path}: its tracks are not those of the data set")
        if model.settings["bin"] != data.bin_size:
            raise ModelError(
                f"{model.path}: predicts bins of {model.settings['bin']} bp, "
                f"the data set has bins of {data.bin_size} bp"
            )
    bins = data.bins.iloc[rows]
    contigs, starts = bins["contig"].astype(str).tolist(), bins["start"].to_numpy()
    total = np.zeros((len(rows), len(data.tracks)))
    for number, model in enumerate(models, start=1):
        together = bins_together(model, middle)
        window = int(model.settings["window"])
        shared = share_windows(contigs, starts, data.bin_size, window, together)
        predict = partial(
            predict_profiles, model, middle=middle, batch_size=batch_size, device=device
        )
        batches = shared.predicted(reference, predict)
        steps = -(-len(shared.windows) // WINDOWS_AT_ONCE)
        for numbers, values in progress(batches, f"model {number} of {len(models)}", steps):
            total[numbers] += values
    return np.asarray(total / len(models), np.float32)


def baseline_bins(
    config: ChromatinConfig,
    data: ChromatinData,
    reference: Reference,
    rows: npt.NDArray[np.intp],
) -> npt.NDArray[np.float32]:
    """Probabilities (n, T) of a logistic regression on the k-mers of a bin and of the kb around it."""
    sizes = (data.bin_size, max(BASELINE_WINDOW, data.bin_size))

    def features(chosen: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
        parts = []
        for first in range(0, len(chosen), BINS_AT_ONCE):
            windows = data.windows(max(sizes), chosen[first : first + BINS_AT_ONCE])
            sequences = [reference.fetch(window) for window in windows]
            parts.append(profile_features(sequences, sizes, config.baseline_kmer))
        return np.concatenate(parts)

    training = data.rows("train")
    if len(training) > BASELINE_BINS:
        training = _sample(training, BASELINE_BINS, (config.seed, 8))
    valid = data.rows("valid")
    if not len(valid):
        raise DataError("the chromatin data set has no validation bins to choose the penalty on")
    log(f"k-mer regression: {len(training):,} bins, {len(data.tracks):,} tracks")
    model = KmerProfiles().fit(
        features(training), data.labels.rows(training), features(valid), data.labels.rows(valid)
    )
    return model.predict(features(rows))


def write_array(path: Path, values: npt.NDArray[np.float32]) -> None:
    """Write an array as `.npy`, whole or not at all."""
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.save(stream, values)


def _sample(rows: npt.NDArray[np.intp], count: int, seed: tuple[int, int]) -> npt.NDArray[np.intp]:
    if len(rows) <= count:
        return rows
    chosen = np.random.default_rng(seed).choice(rows, count, replace=False)
    return np.sort(chosen)
