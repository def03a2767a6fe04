"""Long-Range Arena: a classifier of long sequences for each task, attention mechanism and seed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bigbird_dna.config.long_range import LongRangeConfig
from bigbird_dna.config.run import Config
from bigbird_dna.disk.directories import atomic_directory, into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError
from bigbird_dna.papers.experiments.arms import Arm, Keys, make_arm
from bigbird_dna.reporting.result import ResultTable, result_page

if TYPE_CHECKING:
    from bigbird_dna.training.distributed import World

FILES = ("long_range.tsv", "long_range.md")
COLUMNS = [
    "task",
    "attention",
    "seeds",
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "seed_spread",
    "baseline",
    "baseline_name",
    "most_frequent",
    "test_sequences",
    "parameters",
    "steps",
    "source",
]
PUBLISHED = {"Transformer": 0.5787, "BigBird": 0.5759, "Combiner-Fixed": 0.5834}
SOURCE = "published (Ren et al. 2021): mean of all five tasks, not comparable with a single task"


def arms(run: Config) -> list[Arm]:
    """Return the data set of each task, and its classifiers; without the section, sizes are those published."""
    section = run.long_range_arena or LongRangeConfig()
    planned = [
        make_arm(
            run,
            "long_range_arena",
            f"{task}-data",
            "long-range",
            options={
                "task": task,
                "seed": section.data_seed,
                task: getattr(section, task).model_dump(exclude={"training"}),
            },
            processes=0,
        )
        for task in section.tasks
    ]
    for data in planned[:]:
        task = data.options["task"]
        for attention in section.attentions:
            for seed in section.seeds:
                planned.append(
                    make_arm(
                        run,
                        "long_range_arena",
                        f"{task}-{attention}-seed{seed}",
                        "long-range",
                        seed=seed,
                        options={"task": task, "attention": attention},
                        inputs=[data.done],
                    )
                )
    return planned


def train(arm: Arm, world: World) -> Keys:
    from bigbird_dna.papers.experiments.long_range_sequences import (
        write_listops,
        write_pathfinder,
    )
    from bigbird_dna.papers.experiments.long_range_training import SequenceTask
    from bigbird_dna.training.task import train as train_task

    section = arm.config.long_range_arena or LongRangeConfig()
    task = arm.options["task"]
    if "attention" not in arm.options:
        with atomic_directory(arm.directory / "data") as directory:
            if task == "listops":
                write_listops(directory, section.listops, section.data_seed)
            else:
                write_pathfinder(directory, section.pathfinder, section.data_seed)
        return {}
    data = arm.directory.parent / f"{task}-data/data"
    training = SequenceTask(section, task, arm.options["attention"], arm.seed, data)
    return train_task(training, arm.model, arm.checkpoints, world)


def compare(run: Config, output: Path) -> list[str]:
    results = [arm.metrics() for arm in arms(run) if "attention" in arm.options]
    table = accuracy_table(results)
    result = ResultTable("Long-Range Arena", table)
    page = result_page(
        result, lambda value: f"{value:.{0 if value.is_integer() else 3}f}"
    )
    with into_directory(output) as directory:
        write_tsv(directory / "long_range.tsv", table)
        (directory / "long_range.md").write_text(page, encoding="utf-8")
    return [
        f"{row['task']} with {row['attention']}: accuracy {row['accuracy']:.4f}, "
        f"{row['baseline_name']} {row['baseline']:.4f}"
        for row in table[table["source"] == "here"].to_dict("records")
    ]


def accuracy_table(results: list[dict[str, Any]]) -> pd.DataFrame:
    """Return means over seeds by task and decreasing accuracy, followed by published averages; `DataError` for
    results of other data, or of other trainings."""
    rows = []
    frame = pd.DataFrame(results)
    for (task, attention), group in frame.groupby(["task", "attention"]):
        for key in ("data", "test_sequences", "parameters", "steps"):
            if group[key].map(str).nunique() > 1:
                raise DataError(
                    f"{task} with {attention}: seeds differ in {key}: run its arms again"
                )
        first, accuracy = group.iloc[0], group["accuracy"]
        # The interval is over test sequences, which are the same for all seeds: more seeds do not reduce it.
        shift = accuracy.mean() - first["accuracy"]
        rows.append(
            {
                **first,
                "seeds": len(group),
                "accuracy": accuracy.mean(),
                "accuracy_low": max(0.0, first["accuracy_low"] + shift),
                "accuracy_high": min(1.0, first["accuracy_high"] + shift),
                "seed_spread": accuracy.max() - accuracy.min(),
                "source": "here",
            }
        )
    rows.sort(key=lambda row: (row["task"], -row["accuracy"], row["attention"]))
    for name, value in PUBLISHED.items():
        rows.append(
            {"task": "all five", "attention": name, "accuracy": value, "source": SOURCE}
        )
    table = pd.DataFrame(rows, columns=COLUMNS)
    counts = ["seeds", "test_sequences", "parameters", "steps"]
    return table.astype(dict.fromkeys(counts, np.float64)).fillna({"baseline_name": ""})
