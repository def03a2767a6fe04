"""The report of a pretraining run: its loss, and its bits per base beside those of simpler predictors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.directories import into_directory
from bigbird_dna.reporting.tables import number, read_object, whole_number, write_tsv
from bigbird_dna.reporting.training_figures import bits_per_base_figure, loss_figure
from bigbird_dna.reporting.training_log import read_training_log

if TYPE_CHECKING:
    import pandas as pd


def pretraining_report(model_dir: Path, output: Path) -> pd.DataFrame:
    """Write `loss.svg`, `bits_per_base.svg` and `bits_per_base.tsv` to the directory `output`.

    Parameters
    ----------
    model_dir
        A pretrained model's directory: `metrics.json` and `training.jsonl` are read.

    Returns
    -------
    The table of bits per base.

    Raises
    ------
    DataError
        A file is missing, damaged or lacks a figure.
    """
    metrics = model_dir / "metrics.json"
    table = bits_per_base_table(read_object(metrics), metrics)
    run = read_training_log(model_dir / "training.jsonl")
    with into_directory(output) as files:
        loss_figure({"pretraining": run}, files / "loss.svg")
        bits_per_base_figure(table, files / "bits_per_base.svg")
        write_tsv(files / "bits_per_base.tsv", table)
    return table


def bits_per_base_table(metrics: Mapping[str, Any], source: Path) -> pd.DataFrame:
    """Predictor and bits per base, from the `metrics.json` of pretraining; lower is better."""
    import pandas as pd

    order = whole_number(metrics, "ngram_order", source) if "ngram_order" in metrics else None
    named = {
        "uniform": "uniform_bits_per_base",
        "n-gram" if order is None else f"{order}-gram": "ngram_bits_per_base",
        "model": "bits_per_base",
    }
    rows = [(name, number(metrics, key, source)) for name, key in named.items()]
    return pd.DataFrame(rows, columns=["predictor", "bits_per_base"])
