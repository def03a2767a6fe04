"""The predictors of Tables 6 and 7: fine-tuned language models and comparators.

Language models and networks are trained by one rule: as many steps on the same draws of examples, with the
same learning rates, keeping the weights with the lowest validation loss. Of the learning rates, the tables
have the one with the lowest mean over seeds of this loss. Test data are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bigbird_dna.config.experiments import NETWORK_NAMES, PRETRAINED
from bigbird_dna.config.run import Config
from bigbird_dna.finetuning.chromatin import ChromatinTask
from bigbird_dna.finetuning.evaluation import evaluate_models
from bigbird_dna.finetuning.promoters import PromoterTask
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model.settings import KMER_WINDOW
from bigbird_dna.papers.comparators.fitting import fit_promoters, fit_tracks
from bigbird_dna.papers.experiments.shared import (
    Trainings,
    Work,
    changed,
)
from bigbird_dna.papers.experiments.table5 import encoder_keys
from bigbird_dna.reporting.training import read_training_log
from bigbird_dna.training.distributed import World
from bigbird_dna.training.task import train

ROW = ["window", "predictor", "weights"]
"""Columns that describe a predictor; the weights of a comparator are ""."""
TRAINING = ["learning_rate", "seconds", "best_step"]
"""Columns that describe the trainings of a predictor."""


def train_predictors(
    config: Config,
    trainings: Trainings,
    task: str,
    names: Sequence[str],
    data: Path,
    negative_set: str = "",
) -> pd.DataFrame:
    """Train the language models `names` from each initialization, and the comparators of a task, by seed.

    Names are "own" and those of `tables.models`. `data` is the data set: of chromatin, or the windows of
    promoters, of which a negative set is used. Language models start from the run's pretrained model or from
    that of Table 5, or from random weights. Language models and networks are trained with each learning rate
    of `tables.learning_rates` and each seed, other comparators once, with the first seed.

    Returns a row per training, language models first, with the columns `ROW`, `negative_set`,
    `learning_rate` (NaN: not trained by steps), `seed`, and the directory `model` with its predictions.
    """
    tables, paths, bins = config.tables, config.paths, config.chromatin.data

    # Name in directories, window, row of the table, changed keys and pretrained weights.
    predictors: list[tuple[str, int, str, str, dict[str, Any], Path | None]] = []

    for name, initial in product(names, tables.initializations):
        window, predictor = bins.window, config.encoder.attention
        part = "classifier" if task == "promoters" else "model"
        keys: dict[str, Any] = {f"{task}.{part}.initial": initial}
        start = paths.pretrained
        for model in tables.models:
            if model.name == name:
                window, predictor = model.window or 0, name
                keys |= encoder_keys(config, model)
                start = paths.experiment("table5") / name / "model"

        path = start if initial == PRETRAINED else None
        label = f"{name}-{initial}"
        predictors.append((label, window, predictor, initial, keys, path))

    for name in getattr(tables, task):
        window = bins.bin if name == "gkm-svm" else max(KMER_WINDOW, bins.bin)
        predictors.append((name, window, name, "", {}, None))

    evaluation = getattr(config, task).evaluation.model_dump(mode="json")
    rows = []

    for label, window, predictor, weights, keys, path in predictors:
        prefix = ""
        if task == "promoters":
            window = config.promoters.windows.length
            prefix = f"{window}-{negative_set}-"

        trained = weights != "" or label in NETWORK_NAMES
        rates = (tables.learning_rates if trained else None) or [None]

        for rate, seed in product(rates, tables.seeds if trained else tables.seeds[:1]):
            directory = f"{prefix}{label}-seed{seed}"
            changes = {**keys, f"{task}.training.seed": seed}
            if rate is not None:
                changes[f"{task}.training.optimizer.learning_rate"] = rate
                directory = f"{prefix}{label}-rate-{rate:g}-seed{seed}"

            run = changed(config, changes, directory)
            work: Work
            if weights:
                work = partial(finetune, run, task, data, window, negative_set, path)
            elif task == "promoters":
                options = label, seed, negative_set, data, paths.reference
                work = partial(fit_promoters, run, *options)
            else:
                work = partial(
                    fit_tracks, run, label, seed, data, paths.reference, window
                )

            inputs = [data / "labels.npz", paths.reference, config.model_tokenizer]
            trainings.run(
                directory,
                run,
                task,
                work,
                inputs if path is None else [*inputs, path],
                predictor=label,
                negative_set=negative_set,
                seed=seed,
                evaluation=evaluation,
            )
            optimizer = getattr(run, task).training.optimizer
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


def finetune(
    config: Config,
    task: str,
    data: Path,
    window: int,
    negative_set: str,
    start: Path | None,
    output: Path,
    checkpoints: Path,
    world: World,
) -> dict[str, Any]:
    """Fine-tune a model of promoters or chromatin, and predict held-out data.

    `data` is the data set. Promoters use the windows of a negative set, chromatin windows of `window` bp.
    `start` is the directory of a pretrained model; None: random weights.

    The directory `output` also gets `predictions.parquet` of the held-out windows, or `predictions.npy` of the
    test bins, bins × tracks. Returns the metrics of the model.
    """
    tokenizer, reference = config.model_tokenizer, config.paths.reference
    genome = Reference(reference)
    if task == "promoters":
        promoters = PromoterTask(
            config, tokenizer, start, data, genome, negative_set, False
        )
        return train(promoters, output, checkpoints, world)

    def predict(directory: Path) -> None:
        evaluate_models(
            [directory],
            config.chromatin.evaluation,
            data=data,
            reference=reference,
            output=directory / "predictions.npy",
            device=world.device.type,
        )

    chromatin = ChromatinTask(config, tokenizer, start, data, genome, window, 0)

    return train(chromatin, output, checkpoints, world, predict)


def choose_rates(models: pd.DataFrame) -> pd.DataFrame:
    """Return the trainings with the best learning rate of each predictor, and those without a learning rate.

    `models` has the columns of `train_predictors`. The best rate has the lowest validation loss, as the mean
    over seeds of the lowest loss of a training. The returned trainings also have the columns `seconds` (of
    the training steps), `best_step` and `validation_loss`, from their logs.
    """
    models = models.reset_index(drop=True)
    trained = models.loc[models["learning_rate"].notna(), "model"]
    logs = trained.map(lambda model: read_training_log(model / "training.jsonl"))
    losses = logs.map(lambda log: log["evaluation.loss"])
    models["seconds"] = logs.map(lambda log: log["seconds"].max())
    models["best_step"] = losses.map(lambda loss: loss.idxmin())
    models["validation_loss"] = losses.map(lambda loss: loss.min())
    kinds = ["negative_set", *ROW]
    rates = models.groupby([*kinds, "learning_rate"], dropna=False)
    loss = rates["validation_loss"].transform("mean")
    lowest = loss.groupby([models[column] for column in kinds]).transform("min")

    return models[(loss == lowest) | loss.isna()].reset_index(drop=True)
