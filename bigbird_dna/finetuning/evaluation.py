"""Predictions of held-out windows and bins.

Predictions of test bins in shards: rows of the array that all shards make.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.baselines.kmers import KmerTracks, window_features
from bigbird_dna.config import ChromatinEvaluationConfig
from bigbird_dna.console import log, progress
from bigbird_dna.data.chromatin import sample
from bigbird_dna.disk.atomic import check_writable, write_array
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.disk.shards import Shard, ShardFile, contents, find_shard, write_shard
from bigbird_dna.errors import DataError, ModelError, UsageError, check_at_least_one
from bigbird_dna.genome.chromatin.dataset import FILES, ChromatinData, read_dataset
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.directory import load_chromatin_model
from bigbird_dna.model.inference import choose_device, inference
from bigbird_dna.model.shared_windows import WINDOWS_AT_ONCE, share_windows
from bigbird_dna.training.initialization import model_files

# Axes: n bins, m those of a shard, T tracks.

KIND = "predicted bins"


def write_bin_shard(
    output: Path, shard: Shard, values: npt.NDArray[np.float32], shape: tuple[int, int], job: dict[str, Any]
) -> None:
    """Write the probabilities (m, T) of a shard's bins; `shape` is (n, T), and `job` what decides them."""
    with write_shard(output, KIND, shard, {**job, "shape": list(shape)}) as writer:
        writer.write_array("values", values)


def merge(shards: Sequence[ShardFile], output: Path) -> int:
    """Write the array (n, T) of all shards as one run would (`.npy`); gives n."""
    check_output(output, [shard.path for shard in shards])
    rows, tracks = shards[0].described(lambda job: job["shape"])
    parts = []
    for shard in shards:
        (values,) = shard.arrays("values")
        if values.dtype != np.float32 or values.shape != (len(shard.shard.rows(rows)), tracks):
            raise DataError(f"{shard.path}: damaged: its values are not those of its bins")
        parts.append(values)
    write_array(output, np.concatenate(parts))
    return int(rows)


# Axes: n bins, T tracks.

BINS_AT_ONCE = 512
BASELINE_WINDOW = 1000  # bp, the wider of the two windows whose k-mers the baseline sees
BASELINE_BINS = 60_000  # most training bins the baseline is fitted to


def held_out_rows(data: ChromatinData, config: ChromatinEvaluationConfig) -> npt.NDArray[np.intp]:
    """The test bins that figures are computed on: all, or a sample of `test_bins`."""
    rows = data.rows("test")
    if not len(rows):
        raise DataError("the chromatin data set has no test bins")
    return sample(rows, config.test_bins, (config.seed, 7)) if config.test_bins else rows


def predict_bins(
    models: Sequence[LoadedChromatinModel],
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
        if [track.name for track in model.tracks] != [track.name for track in data.tracks]:
            raise ModelError(f"{model.path}: its tracks are not those of the data set")
        if model.settings.bin != data.bin_size:
            raise ModelError(
                f"{model.path}: predicts bins of {model.settings.bin} bp, "
                f"the data set has bins of {data.bin_size} bp"
            )
    if not len(rows):
        return np.zeros((0, len(data.tracks)), np.float32)
    bins = data.bins.iloc[rows]
    contigs, starts = bins["contig"].astype(str).tolist(), bins["start"].to_numpy()
    total = np.zeros((len(rows), len(data.tracks)))
    for number, model in enumerate(models, start=1):
        together = model.bins_together(middle)
        shared = share_windows(contigs, starts, data.bin_size, model.settings.window, together)
        predict = partial(model.window_probabilities, middle=middle, batch_size=batch_size, device=device)
        batches = shared.predicted(reference, predict)
        steps = -(-len(shared.windows) // WINDOWS_AT_ONCE)
        for numbers, values in progress(batches, f"model {number} of {len(models)}", steps):
            total[numbers] += values
    return np.asarray(total / len(models), np.float32)


def baseline_bins(
    config: ChromatinEvaluationConfig, data: ChromatinData, reference: Reference, rows: npt.NDArray[np.intp]
) -> npt.NDArray[np.float32]:
    """Probabilities (n, T) of a logistic regression on the k-mers of a bin and of the kb around it."""
    sizes = (data.bin_size, max(BASELINE_WINDOW, data.bin_size))

    def features(chosen: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
        parts = []
        for first in range(0, len(chosen), BINS_AT_ONCE):
            windows = data.windows(max(sizes), chosen[first : first + BINS_AT_ONCE])
            sequences = [reference.fetch(window) for window in windows]
            parts.append(window_features(sequences, sizes, config.baseline_kmer))
        return np.concatenate(parts)

    training = sample(data.rows("train"), BASELINE_BINS, (config.seed, 8))
    valid = data.rows("valid")
    if not len(valid):
        raise DataError("the chromatin data set has no validation bins to choose the penalty on")
    log(f"k-mer regression: {len(training):,} bins, {len(data.tracks):,} tracks")
    model = KmerTracks().fit(
        features(training), data.labels.rows(training), features(valid), data.labels.rows(valid)
    )
    return model.predict(features(rows))


def evaluate_models(
    models: Sequence[Path],
    config: ChromatinEvaluationConfig,
    *,
    data: Path,
    reference: Path,
    output: Path,
    labels: Path | None = None,
    piece: str | None = None,
    precision: str = "float32",
    batch_size: int = 16,
    device: str = "auto",
) -> None:
    """Write what models say of the test bins of a data set: their mean probability, (n, T), as `.npy`.

    Parameters
    ----------
    models
        Directories of chromatin models with the data set's tracks and size of bins.
    config
        Which test bins, and whether neighbours share a window.
    labels
        Directory for these bins and their labels, `bins.parquet` and `labels.npz`; none: not written.
    piece
        "3/8": the third of eight pieces with as many bins each, for `merge_shards`; `output` is its file.
        None: all bins.
    precision
        As of `predict_tracks`.

    Raises
    ------
    UsageError
        An output can't be written (it is looked at before the work begins), `batch_size` is below 1, or
        `precision` can't be had;
        labels are asked for with a piece.
    DataError, ModelError
        There are no test bins; a model is not of the data set.
    """
    check_at_least_one({"batch_size": batch_size})
    computing = inference(precision, choose_device(device))
    part = find_shard(piece, output)
    if part is not None and labels is not None:
        raise UsageError(f"piece {part}: the labels of all bins go with the whole, not with a piece")
    bins, rows = _judged(config, data, output, labels, [data, reference, *models])
    loaded, genome = [load_chromatin_model(path) for path in models], Reference(reference)
    numbers = range(len(rows)) if part is None else part.rows(len(rows))
    some = rows[numbers.start : numbers.stop]
    with computing:
        values = predict_bins(
            loaded, bins, genome, some, middle=config.middle, batch_size=batch_size, device=device
        )
    if part is None:
        _write(output, values, labels, bins, rows)
        return
    files = [data / name for name in FILES] + [file for model in loaded for file in model_files(model)]
    chosen = config.model_dump(mode="json", include={"test_bins", "middle", "seed"})
    chosen |= {} if precision == "float32" else {"precision": precision}
    job = {"content": contents(genome.path, *files), "evaluation": chosen}
    write_bin_shard(output, part, values, (len(rows), len(bins.tracks)), job)


def evaluate_baseline(
    config: ChromatinEvaluationConfig,
    *,
    data: Path,
    reference: Path,
    output: Path,
    labels: Path | None = None,
) -> None:
    """As `evaluate_models`, for the k-mer baseline, which is fitted first."""
    bins, rows = _judged(config, data, output, labels, [data, reference])
    _write(output, baseline_bins(config, bins, Reference(reference), rows), labels, bins, rows)


def _judged(
    config: ChromatinEvaluationConfig, data: Path, output: Path, labels: Path | None, inputs: Sequence[Path]
) -> tuple[ChromatinData, npt.NDArray[np.intp]]:
    """A data set and its rows that figures are computed on; outputs that can't be written are refused."""
    check_writable(output)
    if labels is not None:
        check_directory(labels, inputs)
    bins = read_dataset(data)
    return bins, held_out_rows(bins, config)


def _write(
    output: Path,
    values: npt.NDArray[np.float32],
    labels: Path | None,
    data: ChromatinData,
    rows: npt.NDArray[np.intp],
) -> None:
    """Write an array as `.npy`, after the bins and labels that it is judged by."""
    if labels is not None:
        with atomic_directory(labels) as directory:
            data.bins.iloc[rows].to_parquet(directory / "bins.parquet", index=False)
            data.labels.take(rows).save(directory / "labels.npz")
    write_array(output, values)
