"""Table 5 of Zaheer et al. (2020): bits per base of the run's language model, of `tables.models`, and of
baselines, on held-out sequence."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from bigbird_dna.config.experiments import TableModel
from bigbird_dna.config.run import Config
from bigbird_dna.data.predictions import MODEL, SPLIT, of_split, read_bits
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import ConfigError
from bigbird_dna.metrics.resampling import BLOCK_BASES
from bigbird_dna.papers.experiments.shared import PUBLISHED_NOTE, Trainings, changed
from bigbird_dna.pretraining.evaluation import evaluate_pretraining
from bigbird_dna.pretraining.task import PretrainingTask
from bigbird_dna.reporting.result import write_result
from bigbird_dna.training.distributed import World
from bigbird_dna.training.task import train

# Published bits per base of GRCh37, by the corresponding row here.
PUBLISHED = {"token n-gram, both sides": 1.57, "model": 1.12}


def run(config: Config, trainings: Trainings, output: Path) -> list[str]:
    """Pretrain `tables.models`, and compare them with the run's model and baselines.

    The run's own model and its baselines must have been evaluated. Writes `table5.tsv`, `.json` and `.md` into
    the directory `output`.
    """
    if not config.has_genome:
        raise ConfigError("table5: needs a genome.reference to pretrain on")

    training, paths = config.pretraining, config.paths
    files = {}

    for model in config.tables.models:
        # As many tokens per step as the run's own model.
        tokens = training.batch_size * training.sequence_tokens
        keys = encoder_keys(config, model) | {
            "pretraining.sequence_tokens": model.tokens,
            "pretraining.batch_size": max(1, round(tokens / model.tokens)),
        }
        changes = changed(config, keys, f"table5: {model.name}")
        inputs = [paths.token_store("train"), paths.tokenizer]
        work = partial(pretrain, changes)
        trainings.run(model.name, changes, "pretraining", work, inputs)
        files[model.name] = trainings.model(model.name) / "predictions.tsv"

    if not trainings.complete():
        return []

    table = bits_table(paths.pretraining_bits, files)
    notes = [
        PUBLISHED_NOTE,
        "They are those of BigBird with 4,096 tokens, and of an SRILM n-gram.",
        f"Intervals are 95 %, over blocks of {BLOCK_BASES // 1000} kb of sequence.",
    ]
    title = "Table 5: bits per base of held-out sequence"
    with into_directory(output) as directory:
        write_result(directory, "table5", title, table, notes)

    return [f"table5: {len(table):,} rows"]


def encoder_keys(config: Config, model: TableModel) -> dict[str, Any]:
    """Return the encoder keys in which a model of `tables.models` differs from the run's.

    Options of the run's attention are not those of another one.
    """
    return {
        "encoder.attention": model.attention,
        "encoder.attention_options": {},
        "encoder.max_length": max(model.tokens, config.encoder.max_length),
    }


def pretrain(
    config: Config, model: Path, checkpoints: Path, world: World
) -> dict[str, Any]:
    """Pretrain a model, and evaluate it on the run's held-out tokens, without baselines.

    Its directory also gets the table `predictions.tsv` of `evaluate pretraining`.
    """

    def evaluate(directory: Path) -> None:
        evaluate_pretraining(
            directory,
            config.paths.tokens,
            directory / "predictions.tsv",
            sequence_tokens=config.pretraining.sequence_tokens,
            alone=True,
            device=world.device.type,
        )

    task = PretrainingTask(config, config.paths.tokens, config.paths.tokenizer)

    return train(task, model, checkpoints, world, evaluate)


def bits_table(bits: Path, models: Mapping[str, Path]) -> pd.DataFrame:
    """Return the run's model, a row for each further model, and the baselines.

    `bits` is the table of `evaluate pretraining` for the run, and `models` such tables by name. Rows are of the
    split `test`, or of the first split if there is none. Published values are NaN for rows that the paper
    does not have.
    """
    columns = [SPLIT, "predictor", "bits_per_base", "low", "high", "note"]
    table = of_split(read_bits(bits), "test")[columns]
    is_model = table["predictor"] == MODEL
    tables = [table[is_model]]

    for name, path in models.items():
        rows = of_split(read_bits(path), "test")[columns]
        rows = rows[rows["predictor"] == MODEL]
        tables.append(rows.assign(predictor=f"{MODEL} {name}"))

    table = pd.concat([*tables, table[~is_model]], ignore_index=True)
    table["published"] = table["predictor"].map(PUBLISHED).astype(float)
    ends = {"low": "bits_per_base_low", "high": "bits_per_base_high"}

    return table.rename(columns=ends)
