"""Table 6 of Zaheer et al. (2020): promoters, predicted from windows of several lengths and negative sets."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import f1_score

from bigbird_dna.config.experiments import OWN_MODEL, RANDOM
from bigbird_dna.config.run import Config
from bigbird_dna.data.predictions import compare
from bigbird_dna.data.promoter_windows import prepare_windows
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.metrics.labels import THRESHOLD
from bigbird_dna.metrics.resampling import BLOCK_BASES, sampled_aurocs
from bigbird_dna.papers.experiments.predictors import (
    ROW,
    TRAINING,
    choose_rates,
    train_predictors,
)
from bigbird_dna.papers.experiments.shared import (
    PUBLISHED_NOTE,
    Trainings,
    changed,
    compare_seeds,
)
from bigbird_dna.reporting.result import write_result
from bigbird_dna.training.distributed import World

CONTEXT_NEGATIVES = "genomic"
"""Negative set of windows that differ from the run's in length."""
# Published F1 on human promoters of 8,000 bp, `substituted` negatives.
PUBLISHED = {"cnnprom": 0.697, "deepromoter": 0.956, "bigbird": 0.999}


def run(config: Config, trainings: Trainings, output: Path) -> list[str]:
    """Make the windows of each length, train all predictors, and compare them.

    The run's own language model and all comparators are trained on windows of the run's length, by negative
    set; further models, with the same comparators, on windows of their own length, with the TSS at the same
    relative position. Writes `table6.tsv`, `.json` and `.md` into the directory `output`.
    """
    if not config.has_promoters:
        raise ConfigError("table6: needs promoters in this run")

    tables, paths, windows = config.tables, config.paths, config.promoters.windows

    # Language models by window length and negative set.
    names: dict[tuple[int, str], list[str]] = {
        (windows.length, negative_set): [OWN_MODEL]
        for negative_set in tables.negative_sets or windows.negative_sets
    }

    for model in tables.models:
        if model.window:
            key = model.window, CONTEXT_NEGATIVES
            names.setdefault(key, []).append(model.name)

    configs = {}
    inputs = [paths.promoters, paths.reference]
    for length in dict.fromkeys(length for length, _ in names):
        upstream = round(length * windows.sides[0] / windows.length)
        keys = {
            "promoters.windows.upstream": upstream,
            "promoters.windows.downstream": length - upstream,
            "promoters.windows.negative_sets": [s for n, s in names if n == length],
            "promoters.shuffled_label_control": None,
        }
        name = f"{length}-windows"
        configs[length] = changed(config, keys, f"table6: {name}")
        work = partial(make_windows, configs[length])
        trainings.run(name, configs[length], "windows", work, inputs)

    models = []
    for (length, negative_set), names_of_set in names.items():
        data = trainings.model(f"{length}-windows")
        models.append(
            train_predictors(
                configs[length],
                trainings,
                "promoters",
                names_of_set,
                data,
                negative_set,
            )
        )

    if not trainings.complete():
        return []

    chosen = choose_rates(pd.concat(models))
    table = promoter_table(chosen)
    blocks = f"{BLOCK_BASES // 1000} kb of sequence with their windows"
    notes = [PUBLISHED_NOTE, f"Intervals are 95 %, over blocks of {blocks}, and seeds."]
    with into_directory(output, [*chosen["model"]]) as directory:
        write_result(directory, "table6", "Table 6: promoters", table, notes)

    return [f"table6: {len(table):,} rows"]


def make_windows(
    config: Config,
    output: Path,
    checkpoints: Path,
    world: World,
) -> dict[str, Any]:
    """Write the data set of windows of a length into the directory `output`."""
    paths = config.paths
    prepare_windows(config, paths.reference, paths.promoters, output)
    return {}


def promoter_table(models: pd.DataFrame) -> pd.DataFrame:
    """Return AUROC and F1 on test windows, by window length and negative set.

    `models` has the columns of `choose_rates`. Differences are the AUROC of the first fine-tuned model minus
    that of the row, F1 is at a probability of 0.5, and all values are means over seeds. Intervals are over
    blocks of the genome and seeds. `DataError` if the test windows are of one class.
    """
    tables = []

    for _, group in models.groupby(["window", "negative_set"], sort=False):
        group = group.reset_index(drop=True)
        negative_set = str(group["negative_set"][0])
        files = {}
        for number, model in enumerate(group["model"]):
            files[str(number)] = model / "predictions.parquet"

        rows = compare(negative_set, files)
        labels, blocks = rows.labels, rows.blocks
        if len(np.unique(labels)) < 2:
            raise DataError(
                f"{files['0']}: AUROC needs test windows of both classes, found only one"
            )

        scores = np.stack([*rows.scores.values()])
        table = compare_seeds(
            "auroc",
            sampled_aurocs(labels, scores, blocks),
            group,
            ROW,
            group.loc[0, ROW].to_dict(),
            sign=-1,
            class_blocks=[len(np.unique(blocks[labels == y])) for y in (1, 0)],
        )
        group["f1"] = [
            f1_score(labels, row >= THRESHOLD, zero_division=0) for row in scores
        ]
        means = group.groupby(ROW, as_index=False)[["f1", *TRAINING]].mean()
        table = table.merge(means)
        table.insert(1, "negative_set", negative_set)
        table.insert(5, "windows", len(labels))
        tables.append(table)

    table = pd.concat(tables, ignore_index=True)
    published = table["predictor"].map(PUBLISHED)
    alike = table["negative_set"] == "substituted"
    table["published_f1"] = published.where(alike & (table["weights"] != RANDOM))

    return table
