"""The report of a pretraining run: its loss, and its bits per base beside those of simpler predictors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bigbird_dna.disk.directories import into_directory
from bigbird_dna.reporting.language_model.figures import bits_per_base_figure, held_out_figure
from bigbird_dna.reporting.language_model.reading import of_split, read_bits
from bigbird_dna.reporting.tables import write_tsv
from bigbird_dna.reporting.training_figures import loss_figure
from bigbird_dna.reporting.training_log import read_training_log

if TYPE_CHECKING:
    import pandas as pd


def pretraining_report(model_dir: Path, bits: Path, output: Path) -> pd.DataFrame:
    """Write `loss.svg`, `bits_per_base.svg`, `bits_per_base.tsv` and `held_out.svg` to a directory.

    Parameters
    ----------
    model_dir
        A pretrained model's directory: `training.jsonl` is read.
    bits
        The table of `evaluate pretraining`. The figure has its test contigs, or the validation ones where
        there are no others; the curves over training are those of validation.

    Returns
    -------
    The table.

    Raises
    ------
    DataError
        A file is missing, damaged or lacks a figure.
    """
    table = read_bits(bits)
    run = read_training_log(model_dir / "training.jsonl")
    with into_directory(output) as files:
        write_tsv(files / "bits_per_base.tsv", table)
        loss_figure({"pretraining": run}, files / "loss.svg")
        bits_per_base_figure(of_split(table, "test"), files / "bits_per_base.svg")
        held_out_figure(run, of_split(table, "valid"), files / "held_out.svg")
    return table
