"""The report of a language model: table and figures of its bits per base."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bigbird_dna.directories import into_directory
from bigbird_dna.reporting.language_model.figures import bits_per_base_figure, held_out_figure
from bigbird_dna.reporting.tables import write_tsv
from bigbird_dna.reporting.training_log import TrainingCurves

if TYPE_CHECKING:
    import pandas as pd


def language_model_report(table: pd.DataFrame, run: TrainingCurves, output: Path) -> None:
    """Write `bits_per_base.tsv`, `bits_per_base.svg` and `held_out.svg` to the directory `output`.

    Parameters
    ----------
    table : of `language_model_table`.
    run : the model's training log.
    """
    with into_directory(output) as files:
        write_tsv(files / "bits_per_base.tsv", table)
        bits_per_base_figure(table, files / "bits_per_base.svg")
        held_out_figure(run, table, files / "held_out.svg")
