"""Table 5 of Zaheer et al. (2020): bits per base of the run's language model, of `tables.models`, and of
baselines, on held-out sequence."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bigbird_dna.config.experiments import TableModel
from bigbird_dna.config.run import Config
from bigbird_dna.data.predictions import MODEL, SPLIT, of_split, read_bits
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.metrics.resampling import BLOCK_BASES
from bigbird_dna.papers.experiments.shared import (
    PUBLISHED_NOTE,
    Trainings,
    changed,
    training_inputs,
)
from bigbird_dna.pretraining.evaluation import evaluate_pretraining
from bigbird_dna.pretraining.task import PretrainingTask
from bigbird_dna.reporting.result import result_page, write_result
from bigbird_dna.training.distributed import World
from bigbird_dna.training.task import train

# Published bits per base of GRCh37, by the corresponding row here.
PUBLISHED = {
    "token n-gram, from the left": ("SRILM n-gram", 1.57),
    "model": ("BigBird, 4,096 tokens", 1.12),
}


def run(config: Config, trainings: Trainings, output: Path) -> list[str]:
    """Pretrain `tables.models`, and compare them with the run's model and baselines."""
    if not config.has_genome:
        raise ConfigError("table5: needs a genome.reference to pretrain on")
    training = config.pretraining
    files = {}
    for model in config.tables.models:
        # As many tokens per step as the run's own model.
        tokens = training.batch_size * training.sequence_tokens
        keys = encoder_keys(config, model) | {
            "pretraining.sequence_tokens": model.tokens,
            "pretraining.batch_size": max(1, round(tokens / model.tokens)),
        }
        changes = changed(config, "pretraining", keys, f"table5: {model.name}")
        trainings.run(
            model.name,
            changes,
            "pretraining",
            partial(pretrain, config, changes),
            training_inputs(config, "pretraining"),
        )
        files[model.name] = trainings.model(model.name) / "predictions.tsv"
    if not trainings.complete():
        return []

    table = bits_table(config.paths.pretraining_bits, files)
    notes = [
        PUBLISHED_NOTE,
        f"Intervals are 95 %, over blocks of {BLOCK_BASES // 1000} kb of sequence.",
    ]
    title = "Table 5: bits per base of held-out sequence"
    ends = {"low": "bits_per_base_low", "high": "bits_per_base_high"}
    text = result_page(title, table.rename(columns=ends), notes)
    with into_directory(output) as directory:
        write_result(directory, "table5", title, table, notes, text)
    return [f"table5: {len(table):,} rows"]


def encoder_keys(config: Config, model: TableModel) -> dict[str, Any]:
    """Return the encoder keys in which a model of `tables.models` differs from the run's."""
    return {
        "encoder.attention": model.attention,
        "encoder.attention_options": {},
        "encoder.max_length": max(model.tokens, config.encoder.max_length),
    }


def pretrain(
    run: Config, config: Config, model: Path, checkpoints: Path, world: World
) -> dict[str, Any]:
    """Pretrain a model by `config`; its directory has `predictions.tsv` of the run's tokens."""

    def evaluate(directory: Path) -> None:
        evaluate_pretraining(
            directory,
            run.paths.tokens,
            directory / "predictions.tsv",
            sequence_tokens=config.pretraining.sequence_tokens,
            alone=True,
            device=world.device.type,
        )

    task = PretrainingTask(config, run.paths.tokens, run.paths.tokenizer)
    return train(task, model, checkpoints, world, evaluate)


def bits_table(bits: Path, models: Mapping[str, Path]) -> pd.DataFrame:
    """Return the run's model and its baselines on the split `test`, or on the first split, and one row for
    each further model; `DataError` if that has another split."""
    columns = [SPLIT, "predictor", "bits_per_base", "low", "high", "note"]
    table = of_split(read_bits(bits), "test")[columns]
    split = table[SPLIT].iloc[0]
    first = int((table["predictor"] == MODEL).argmax()) + 1
    tables = [table[:first]]
    for name, path in models.items():
        rows = of_split(read_bits(path), split)
        other = rows[SPLIT].iloc[0]
        if other != split:
            raise DataError(
                f"{path}: split {other!r:.60} cannot be compared with split {split!r:.60} of {bits}"
            )
        rows = rows[rows["predictor"] == MODEL][columns]
        tables.append(rows.assign(predictor=f"{MODEL} {name}"))
    table = pd.concat([*tables, table[first:]], ignore_index=True)
    published = [PUBLISHED.get(name, ("", np.nan)) for name in table["predictor"]]
    table["published"] = [value for _, value in published]
    table["published_row"] = [row for row, _ in published]
    return table
