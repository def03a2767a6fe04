"""Predictions for held-out windows and bins, by models and by regressions as baselines."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit

from bigbird_dna.baselines.dyads import TrackWords
from bigbird_dna.baselines.promoters import promoter_regression
from bigbird_dna.baselines.scan import (
    CPG_WINDOW,
    WindowScores,
    cpg_scores,
    kmer_scores,
    position_scores,
    scores_of_windows,
    write_scan,
)
from bigbird_dna.baselines.windows import blocks
from bigbird_dna.config.chromatin import ChromatinEvaluationConfig
from bigbird_dna.config.paths import baseline_file, scan_file
from bigbird_dna.config.run import Config
from bigbird_dna.console import log, progress
from bigbird_dna.data.chromatin import BinWindows, Rows, sample
from bigbird_dna.data.predictions import (
    CPG,
    KMER,
    MODEL,
    POSITION,
    PROMOTER_BASELINES,
    SHIFTS,
    blocks_of,
)
from bigbird_dna.data.promoter_windows import (
    WindowSet,
    read_windows,
    window_sequences,
)
from bigbird_dna.disk.atomic import atomic_path, check_writable, write_array
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.errors import (
    ConfigError,
    DataError,
    ModelError,
    check_at_least_one,
    check_choice,
)
from bigbird_dna.genome.chromatin.dataset import ChromatinData, read_dataset
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.metrics.labels import binary_metrics
from bigbird_dna.model.chromatin import (
    WINDOWS_AT_ONCE,
    LoadedChromatinModel,
    share_windows,
)
from bigbird_dna.model.directory import load_chromatin_model
from bigbird_dna.model.ensemble import networks_beside
from bigbird_dna.model.inference import choose_device, inference, supported_precision
from bigbird_dna.model.settings import KMER_WINDOW

# Axes: n bins, T tracks.

BINS_AT_ONCE = 512
BASELINE_BINS = (
    60_000  # maximum number of training bins that k-mer regressions are fitted to
)


def promoter_baselines(
    config: Config,
    negative_set: str,
    *,
    baselines: Sequence[str] = (),
    windows: Path,
    reference: Path,
    output: Path,
    scan: Path | None = None,
    stride: int = 10,
) -> None:
    """Fit logistic regressions to the training windows, and write their predictions, in the format of models,
    as `baseline_file`s of the directory `output`.

    `baselines` selects features (`PROMOTER_BASELINES`): k-mer frequencies, the base at each position or
    composition; none: all. `DataError` for `position` and windows of different lengths. With `scan`, an
    indexed FASTA, `position`, `k-mer` and the density of CpG also score every base of its records, into
    `scan_file`s with the highest scores in bins of `stride` bp.
    """
    for name in baselines:
        check_choice("--baseline", name, PROMOTER_BASELINES)

    data, settings = read_windows(windows, negative_set), config.promoters.evaluation
    sequences = window_sequences(Reference(reference), data.rows, config.seed)
    upstream, length = config.promoters.windows.sides[0], len(sequences[0])
    if scan is not None and upstream >= length:
        raise ConfigError(
            f"promoters.windows.upstream {upstream:,}: the windows have {length:,} bp"
        )

    rows = np.flatnonzero(data.rows["split"].to_numpy() == "train")
    # Each scores windows of a length, of which some bases are before the TSS.
    scanning: dict[str, tuple[WindowScores, int, int]] = {
        CPG: (cpg_scores, CPG_WINDOW // 2, CPG_WINDOW)
    }
    with atomic_directory(output) as directory:
        for name in baselines or PROMOTER_BASELINES:
            model = promoter_regression(name, settings.baseline_kmer, settings.seed)
            model.fit([sequences[row] for row in rows], data.labels[rows])
            write_predictions(
                directory / baseline_file(name),
                held_out_predictions(data, sequences, model.predict),
            )
            if name == KMER:
                scanning[name] = kmer_scores(model, length), upstream, length
            elif name == POSITION:
                scanning[name] = position_scores(model), upstream, length

        if scan is not None:
            with Reference(scan) as genome:
                for name, (scores, before, size) in scanning.items():
                    of_bases = scores_of_windows(
                        genome, scores, upstream=before, length=size
                    )
                    write_scan(directory / scan_file(name), genome, of_bases, stride)


def held_out_predictions(
    data: WindowSet,
    sequences: list[str],
    predict: Callable[[list[str]], npt.NDArray[np.floating]],
) -> pd.DataFrame:
    """Return the validation and test windows with their labels and the probabilities from `predict`."""
    held_out = np.flatnonzero((data.rows["split"] != "train").to_numpy())
    rows = data.rows.drop(columns="name").assign(label=data.labels)
    probabilities = predict([sequences[index] for index in held_out])
    return rows.iloc[held_out].reset_index(drop=True).assign(probability=probabilities)


def write_predictions(path: Path, predictions: pd.DataFrame) -> None:
    """Write window columns, label and probability as Parquet."""
    with atomic_path(path) as temporary:
        predictions.to_parquet(temporary, index=False)


def split_metrics(predictions: pd.DataFrame, split: str) -> dict[str, Any]:
    """Return the metrics of a split's predictions as JSON values; {} if the split has none."""
    rows = predictions[predictions["split"] == split]
    if rows.empty:
        return {}
    labels, probabilities = (rows[name].to_numpy() for name in ("label", "probability"))
    # The field `note` explains why a metric is undefined.
    return without_nan(
        binary_metrics(labels, probabilities, blocks=blocks_of(rows))._asdict()
    )


def shift_metrics(
    predictions: pd.DataFrame,
    reference: Reference,
    predict: Callable[[list[str]], Mapping[str, npt.NDArray[np.floating]]],
    most: int,
) -> dict[str, Any]:
    """Return what moving the windows of validation promoters by each of `SHIFTS` does to their scores.

    `predict` returns the probabilities (N,) of windows by predictor. Of each predictor, metrics are the mean
    score of windows in place, and relative to it that of windows moved in both directions; and the AUROC
    against the validation negatives in place. All are of the same promoters, a fixed sample of at most `most`
    of `predictions`, which are those of `held_out_predictions`. {} without promoters that can be moved.
    """
    valid = predictions[predictions["split"] == "valid"]
    promoters, far = valid[valid["label"] == 1], max(SHIFTS)
    lengths = promoters["contig"].map(reference.contigs)
    promoters = promoters[
        (promoters["start"] >= far) & (promoters["end"] + far <= lengths)
    ]
    if promoters.empty:
        return {}

    if len(promoters) > most:
        promoters = promoters.sample(most, random_state=1)

    columns = ["contig", "start", "end", "strand"]
    windows = [*promoters[columns].itertuples(index=False, name=None)]
    moves = [0, *(sign * bp for bp in SHIFTS for sign in (-1, 1))]
    moved = [
        reference.fetch(Interval(contig, start + bp, end + bp, strand))
        for bp in moves
        for contig, start, end, strand in windows
    ]
    metrics: dict[str, Any] = {"promoters": len(promoters)}
    for name, scores in predict(moved).items():
        in_place, *others = np.split(
            scores, np.arange(1, 1 + 2 * len(SHIFTS), 2) * len(windows)
        )
        mean = float(in_place.mean())
        metrics[name] = {"mean_score": mean}
        for bp, values in zip(SHIFTS, others, strict=True):
            metrics[name][f"relative_score_{bp}_bp"] = float(values.mean()) / mean

        negatives = valid.loc[
            valid["label"] == 0, "probability" if name == MODEL else name
        ].to_numpy()
        for bp, values in zip((0, *SHIFTS), (in_place, *others), strict=True):
            labels = np.repeat([1, 0], [len(values), len(negatives)])
            area = auroc(labels, np.concatenate([values, negatives])).value
            metrics[name][f"auroc_{bp}_bp"] = area

        metrics[name] = without_nan(metrics[name])

    return metrics


def without_nan(metrics: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN, the value of undefined metrics, by None: JSON has no NaN."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in metrics.items()
    }


def held_out_rows(data: ChromatinData, config: ChromatinEvaluationConfig) -> Rows:
    """Return the test bins that metrics are computed on: all, or a sample of `test_bins`."""
    rows = data.rows("test")
    if not len(rows):
        raise DataError("the chromatin data set contains no test bins")
    return (
        sample(rows, config.test_bins, (config.seed, 7)) if config.test_bins else rows
    )


def predict_bins(
    models: Sequence[LoadedChromatinModel],
    data: ChromatinData,
    reference: Reference,
    rows: Rows,
    *,
    networks: bool = False,
    center_fraction: float = 0.0,
    batch_size: int = 16,
    device: str = "auto",
) -> npt.NDArray[np.float32]:
    """Return probabilities (n, T) of the bins `rows`, averaged over the models and both strands.

    With `networks`, those without the regressions of ensembles follow: (n, 2 T). Neighboring bins in the
    central `center_fraction` of a window share that window (see `share_windows`). Raises `ModelError` if a
    model's tracks or bin size differ from those of the data set.
    """
    for model in models:
        if [track.name for track in model.tracks] != [
            track.name for track in data.tracks
        ]:
            raise ModelError(
                f"{model.path}: the model's tracks differ from those of the data set"
            )

        if model.settings.bin != data.bin_size:
            raise ModelError(
                f"{model.path}: the model predicts bins of {model.settings.bin} bp; "
                f"the data set has bins of {data.bin_size} bp"
            )

    total = np.zeros((len(rows), len(data.tracks) * (1 + networks)))
    if not len(rows):
        return total.astype(np.float32)

    bins = data.bins.iloc[rows]
    contigs, starts = bins["contig"].astype(str).tolist(), bins["start"].to_numpy()
    for number, model in enumerate(models, start=1):
        together = model.bins_together(center_fraction)
        shared = share_windows(
            contigs, starts, data.bin_size, model.settings.window, together
        )
        predict = partial(
            model.window_probabilities,
            center_fraction=center_fraction,
            batch_size=batch_size,
            device=device,
        )
        batches = shared.predicted(reference, predict)
        steps = -(-len(shared.windows) // WINDOWS_AT_ONCE)
        with networks_beside(model.network) if networks else nullcontext():
            for numbers, values in progress(
                batches, f"model {number} of {len(models)}", steps
            ):
                total[numbers] += np.tile(values, total.shape[1] // values.shape[1])

    return np.asarray(total / len(models), np.float32)


def fit_baseline(
    data: ChromatinData,
    reference: Reference,
    k: int,
    dyads: int,
    training: Rows,
    valid: Rows,
) -> TrackWords:
    """Fit a logistic regression on k-mers of a bin and of the 1 kb around it, for every track, and then the
    weights of `dyads` of the bin, to the bins `training`; the penalties are chosen on `valid`."""
    sizes = (data.bin_size, max(KMER_WINDOW, data.bin_size))
    if not len(valid):
        raise DataError(
            "the chromatin data set contains no validation bins; choosing the penalty needs them"
        )

    log(f"k-mer regressions: {len(training):,} bins, {len(data.tracks):,} tracks")
    windows = (
        BinWindows(data, reference, sizes[1], rows) for rows in (training, valid)
    )
    return TrackWords(k, dyads, sizes).fit(*windows)


def baseline_log_odds(
    model: TrackWords, data: ChromatinData, reference: Reference, rows: Rows
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the baseline's log-odds (n, T) of bins, by the k-mers alone and with the dyads."""
    windows = BinWindows(data, reference, max(model.sizes), rows)
    batches = (windows.sequences(some) for some in blocks(len(rows), BINS_AT_ONCE))
    alone, both = map(np.concatenate, zip(*map(model.log_odds, batches), strict=True))
    return alone, both


def evaluate_models(
    models: Sequence[Path],
    config: ChromatinEvaluationConfig,
    *,
    data: Path,
    reference: Path,
    output: Path,
    labels: Path | None = None,
    network: Path | None = None,
    precision: str = "auto",
    batch_size: int = 16,
    device: str = "auto",
) -> None:
    """Write the models' mean probabilities (n, T) for the test bins of a data set as `.npy`.

    `labels` is an output directory for these bins and their labels, `bins.parquet` and `labels.npz`; None:
    not written. `network` is a file for the probabilities without the regressions of ensembles. Output
    paths are checked before prediction starts.
    """
    check_at_least_one({"batch_size": batch_size})
    place = choose_device(device)
    precision = supported_precision(precision, place)
    computing = inference(precision, place)
    bins, rows = _read_test_bins(
        config, data, output, labels, [data, reference, *models]
    )
    check_output(network, [output, data, reference, *models])
    loaded, genome = (
        [load_chromatin_model(path) for path in models],
        Reference(reference),
    )
    with computing:
        options: Any = {
            "center_fraction": config.center_fraction,
            "batch_size": batch_size,
            "device": device,
        }
        values = predict_bins(
            loaded, bins, genome, rows, networks=network is not None, **options
        )

    both, *alone = np.split(values, values.shape[1] // len(bins.tracks), axis=1)
    if network is not None:
        write_array(network, alone[0])

    _write(output, both, labels, bins, rows)


def evaluate_baseline(
    config: ChromatinEvaluationConfig,
    *,
    data: Path,
    reference: Path,
    output: Path,
    labels: Path | None = None,
    dyads: Path | None = None,
) -> None:
    """Fit the k-mer baseline, and write its probabilities as `evaluate_models` does.

    `dyads` is a further file for the probabilities with dyads; None: not written.
    """
    check_output(dyads, [data, reference])
    bins, rows = _read_test_bins(config, data, output, labels, [data, reference])
    genome = Reference(reference)
    training = sample(bins.rows("train"), BASELINE_BINS, (config.seed, 8))
    baseline = fit_baseline(
        bins,
        genome,
        config.baseline_kmer,
        config.baseline_dyads,
        training,
        bins.rows("valid"),
    )
    alone, both = baseline_log_odds(baseline, bins, genome, rows)
    _write(output, expit(alone), labels, bins, rows)
    if dyads is not None:
        write_array(dyads, expit(both))


def _read_test_bins(
    config: ChromatinEvaluationConfig,
    data: Path,
    output: Path,
    labels: Path | None,
    inputs: Sequence[Path],
) -> tuple[ChromatinData, Rows]:
    """Check that the outputs are writable, and return the data set and its rows for the metrics."""
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
    rows: Rows,
) -> None:
    """Write an array as `.npy`, after its bins and labels if a directory for these is given."""
    if labels is not None:
        with atomic_directory(labels) as directory:
            data.bins.iloc[rows].to_parquet(directory / "bins.parquet", index=False)
            data.labels.take(rows).save(directory / "labels.npz")
    write_array(output, values)
