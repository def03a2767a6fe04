"""Effect of pretraining: models fine-tuned from pretrained and from random weights, with fractions of the
training examples and several seeds, compared on the same test data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bigbird_dna.config.experiments import (
    LONGER,
    PRETRAINED,
    RANDOM,
    STUDY_TASKS,
    share_name,
)
from bigbird_dna.config.run import Config
from bigbird_dna.data.predictions import ALL
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.papers.experiments.arms import (
    Arm,
    Keys,
    make_arm,
    training_inputs,
)
from bigbird_dna.papers.experiments.comparing import (
    STARTS,
    Metric,
    compare_arms,
    median_aurocs,
    start_intervals,
    track_aurocs,
    training_seconds,
    validation_curves,
    window_aurocs,
)
from bigbird_dna.reporting.result import add_legend, panels, save_figure

if TYPE_CHECKING:
    from bigbird_dna.training.distributed import World

FILES = ("study.tsv", "study.svg", "study_steps.svg")
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


def arms(run: Config) -> list[Arm]:
    study = run.pretraining_study
    if study is None:
        raise ConfigError("pretraining_study: the configuration has no such section")
    planned = []
    tasks = [task for task in STUDY_TASKS if task in study.tasks]
    for task, start, share, seed in product(
        tasks, study.initializations, study.train_fractions, study.seeds
    ):
        options: dict[str, Any] = {"task": task, "start": start, "share": share}
        keys: dict[str, Any] = {
            "model.initial": PRETRAINED if start == PRETRAINED else RANDOM,
            "training.train_fraction": share,
            "training.seed": seed,
        }
        steps = study.random_long_steps if start == LONGER else study.steps
        if steps is not None:
            keys["training.steps"] = steps
        if study.evaluate_every is not None:
            keys["training.evaluate_every"] = study.evaluate_every
        if task == "promoters":
            options["negative_set"] = study.negative_set
            # The calibration of these models is not evaluated.
            keys["calibration.negatives"] = 0
        else:
            evaluation = run.chromatin.evaluation
            options["evaluation"] = evaluation.model_dump(mode="json")
        pretrained = run.paths.pretrained if start == PRETRAINED else None
        arm = make_arm(
            run,
            "pretraining_study",
            f"{task}-{start}-{share_name(share)}-seed{seed}",
            task,
            {f"{task}.{key}": value for key, value in keys.items()},
            seed=seed,
            options=options,
            inputs=training_inputs(run, task) + ([pretrained] if pretrained else []),
            initialization=pretrained,
            processes=getattr(run, task).num_gpus,
        )
        planned.append(arm)
    return planned


def train(arm: Arm, world: World) -> Keys:
    from bigbird_dna.papers.experiments import trainings

    if arm.options["task"] == "chromatin":
        return trainings.finetune_chromatin(arm, world)
    return trainings.finetune_promoter(arm, world, arm.options["negative_set"])


def inputs(run: Config) -> list[Path]:
    study = run.pretraining_study
    assert study is not None
    files = [run.paths.pretrained] if PRETRAINED in study.initializations else []
    if "chromatin" in study.tasks:
        files.append(run.paths.held_out_bins / "labels.npz")
    return files


def compare(run: Config, output: Path) -> list[str]:
    study = run.pretraining_study
    assert study is not None
    seconds = math.nan
    if PRETRAINED in study.initializations:
        seconds = training_seconds(run.paths.pretrained)
    labels, planned = run.paths.held_out_bins / "labels.npz", arms(run)
    table = study_table(planned, labels, run.chromatin.min_positives_report, seconds)
    with into_directory(output, [arm.model for arm in planned]) as directory:
        write_tsv(directory / "study.tsv", table)
        share_figure(table, directory / "study.svg")
        steps_figure(planned, directory / "study_steps.svg")
    return [f"pretraining_study: {len(table):,} rows"]


def study_table(
    arms: Sequence[Arm], labels: Path, min_positives: int, pretraining_seconds: float
) -> pd.DataFrame:
    """Return one row per task, stratum of the test windows, fraction and initialization, with the AUROC over
    seeds. `delta_auroc` is the AUROC of the pretrained models minus that of the row. On bins, the AUROC is
    the median over the tracks with at least `min_positives` positives among the bins with `labels`."""
    tables = []
    for task in dict.fromkeys(arm.options["task"] for arm in arms):
        task_arms = [arm for arm in arms if arm.options["task"] == task]
        models = pd.DataFrame([arm.metrics()["training"] for arm in task_arms])
        models["share"] = [arm.options["share"] for arm in task_arms]
        models["start"] = [arm.options["start"] for arm in task_arms]
        models["minutes"] = [training_seconds(arm.model) / 60 for arm in task_arms]
        for stratum, metric in _metrics(task, task_arms, labels, min_positives):
            table = compare_arms(
                metric,
                task_arms,
                ["share", "start"],
                {"start": PRETRAINED},
                difference="delta_auroc",
                sign=-1,
            )
            models["area"] = metric.sampled.values
            means = models.groupby(["share", "start"], as_index=False).agg(
                examples=("examples", "mean"),
                steps=("steps", "first"),
                minutes=("minutes", "mean"),
                auroc_min=("area", "min"),
                auroc_max=("area", "max"),
            )
            means["examples"] = means["examples"].round().astype(int)
            table = table.rename(columns={metric.kind: "auroc"}).merge(means)
            table = table.assign(task=task, stratum=stratum)
            tables.append(table.sort_values("share", kind="stable"))
    table = pd.concat(tables, ignore_index=True)
    minutes = table["start"].map({PRETRAINED: pretraining_seconds / 60})
    return table.assign(pretraining_minutes=minutes)[COLUMNS]


def _metrics(
    task: str, arms: Sequence[Arm], labels: Path, min_positives: int
) -> list[tuple[str, Metric]]:
    """Return the AUROC of the models of a task by stratum of the test data."""
    if task == "promoters":
        files = [arm.model / "predictions.parquet" for arm in arms]
        strata = window_aurocs(files, arms[0].options["negative_set"])
        return [(stratum, metric) for stratum, metric, *_ in strata]
    tracks = [track_aurocs(labels, arm.model / "predictions.npy") for arm in arms]
    aurocs = np.stack([auroc for auroc, _ in tracks])
    enough = (tracks[0][1] >= min_positives) & ~np.isnan(aurocs).any(axis=0)
    if not enough.any():
        raise DataError(
            f"{labels}: no track has negatives and {min_positives:,} positive bins"
        )
    return [(ALL, median_aurocs(aurocs[:, enough]))]


def share_figure(table: pd.DataFrame, path: Path) -> None:
    """Plot test AUROC against the fraction of examples: means joined by lines, and their range over seeds."""
    table = table[table["stratum"] == ALL]
    tasks = table["task"].unique()
    with panels(1, len(tasks), 5.6, 4.2) as (figure, axes):
        for axis, task in zip(axes, tasks, strict=True):
            rows = table[table["task"] == task]
            starts = [start for start in STARTS if start in set(rows["start"])]
            for number, start in enumerate(starts):
                points = rows[rows["start"] == start]
                # Intervals of different initializations stand side by side.
                x = points["share"] * (1 + 0.03 * (number - (len(starts) - 1) / 2))
                areas = (points[name] for name in ("auroc", "auroc_min", "auroc_max"))
                start_intervals(axis, start, x, *areas)
            shares = sorted(set(rows["share"]))
            axis.set_xscale("log")
            axis.set_xticks(shares, [f"{100 * share:g} %" for share in shares])
            axis.minorticks_off()
            axis.set(
                title=task.capitalize(),
                xlabel="fraction of the training examples",
                ylabel="AUROC, test"
                if task == "promoters"
                else "median AUROC of the tracks, test",
            )
        axes[0].legend(loc="best")
        save_figure(figure, path)


def steps_figure(arms: Sequence[Arm], path: Path) -> None:
    """Plot validation AUROC over steps, one panel per task and fraction: mean over seeds, with their range."""
    curves: dict[tuple[str, float], dict[str, list[Any]]] = {}
    for arm in arms:
        key = arm.options["task"], arm.options["share"]
        (auroc,) = validation_curves(arm.model, "auroc")
        curves.setdefault(key, {}).setdefault(arm.options["start"], []).append(auroc)
    tasks = len({task for task, _ in curves})
    columns = len(curves) // tasks
    with panels(tasks, columns, 3.6, 3.2, sharey="row") as (figure, axes):
        for axis, (task, share) in zip(axes, sorted(curves), strict=True):
            for start, seeds in curves[task, share].items():
                label, color, _ = STARTS[start]
                common = pd.concat(seeds, axis=1, join="inner")
                if common.empty:
                    continue
                low, high = common.min(axis=1), common.max(axis=1)
                style: dict[str, Any] = {"color": color}
                axis.fill_between(
                    common.index, low, high, alpha=0.18, linewidth=0, **style
                )
                style |= {"marker": "o", "markersize": 3, "label": label}
                axis.plot(common.mean(axis=1), **style)
            title = f"{task.capitalize()}, {100 * share:g} %"
            axis.set(title=title, xlabel="optimizer step")
            axis.set_xlim(left=0)
        axes[0].set_ylabel("AUROC, validation")
        add_legend(axes[0])
        save_figure(figure, path)
