"""Comparators on promoter windows: the same held-out windows as those of the models, in the same file."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.baselines.comparators.interface import TextWindows
from bigbird_dna.baselines.comparators.names import MOTIFS
from bigbird_dna.baselines.comparators.registry import make_comparator
from bigbird_dna.config import Config
from bigbird_dna.directories import atomic_directory, check_directory
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.files import checksum
from bigbird_dna.genome.reference import Reference
from bigbird_dna.tasks.comparators.options import Options, write_description
from bigbird_dna.tasks.promoters.finetuning import held_out_predictions, split_figures, write_predictions
from bigbird_dna.tasks.promoters.windows import WindowSet, read_windows, window_sequences

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

    Writes `predictions.parquet`, as fine-tuning does, `comparator.json`, and the training log of a network,
    to the directory `output`. Returns the metrics of both splits.

    Raises
    ------
    UsageError
        No such comparator, one for tracks alone, or options that don't fit it.
    DataError
        The data set can't be used, or a split has no windows of both classes to learn from.
    """
    options.check(name)
    if name == MOTIFS:
        raise UsageError(f"{MOTIFS}: looks for the motif of a track's factor, which promoters don't have")
    check_directory(output, [windows, reference.path, checkpoints])
    data = read_windows(windows, negative_set)
    sequences = window_sequences(reference, data.rows, config.seed)
    learnt, held_out = (_split(data, sequences, split, windows) for split in ("train", "valid"))
    evaluation = config.promoters.evaluation
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
        },
        device=device,
    ).fit(learnt, held_out)

    def predicted(texts: list[str]) -> npt.NDArray[np.float64]:
        return np.asarray(comparator.predict(texts)[:, 0], np.float64)

    predictions = held_out_predictions(data, sequences, predicted)
    metrics = {split: split_figures(predictions, split) for split in ("valid", "test")}
    with atomic_directory(output) as directory:
        write_predictions(directory / PREDICTIONS, predictions)
        write_description(
            directory,
            name,
            comparator,
            settings,
            negative_set=negative_set,
            training_windows=learnt.shape[0],
            metrics=metrics,
        )
    comparator.finish()
    return metrics


def _split(data: WindowSet, sequences: list[str], split: str, where: Path) -> TextWindows:
    """The windows of a split; `DataError` unless they are of both classes, and of one length."""
    rows = np.flatnonzero(data.rows["split"].to_numpy() == split)
    labels = data.labels[rows]
    if len(np.unique(labels)) < 2:
        raise DataError(f"{where}: the {split} windows are not of both classes, which are to be told apart")
    texts = [sequences[row] for row in rows]
    lengths = {len(text) for text in texts}
    if len(lengths) > 1:
        raise DataError(
            f"{where}: {split} windows of {min(lengths):,} and of {max(lengths):,} bp, which must be of one "
            "length"
        )
    return TextWindows(texts, labels)
