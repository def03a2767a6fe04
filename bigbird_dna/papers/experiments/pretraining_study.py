"""Effect of pretraining: models fine-tuned from pretrained and from random weights, with fractions of the
training examples and several seeds, compared on the same test data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bigbird_dna.config.experiments import LONGER, PRETRAINED, RANDOM
from bigbird_dna.config.run import Config
from bigbird_dna.data.predictions import ALL
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.metrics.resampling import SampledMetrics
from bigbird_dna.papers.experiments.shared import (
    Trainings,
    changed,
    compare_seeds,
    finetune_chromatin,
    finetune_promoter,
    median_aurocs,
    track_aurocs,
    training_inputs,
    training_seconds,
    window_aurocs,
)

COLUMNS = [
    "task",
    "share",
    "start",
    "stratum",
    "seeds",
    "examples",
    "steps",
    "auroc",
    "auroc_min",
    "auroc_max",
    "delta_auroc",
    "delta_auroc_low",
    "delta_auroc_high",
    "minutes",
    "pretraining_minutes",
]


def run(config: Config, trainings: Trainings, output: Path) -> list[str]:
    """Fine-tune a model per task, initialization, fraction and seed, and compare them."""
    study, paths = config.pretraining_study, config.paths
    if study is None:
        raise ConfigError("pretraining_study: the configuration has no such section")
    rows = []
    for task, start, share, seed in product(
        study.tasks, study.initializations, study.train_fractions, study.seeds
    ):
        keys: dict[str, Any] = {
            f"{task}.model.initial": PRETRAINED if start == PRETRAINED else RANDOM,
            f"{task}.training.train_fraction": share,
            f"{task}.training.seed": seed,
        }
        steps = study.random_long_steps if start == LONGER else study.steps
        if steps is not None:
            keys[f"{task}.training.steps"] = steps
        if study.evaluate_every is not None:
            keys[f"{task}.training.evaluate_every"] = study.evaluate_every
        name = f"{task}-{start}-{share:g}-seed{seed}"
        own = changed(config, task, keys, f"pretraining_study: {name}")
        pretrained = paths.pretrained if start == PRETRAINED else None
        options: dict[str, Any] = {"start": start, "negative_set": study.negative_set}
        work = partial(
            finetune_promoter,
            config,
            own,
            study.negative_set,
            paths.windows,
            pretrained,
        )
        if task == "chromatin":
            evaluation = config.chromatin.evaluation
            options = {"start": start, "evaluation": evaluation.model_dump(mode="json")}
            window = config.chromatin.data.window
            work = partial(finetune_chromatin, config, own, window, pretrained)
        inputs = training_inputs(config, task)
        if pretrained is not None:
            inputs.append(pretrained)
        metrics = trainings.run(name, own, task, work, inputs, **options)
        row = {"task": task, "start": start, "share": share, "seed": seed}
        counts = metrics.get("training", {})
        row |= {key: counts.get(key) for key in ("examples", "steps")}
        rows.append({**row, "model": trainings.model(name)})
    if not trainings.complete():
        return []

    models = pd.DataFrame(rows)
    table = study_table(config, models)
    table["pretraining_minutes"] = math.nan
    if PRETRAINED in study.initializations:
        minutes = training_seconds(paths.pretrained) / 60
        table.loc[table["start"] == PRETRAINED, "pretraining_minutes"] = minutes
    with into_directory(output, [*models["model"]]) as directory:
        write_tsv(directory / "study.tsv", table[COLUMNS])
    return [f"pretraining_study: {len(table):,} rows"]


def study_table(config: Config, models: pd.DataFrame) -> pd.DataFrame:
    """Return one row per task, stratum of the test windows, fraction and initialization, with the AUROC over
    seeds. `delta_auroc` is the AUROC of the pretrained models minus that of the row. On bins, the AUROC is
    the median over the tracks with at least `chromatin.min_positives_report` positive test bins."""
    tables = []
    by = ["share", "start"]
    for task, group in models.groupby("task", sort=False):
        group = group.reset_index(drop=True)
        group["minutes"] = group["model"].map(training_seconds) / 60
        for stratum, metrics, class_blocks in _aurocs(config, str(task), group):
            table = compare_seeds(
                "auroc",
                metrics,
                group,
                by,
                {"start": PRETRAINED},
                difference="delta_auroc",
                sign=-1,
                class_blocks=class_blocks,
            )
            group["auroc"] = metrics.values
            means = group.groupby(by, as_index=False).agg(
                examples=("examples", "mean"),
                steps=("steps", "first"),
                minutes=("minutes", "mean"),
                auroc_min=("auroc", "min"),
                auroc_max=("auroc", "max"),
            )
            means["examples"] = means["examples"].round().astype(int)
            table = table.merge(means).assign(task=task, stratum=stratum)
            tables.append(table.sort_values("share", kind="stable"))
    return pd.concat(tables, ignore_index=True)


def _aurocs(
    config: Config, task: str, models: pd.DataFrame
) -> Iterator[tuple[str, SampledMetrics, list[int]]]:
    """Yield the AUROC of the models of a task by stratum of the test data."""
    assert config.pretraining_study is not None
    if task == "promoters":
        files = [model / "predictions.parquet" for model in models["model"]]
        for stratum, metrics, class_blocks, *_ in window_aurocs(
            files, config.pretraining_study.negative_set
        ):
            yield stratum, metrics, class_blocks
        return
    labels = config.paths.held_out_bins / "labels.npz"
    least = config.chromatin.min_positives_report
    aurocs, positives = track_aurocs(labels, [*models["model"]])
    enough = (positives >= least) & ~np.isnan(aurocs).any(axis=0)
    if not enough.any():
        raise DataError(f"{labels}: no track has negatives and {least:,} positive bins")
    yield ALL, median_aurocs(aurocs[:, enough]), []
