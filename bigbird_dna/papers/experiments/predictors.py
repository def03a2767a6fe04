"""The predictors of Tables 6 and 7: fine-tuned language models and comparators.

Language models and networks are trained by one rule: as many steps on the same draws of examples, with the
same learning rates, keeping the weights with the lowest validation loss. Of the learning rates, the tables
have the one with the lowest mean over seeds of this loss. Test data are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bigbird_dna.config.experiments import OWN_MODEL, PRETRAINED, RANDOM
from bigbird_dna.config.run import Config
from bigbird_dna.disk.atomic import read_object
from bigbird_dna.papers.comparators.interface import DESCRIPTION, NETWORK_NAMES
from bigbird_dna.papers.experiments.arms import (
    Arm,
    Keys,
    make_arm,
    training_inputs,
)
from bigbird_dna.papers.experiments.comparing import (
    panel_grid,
    training_seconds,
    validation_curves,
)
from bigbird_dna.papers.experiments.table5 import encoder_keys
from bigbird_dna.reporting.result import SERIES, save_figure

if TYPE_CHECKING:
    from bigbird_dna.training.distributed import World

TRAININGS = [
    "window",
    "negative_set",
    "predictor",
    "weights",
    "learning_rate",
    "chosen",
    "seeds",
    "parameters",
    "steps",
    "examples",
    "seconds",
    "best_step",
    "validation_loss",
    "validation_auroc",
]
ROW = ["predictor", "weights"]
"""Options of an arm that describe a predictor in the tables; the weights of a comparator are ""."""


def predictor_arms(
    run: Config,
    experiment: str,
    task: str,
    models: Sequence[str],
    *,
    prefix: str = "",
    keys: Keys | None = None,
    negative_set: str = "",
    windows: Arm | None = None,
) -> list[Arm]:
    """Return the arms of Table 7, or of the windows of a negative set in Table 6: language models from each
    initialization, and comparators. `models` are "own" and names of `tables.models`; `windows`
    is the arm that makes the windows."""
    tables, of_bins = run.tables, task == "chromatin"
    further = {model.name: model for model in tables.models}
    evaluation = getattr(run, task).evaluation.model_dump(mode="json")
    inputs = training_inputs(run, task, [windows.done] if windows else None)
    schedule: dict[str, Any] = {f"{task}.training.keep": "best"}
    rates = {"": dict[str, Any]()}
    if tables.learning_rates:
        key = f"{task}.training.optimizer.learning_rate"
        rates = {f"-rate-{rate:g}": {key: rate} for rate in tables.learning_rates}
    arms: list[Arm] = []

    def add(
        name: str,
        seeds: Sequence[int],
        changes: Keys,
        *,
        pretrained: Path | None = None,
        processes: int = 1,
        **options: Any,
    ) -> None:
        name, initial = f"{prefix}{name}", []
        if "comparator" in options:
            # A comparator reads the evaluation's keys, which no training of a model has.
            changes = {**changes, f"{task}.evaluation": evaluation}
        elif of_bins:
            # The evaluation of a chromatin model follows its training.
            options["evaluation"] = evaluation
        if pretrained is not None:
            is_own = pretrained == run.paths.pretrained
            initial = [pretrained if is_own else pretrained.parent / "arm.json"]
        options |= {"name": name, "task": task, "negative_set": negative_set}
        for seed in seeds:
            arm = make_arm(
                run,
                experiment,
                f"{name}-seed{seed}",
                task,
                {**(keys or {}), **changes, f"{task}.training.seed": seed},
                seed=seed,
                options=options,
                inputs=[*inputs, *initial],
                initialization=pretrained,
                processes=processes,
            )
            arms.append(arm)

    for model in models:
        changes: dict[str, Any] = {}
        pretrained = run.paths.pretrained
        attention: str = run.encoder.attention
        window: int | None = run.chromatin.data.window
        if model != OWN_MODEL:
            changes = encoder_keys(run, further[model])
            attention, window = further[model].attention, further[model].window
            pretrained = run.paths.experiment("table5") / model / "model"
        for start, (suffix, rate) in product(tables.initializations, rates.items()):
            initial = {f"{task}.model.initial": start}
            add(
                f"{model}-{start}{suffix}",
                tables.seeds,
                {**changes, **schedule, **rate, **initial},
                pretrained=pretrained if start == PRETRAINED else None,
                processes=getattr(run, task).num_gpus,
                predictor=attention,
                weights=start,
                window=window if of_bins else None,
            )
    for name in getattr(tables, task):
        options: dict[str, Any] = {
            "predictor": name,
            "comparator": name,
            "weights": "",
        }
        if name == "motifs":
            options["taxon"] = tables.taxon
        if name not in NETWORK_NAMES:
            add(name, tables.seeds[:1], {}, **options)
            continue
        for suffix, rate in rates.items():
            add(f"{name}{suffix}", tables.seeds, {**schedule, **rate}, **options)
    return arms


def train_predictor(arm: Arm, world: World, windows: Path | None = None) -> Keys:
    """Fine-tune a language model, or fit a comparator, and predict the test data; returns the metrics."""
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.papers.comparators.fitting import fit_promoters, fit_tracks
    from bigbird_dna.papers.experiments import trainings

    options, paths = arm.options, arm.run.paths
    of_bins = options["task"] == "chromatin"
    if "comparator" not in options:
        if of_bins:
            return trainings.finetune_chromatin(arm, world, options["window"])
        return trainings.finetune_promoter(arm, world, options["negative_set"], windows)
    name, reference = options["comparator"], arm.run.paths.reference
    common: dict[str, Any] = {
        "output": arm.model,
        "checkpoints": arm.checkpoints,
        "seed": arm.seed,
        "device": world.device.type,
    }
    if of_bins:
        taxon = options.get("taxon")
        fit_tracks(
            arm.config, name, paths.chromatin_data, reference, taxon=taxon, **common
        )
        return {}
    negative_set, data = options["negative_set"], windows or paths.windows
    genome = Reference(reference)
    fitted = fit_promoters(arm.config, name, negative_set, data, genome, **common)
    return dict(fitted["metrics"])


def read_trainings(
    arms: Sequence[Arm],
) -> tuple[pd.DataFrame, list[pd.Series[float]], list[Arm]]:
    """Read the logs of language models and networks. Return a row of `TRAININGS` for each learning rate, with
    means over seeds, their validation AUROC over steps, and the arms of the chosen learning rates and of all
    predictors without one."""
    groups: dict[str, list[Arm]] = {}
    for arm in arms:
        if arm.options.get("comparator") in (None, *NETWORK_NAMES):
            groups.setdefault(arm.options["name"], []).append(arm)
    rows, curves = [], []
    for group in groups.values():
        measured, aurocs = [], []
        for arm in group:
            loss, auroc = validation_curves(arm.model, "loss", "auroc")
            best: Any = loss.idxmin()
            measured.append(
                {
                    "seconds": training_seconds(arm.model),
                    "best_step": best,
                    "validation_loss": loss[best],
                    "validation_auroc": auroc.get(best, np.nan),
                }
            )
            aurocs.append(auroc)
        # The mean over seeds at their common steps.
        curves.append(pd.concat(aurocs, axis=1, join="inner").mean(axis=1))
        first = group[0]
        fine_tuned = "comparator" not in first.options
        path = first.model / ("metrics.json" if fine_tuned else DESCRIPTION)
        counts = read_object(path)["training" if fine_tuned else "chosen"]
        training = getattr(first.config, first.options["task"]).training
        windows = training.steps * training.batch_size
        rows.append(
            {
                "window": _window(first),
                "negative_set": first.options["negative_set"],
                "predictor": first.options["predictor"],
                "weights": first.options["weights"],
                "learning_rate": training.optimizer.learning_rate,
                "seeds": len(group),
                "parameters": int(counts["parameters"]),
                "steps": training.steps,
                "examples": windows * getattr(training, "bins_per_window", 1),
                **pd.DataFrame(measured).mean(),
            }
        )
    table = pd.DataFrame(rows, columns=TRAININGS)
    kinds = ["window", "negative_set", "predictor", "weights"]
    losses = table.groupby(kinds, dropna=False, sort=False)["validation_loss"]
    chosen = table.index.isin(losses.idxmin())
    table["chosen"] = np.where(chosen, "yes", "no")
    others = np.array([*groups], object)[~chosen]
    return table, curves, [arm for arm in arms if arm.options["name"] not in others]


def _window(arm: Arm) -> float:
    """Return the window of a training in bp; NaN for a network on bins, which reads the comparators' window."""
    if arm.options["task"] == "chromatin":
        fitted = "comparator" in arm.options
        return np.nan if fitted else float(arm.options["window"])
    return arm.config.promoters.windows.length


def trainings_figure(
    table: pd.DataFrame, curves: Sequence[pd.Series[float]], path: Path
) -> None:
    """Plot validation AUROC over steps at the chosen learning rates, one panel per window and negative set;
    language models from random weights are dashed."""
    chosen = table[table["chosen"] == "yes"]
    # Windows of tracks differ by predictor: one panel has all.
    titles = chosen["negative_set"] + chosen["window"].map(", {:.0f} bp".format)
    titles = titles.where(chosen["negative_set"] != "", "Tracks")
    names = list(dict.fromkeys(chosen["predictor"]))
    with panel_grid(titles.nunique(), 5.6, 3.8) as (figure, axes):
        groups = chosen.groupby(titles, sort=False)
        for axis, (title, rows) in zip(axes, groups, strict=False):
            for number, row in rows.iterrows():
                axis.plot(
                    curves[number],  # type: ignore[call-overload]
                    "--" if row["weights"] == RANDOM else "-",
                    color=SERIES[names.index(row["predictor"]) % len(SERIES)],
                    linewidth=1.4,
                    label=f"{row['predictor']} {row['weights']}".strip(),
                )
            median = "median " if title == "Tracks" else ""
            ylabel = f"{median}AUROC, validation"
            axis.set(title=title, xlabel="optimizer step", ylabel=ylabel)
            axis.set_xlim(left=0)
            axis.legend(loc="best", fontsize=8)
        save_figure(figure, path)
