"""Comparators on promoter windows: the same held-out windows as those of the models, in the same file."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.baselines.comparators.interface import TextWindows
from bigbird_dna.baselines.comparators.names import MOTIFS, NETWORK_NAMES, POSITION
from bigbird_dna.baselines.comparators.registry import make_comparator
from bigbird_dna.config import Config
from bigbird_dna.data.promoter_windows import (
    WindowSet,
    read_origin,
    read_windows,
    training_windows,
    window_sequences,
)
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.tasks.comparators.options import Options, write_description
from bigbird_dna.tasks.promoters.baselines import check_aligned
from bigbird_dna.tasks.promoters.finetuning import held_out_predictions, split_figures, write_predictions

PREDICTIONS = "predictions.parquet"


def fit_promoter_comparator(
    config: Config,
    name: str,
    negative_set: str,
    *,
    windows: Path,
    reference: Reference,
    output: Path,
    checkpoints: Path,
    options: Options,
    device: str = "auto",
) -> dict[str, Any]:
    """Fit a comparator to the training windows, and predict those of validation and test.

    Networks learn from the share `promoters.training.examples` of the training promoters, others from all.
    Writes `predictions.parquet`, as fine-tuning does, `comparator.json`, and the training log of a network,
    to the directory `output`. Returns the metrics of both splits.

    Raises
    ------
    UsageError
        No such comparator, one for tracks alone, or options that don't fit it.
    DataError
        The data set can't be used, or a split has no windows of both classes.
    """
    options.check(name)
    if name == MOTIFS:
        raise UsageError(f"{MOTIFS}: looks for the motif of a track's factor, which promoters don't have")
    if name == POSITION:
        check_aligned(windows)
    read = [options.model] if options.model else []
    check_directory(output, [windows, reference.path, checkpoints, *read])
    data = read_windows(windows, negative_set)
    sequences = window_sequences(reference, data.rows, config.seed)
    evaluation, training = config.promoters.evaluation, config.promoters.training
    share = training.examples if name in NETWORK_NAMES else 1  # the models' share
    learnt = _windows(data, sequences, training_windows(data, share, training.seed), "training", windows)
    valid = np.flatnonzero(data.rows["split"] == "valid")
    held_out = _windows(data, sequences, valid, "validation", windows)
    settings = options.settings(evaluation.seed, directed=True)
    comparator = make_comparator(
        name,
        directed=True,
        sizes=(learnt.length,),
        kmer=evaluation.baseline_kmer,
        settings=settings,
        checkpoints=checkpoints,
        identity={
            "windows": checksum(windows / "windows.parquet"),
            "reference": checksum(reference.path),
            "negative_set": negative_set,
            "seed": config.seed,
            "examples": share,
            "examples_seed": training.seed,
        },
        device=device,
        model=options.model,
        weights=options.weights,
        anchor=_anchor(config, windows),
    ).fit(learnt, held_out)

    def predicted(texts: list[str]) -> npt.NDArray[np.float64]:
        return np.asarray(comparator.predict(texts)[:, 0], np.float64)

    predictions = held_out_predictions(data, sequences, predicted)
    metrics = {split: split_figures(predictions, split) for split in ("valid", "test")}
    told = {"negative_set": negative_set, "training_windows": learnt.shape[0], "metrics": metrics}
    with atomic_directory(output) as directory:
        write_predictions(directory / PREDICTIONS, predictions)
        write_description(directory, name, comparator, settings, **told)
    comparator.finish()
    return metrics


def _anchor(config: Config, windows: Path) -> float:
    """Where the TSS lies in a window, as a fraction of its length."""
    upstream, downstream = config.promoters.windows.sides
    if origin := read_origin(windows):
        upstream, downstream = origin.upstream, origin.downstream
    return upstream / (upstream + downstream)


def _windows(
    data: WindowSet, sequences: list[str], rows: npt.NDArray[np.intp], what: str, where: Path
) -> TextWindows:
    """Some windows; `DataError` unless they are of both classes, and of one length."""
    labels = data.labels[rows]
    if len(np.unique(labels)) < 2:
        raise DataError(f"{where}: the {what} windows are not of both classes, which are to be told apart")
    texts = [sequences[row] for row in rows]
    lengths = {len(text) for text in texts}
    if len(lengths) > 1:
        raise DataError(
            f"{where}: {what} windows of {min(lengths):,} and of {max(lengths):,} bp, which must be of one "
            "length"
        )
    return TextWindows(texts, labels)
