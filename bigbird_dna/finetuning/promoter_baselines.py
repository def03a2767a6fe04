"""Predictions of the promoter baselines on the held-out windows."""

from pathlib import Path

import numpy as np

from bigbird_dna.baselines.kmers import KmerLogistic, LogisticBaseline, PositionLogistic
from bigbird_dna.config import Config
from bigbird_dna.data.predictions import KMER, POSITION
from bigbird_dna.data.promoter_windows import read_origin, read_windows, window_sequences
from bigbird_dna.errors import DataError
from bigbird_dna.finetuning.promoters import held_out_predictions, write_predictions
from bigbird_dna.genome.reference import Reference

BASELINES = (KMER, POSITION)
"""Logistic regressions on the frequencies of k-mers, and on the base at each position of the window."""


def promoter_baseline(
    config: Config,
    negative_set: str,
    *,
    baseline: str = KMER,
    windows: Path,
    reference: Reference,
    output: Path,
) -> None:
    """Fit one of `BASELINES` to the training windows and write its predictions as those of models are.

    Raises
    ------
    DataError
        The data set can't be used; or its windows are not aligned or differ in length, which the baseline
        `position` needs.
    """
    if baseline == POSITION:
        check_aligned(windows)
    data, settings = read_windows(windows, negative_set), config.promoters.evaluation
    sequences = window_sequences(reference, data.rows, config.seed)
    rows = np.flatnonzero(data.rows["split"].to_numpy() == "train")
    model: LogisticBaseline = (
        PositionLogistic(settings.seed)
        if baseline == POSITION
        else KmerLogistic(settings.baseline_kmer, settings.seed)
    )
    model.fit([sequences[row] for row in rows], data.labels[rows])
    write_predictions(output, held_out_predictions(data, sequences, model.predict))


def check_aligned(windows: Path) -> None:
    """`DataError` where the windows are sequences that are not aligned at a common position."""
    origin = read_origin(windows)
    if origin is not None and not origin.aligned:
        raise DataError(
            f"{windows}: the baseline 'position' needs sequences that are aligned at the transcription start "
            "site, and these are not"
        )
