"""The predictors of Tables 6 and 7: fine-tuned language models and comparators.

Language models and networks are trained by one rule: as many steps on the same draws of examples, with the
same learning rates, keeping the weights with the lowest validation loss. Of the learning rates, the tables
have the one with the lowest mean over seeds of this loss. Test data are not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bigbird_dna.config.experiments import NETWORK_NAMES, OWN_MODEL, PRETRAINED
from bigbird_dna.config.run import Config
from bigbird_dna.model.settings import KMER_WINDOW
from bigbird_dna.papers.comparators.fitting import fit_promoters, fit_tracks
from bigbird_dna.papers.experiments.shared import (
    Trainings,
    Work,
    changed,
    finetune_chromatin,
    finetune_promoter,
    training_inputs,
    training_seconds,
)
from bigbird_dna.papers.experiments.table5 import encoder_keys
from bigbird_dna.reporting.training import read_training_log

TRAININGS = [
    "window",
    "negative_set",
    "predictor",
    "weights",
    "learning_rate",
    "chosen",
    "seeds",
    "seconds",
    "best_step",
    "validation_loss",
]
ROW = ["window", "predictor", "weights"]
"""Columns that describe a predictor; the weights of a comparator are ""."""


def train_predictors(
    config: Config,
    trainings: Trainings,
    task: str,
    names: Sequence[str],
    *,
    prefix: str = "",
    keys: Mapping[str, Any] | None = None,
    negative_set: str = "",
    windows: Path | None = None,
) -> pd.DataFrame:
    """Train the language models `names` from each initialization, and the comparators of a task, by seed.

    Names are "own" and those of `tables.models`. Promoters: on the windows of a negative set in the data set
    `windows`, made by the changed `keys`. Returns a row per training: what was trained, and the directory
    `model` with its predictions.
    """
    tables, paths, section = config.tables, config.paths, getattr(config, task)
    further = {model.name: model for model in tables.models}
    windows = windows or paths.windows
    inputs = training_inputs(config, task)
    if task == "promoters":
        inputs[:2] = [windows / "windows.parquet", windows / "labels.npz"]
    evaluation = {f"{task}.evaluation": section.evaluation.model_dump(mode="json")}

    # Name, mechanism or comparator, initialization, window, changed keys and pretrained weights.
    predictors: list[tuple[str, str, str, int, dict[str, Any], Path | None]] = []
    for name in names:
        attention: str = config.encoder.attention
        window = config.chromatin.data.window
        changes: dict[str, Any] = {}
        pretrained = paths.pretrained
        if name != OWN_MODEL:
            attention, window = further[name].attention, further[name].window or 0
            changes = encoder_keys(config, further[name])
            pretrained = paths.experiment("table5") / name / "model"
        for initial in tables.initializations:
            own_changes = {**changes, f"{task}.model.initial": initial}
            start = pretrained if initial == PRETRAINED else None
            label = f"{name}-{initial}"
            predictors.append((label, attention, initial, window, own_changes, start))
    for name in getattr(tables, task):
        size = config.chromatin.data.bin
        window = size if name == "gkm-svm" else max(KMER_WINDOW, size)
        predictors.append((name, name, "", window, evaluation, None))

    rows = []
    for name, predictor, weights, window, changes, start in predictors:
        rates: Sequence[float | None] = [None]
        seeds = tables.seeds[:1]
        trained = weights != "" or name in NETWORK_NAMES
        if trained:
            rates, seeds = tables.learning_rates or rates, tables.seeds
        for rate, seed in product(rates, seeds):
            own_keys = {**(keys or {}), **changes, f"{task}.training.seed": seed}
            directory = f"{prefix}{name}-seed{seed}"
            if rate is not None:
                own_keys[f"{task}.training.optimizer.learning_rate"] = rate
                directory = f"{prefix}{name}-rate-{rate:g}-seed{seed}"
            own = changed(config, task, own_keys, directory)
            options = {"predictor": name, "negative_set": negative_set, "seed": seed}
            reference = paths.reference
            work: Work
            if task == "promoters":
                window = own.promoters.windows.length
                if weights:
                    work = partial(
                        finetune_promoter, config, own, negative_set, windows, start
                    )
                else:
                    work = partial(
                        fit_promoters, own, name, seed, negative_set, windows, reference
                    )
            elif weights:
                # The evaluation of a chromatin model follows its training.
                options |= evaluation
                work = partial(finetune_chromatin, config, own, window, start)
            else:
                data = paths.chromatin_data
                work = partial(fit_tracks, own, name, seed, data, reference, window)
            files = inputs if start is None else [*inputs, start]
            trainings.run(directory, own, task, work, files, **options)
            optimizer = getattr(own, task).training.optimizer
            rows.append(
                {
                    "window": window,
                    "negative_set": negative_set,
                    "predictor": predictor,
                    "weights": weights,
                    "learning_rate": optimizer.learning_rate if trained else np.nan,
                    "seed": seed,
                    "model": trainings.model(directory),
                }
            )
    return pd.DataFrame(rows)


def choose_rates(models: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a row of `TRAININGS` for each learning rate of a predictor, with means over seeds, and the models
    of the chosen learning rates and of all predictors without one."""
    trained = models.dropna(subset="learning_rate").reset_index(drop=True)
    logs = []
    for model in trained["model"]:
        losses = read_training_log(model / "training.jsonl")["evaluation.loss"]
        logs.append(
            {
                "seconds": training_seconds(model),
                "best_step": losses.idxmin(),
                "validation_loss": losses.min(),
            }
        )
    kinds = ["negative_set", *ROW]
    by_rate = trained.join(pd.DataFrame(logs)).groupby(
        [*kinds, "learning_rate"], sort=False, as_index=False
    )
    columns = ["seconds", "best_step", "validation_loss"]
    table = by_rate[columns].mean()
    table["seeds"] = by_rate.size()["size"]
    lowest = table.groupby(kinds, sort=False)["validation_loss"].transform("min")
    table["chosen"] = (table["validation_loss"] == lowest).map(
        {True: "yes", False: "no"}
    )
    chosen = models.merge(table[[*kinds, "learning_rate", "chosen"]], how="left")
    chosen = chosen[chosen["chosen"].fillna("yes") == "yes"]
    return table[TRAININGS], chosen.reset_index(drop=True)


def first_tuned(models: pd.DataFrame) -> dict[str, Any]:
    """Return the columns `ROW` of the first fine-tuned language model; {} if there is none."""
    tuned = models.loc[models["weights"] != "", ROW]
    return dict(zip(ROW, tuned.iloc[0], strict=True)) if len(tuned) else {}
