"""Table 5 of Zaheer et al. (2020): bits per base of the run's language model, of `tables.models`, and of
baselines, on held-out sequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bigbird_dna.config.experiments import TableModel
from bigbird_dna.config.run import Config
from bigbird_dna.data.predictions import MODEL, SPLIT, of_split, read_bits
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.metrics.resampling import BLOCK_BASES
from bigbird_dna.papers.experiments.arms import Arm, Keys, make_arm, training_inputs
from bigbird_dna.papers.experiments.comparing import interval_dots
from bigbird_dna.reporting.result import (
    BLUE,
    GRAY,
    ResultTable,
    panels,
    result_page,
    save_figure,
    write_result,
)

if TYPE_CHECKING:
    from bigbird_dna.training.distributed import World

FILES = tuple(f"tables/table5.{end}" for end in ("tsv", "json", "md", "svg"))
# Published bits per base of GRCh37, by the corresponding row here.
PUBLISHED = {
    "token n-gram, from the left": ("SRILM n-gram", 1.57),
    "model": ("BigBird, 4,096 tokens", 1.12),
}
PUBLISHED_NOTE = "Published values (Zaheer et al. 2020) are for human data, not for the genome of this run."


def arms(run: Config) -> list[Arm]:
    """Return one pretraining for each of `tables.models`; the run's own model is trained by `pretrain`."""
    if not run.has_genome:
        raise ConfigError("table5: needs a genome.reference to pretrain on")
    training = run.pretraining
    planned = []
    for model in run.tables.models:
        # As many tokens per step as the run's own model.
        batch_size = round(
            training.batch_size * training.sequence_tokens / model.tokens
        )
        keys = encoder_keys(run, model) | {
            "pretraining.sequence_tokens": model.tokens,
            "pretraining.batch_size": max(1, batch_size),
            "pretraining.length_curriculum": [],
        }
        planned.append(
            make_arm(
                run,
                "table5",
                model.name,
                "pretraining",
                keys,
                seed=training.seed,
                inputs=training_inputs(run, "pretraining"),
                processes=run.num_gpus,
            )
        )
    return planned


def encoder_keys(run: Config, model: TableModel) -> dict[str, Any]:
    """Return the encoder keys in which a model of `tables.models` differs from the run's."""
    return {
        "encoder.attention": model.attention,
        "encoder.attention_options": {},
        "encoder.max_length": max(model.tokens, run.encoder.max_length),
    }


def train(arm: Arm, world: World) -> Keys:
    """Pretrain a model and evaluate it on the run's tokens, into `predictions.tsv` of its directory."""
    from bigbird_dna.pretraining.evaluation import evaluate_pretraining
    from bigbird_dna.pretraining.task import PretrainingTask
    from bigbird_dna.training.task import train as train_task

    paths = arm.run.paths

    def evaluate(model: Path) -> None:
        evaluate_pretraining(
            model,
            paths.tokens,
            model / "predictions.tsv",
            sequence_tokens=arm.config.pretraining.sequence_tokens,
            alone=True,
            device=world.device.type,
        )

    task = PretrainingTask(arm.config, paths.tokens, paths.tokenizer)
    return train_task(task, arm.model, arm.checkpoints, world, evaluate)


def inputs(run: Config) -> list[Path]:
    return [run.paths.pretraining_bits]


def compare(run: Config, output: Path) -> list[str]:
    models = {arm.name: arm.model / "predictions.tsv" for arm in arms(run)}
    table = bits_table(run.paths.pretraining_bits, models)
    write_table5(table, output)
    return [f"table5: {len(table):,} rows"]


def bits_table(bits: Path, models: Mapping[str, Path]) -> pd.DataFrame:
    """Return the run's model and its baselines on the split `test`, or on the first split, and one row for
    each further model; `DataError` if that has another split."""
    columns = [SPLIT, "predictor", "bits_per_base", "low", "high", "note"]
    table = of_split(read_bits(bits), "test")[columns]
    split = table[SPLIT].iloc[0]
    first = int((table["predictor"] == MODEL).argmax()) + 1
    parts = [table[:first]]
    for name, path in models.items():
        rows = of_split(read_bits(path), split)
        other = rows[SPLIT].iloc[0]
        if other != split:
            raise DataError(
                f"{path}: split {other!r:.60} cannot be compared with split {split!r:.60} of {bits}"
            )
        rows = rows[rows["predictor"] == MODEL][columns]
        parts.append(rows.assign(predictor=f"{MODEL} {name}"))
    table = pd.concat([*parts, table[first:]], ignore_index=True)
    published = [PUBLISHED.get(name, ("", np.nan)) for name in table["predictor"]]
    table["published"] = [value for _, value in published]
    table["published_row"] = [row for row, _ in published]
    return table


def write_table5(table: pd.DataFrame, output: Path) -> None:
    notes = [
        PUBLISHED_NOTE,
        f"Intervals are 95 %, over blocks of {BLOCK_BASES // 1000} kb of sequence.",
    ]
    title = "Table 5: bits per base of held-out sequence"
    result = ResultTable(title, table, notes)
    ends = {"low": "bits_per_base_low", "high": "bits_per_base_high"}
    text = result_page(replace(result, frame=table.rename(columns=ends)))
    split = str(table[SPLIT].iloc[0]).replace("valid", "validation")
    colors = np.where(table["predictor"].str.startswith(MODEL), BLUE, GRAY)
    with (
        into_directory(output) as directory,
        panels(1, 1, 7.2, 1.2 + 0.26 * len(table)) as (figure, (axis,)),
    ):
        write_result(directory, "table5", result, page=lambda _: text)
        bits = table[["bits_per_base", "low", "high"]]
        interval_dots(axis, table["predictor"].tolist(), bits, colors.tolist())
        axis.set(
            xlabel=f"bits per base, {split}", title=title.split(": ")[1].capitalize()
        )
        save_figure(figure, directory / "table5.svg")
