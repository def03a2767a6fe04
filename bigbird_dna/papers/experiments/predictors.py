"""The predictors of Tables 6 and 7: language models, fine-tuned or frozen ("probed"), and comparators.

Language models and networks are trained by one rule: as many steps on the same draws of examples, with the
same learning rates, keeping the weights with the lowest validation loss. Of the learning rates, the tables
have the one with the lowest mean over seeds of this loss. Test data are not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bigbird_dna.config import PRETRAINED, RANDOM, Config
from bigbird_dna.config.experiments import OWN_MODEL
from bigbird_dna.disk.atomic import read_object
from bigbird_dna.disk.tables import Schema, whole_number
from bigbird_dna.genome.sources import locate
from bigbird_dna.papers.comparators.interface import (
    DESCRIPTION,
    NETWORK_NAMES,
    PROBE,
)
from bigbird_dna.papers.experiments.arms import (
    Arm,
    Keys,
    make_arm,
    reference_of,
    training_inputs,
)
from bigbird_dna.papers.experiments.comparing import mean_curve, validation_curves
from bigbird_dna.papers.experiments.figures import grid_shape
from bigbird_dna.papers.experiments.table5 import encoder_keys
from bigbird_dna.reporting.result import SERIES, panels, save_figure
from bigbird_dna.reporting.training import LogCurve

if TYPE_CHECKING:
    from bigbird_dna.training.distributed import World

FINE_TUNED, PROBED, FITTED = "fine-tuned", "probed", "fitted"
TRAININGS = Schema.of(
    "optional window; text negative_set predictor weights; number learning_rate; text chosen",
    "count seeds parameters steps examples; number seconds best_step validation_loss validation_auroc",
)
ROW = ["predictor", "weights", "training"]
"""Options of an arm that describe a predictor in the tables."""


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
) -> Iterator[Arm]:
    """Yield the arms of Table 7, or of the windows of a negative set in Table 6: language models from each
    initialization, their probes, and comparators. `models` are "own" and names of `tables.models`; `windows`
    is the arm that makes the windows."""
    tables = run.tables
    of_bins = task == "chromatin"
    named = {model.name: model for model in tables.models}
    evaluation = getattr(run, task).evaluation.model_dump(mode="json")
    inputs = training_inputs(run, task, [windows.done] if windows else None)
    training = {f"{task}.training.keep": "best"}
    if steps := getattr(tables.steps, task):
        training[f"{task}.training.steps"] = steps
    rates = tables.learning_rates or (None,)

    def arm(name: str, seed: int, changes: Keys, **more: Any) -> Arm:
        # A comparator reads the evaluation's keys, which no training of a model has.
        fitted = more["training"] != FINE_TUNED
        further = {f"{task}.evaluation": evaluation} if fitted else {}
        initialization = more.pop("initialization", None)
        processes = more.pop("processes", 1)
        started = [initialization] if initialization else []
        if started and initialization != run.paths.pretrained:
            started = [initialization.parent / "arm.json"]
        # The evaluation of a chromatin model follows its training.
        more |= {"evaluation": evaluation} if of_bins and not fitted else {}
        return make_arm(
            run,
            experiment,
            f"{prefix}{name}-seed{seed}",
            task,
            {**(keys or {}), **changes, **further, f"{task}.training.seed": seed},
            seed=seed,
            options={
                "name": f"{prefix}{name}",
                "task": task,
                "negative_set": negative_set,
                **more,
            },
            inputs=[*inputs, *started],
            initialization=initialization,
            processes=processes,
        )

    def pretrained(model: str) -> Path:
        if model == OWN_MODEL:
            return run.paths.pretrained
        return run.paths.experiment("table5") / model / "model"

    def attention(model: str) -> str:
        return named[model].attention if model in named else run.encoder.attention

    def window(model: str) -> int | None:
        return named[model].window if of_bins and model in named else None

    for model in models:
        for start in tables.initializations:
            for rate in rates:
                changes = {
                    **(encoder_keys(run, named[model]) if model in named else {}),
                    **training,
                    **_learning_rate(task, rate),
                    f"{task}.model.initial": start,
                }
                own = run.chromatin.data.window if of_bins else None
                for seed in tables.seeds:
                    yield arm(
                        f"{model}-{start}{_suffix(rate)}",
                        seed,
                        changes,
                        predictor=attention(model),
                        weights=start,
                        training=FINE_TUNED,
                        window=window(model) or own,
                        initialization=pretrained(model)
                        if start == PRETRAINED
                        else None,
                        processes=getattr(run, task).num_gpus,
                    )
    for model in models if tables.linear_probes else ():
        for start in tables.initializations:
            # One pretraining, hence one probe; random weights are drawn with each seed.
            for seed in tables.seeds[: 1 if start == PRETRAINED else None]:
                yield arm(
                    f"{model}-{start}-{PROBE}",
                    seed,
                    {},
                    predictor=attention(model),
                    comparator=PROBE,
                    weights=start,
                    training=PROBED,
                    # Pretraining had no longer inputs: the run's own model gets the comparators' window.
                    window=window(model)
                    or (tables.comparator_window if of_bins else None),
                    initialization=pretrained(model),
                )
    for name in getattr(tables, task):
        if name == "position" and run.has_unaligned_sequences:
            continue
        network = name in NETWORK_NAMES
        options: dict[str, Any] = {
            "window": tables.comparator_window if of_bins else None
        }
        if name == "motifs" and tables.motifs:
            options["motifs"] = str(locate(tables.motifs, run.data_dir))
        elif name == "motifs":
            options["taxon"] = tables.taxon
        for rate in rates if network else (None,):
            changes = {**training, **_learning_rate(task, rate)} if network else {}
            for seed in tables.seeds[: None if network else 1]:
                yield arm(
                    f"{name}{_suffix(rate)}",
                    seed,
                    changes,
                    predictor=name,
                    comparator=name,
                    weights="",
                    training=FITTED,
                    **options,
                )


def _learning_rate(task: str, rate: float | None) -> Keys:
    return {} if rate is None else {f"{task}.training.optimizer.learning_rate": rate}


def _suffix(rate: float | None) -> str:
    return "" if rate is None else f"-rate-{rate:g}"


def train_predictor(arm: Arm, world: World, windows: Path | None = None) -> Keys:
    """Fine-tune a language model, or fit a comparator, and predict the test data; returns the metrics."""
    from bigbird_dna.genome.reference import Reference
    from bigbird_dna.papers.comparators.fitting import fit_promoters, fit_tracks
    from bigbird_dna.papers.experiments import trainings

    options, paths = arm.options, arm.run.paths
    of_bins, window = options["task"] == "chromatin", options["window"]
    if "comparator" not in options:
        if of_bins:
            return trainings.finetune_chromatin(arm, world, window)
        return trainings.finetune_promoter(arm, world, options["negative_set"], windows)
    name, reference = options["comparator"], reference_of(arm.run, options["task"])
    common: dict[str, Any] = {
        "output": arm.model,
        "checkpoints": arm.checkpoints,
        "seed": arm.seed,
        "model": arm.initialization,
        "weights": options.get("weights") or PRETRAINED,
        "device": world.device.type,
    }
    if of_bins:
        motifs = options.get("motifs")
        fit_tracks(
            arm.config,
            name,
            paths.chromatin_data,
            reference,
            window=window,
            motifs=Path(motifs) if motifs else None,
            taxon=options.get("taxon"),
            **common,
        )
        return {}
    fitted = fit_promoters(
        arm.config,
        name,
        options["negative_set"],
        windows or paths.windows,
        Reference(reference),
        **common,
    )
    return dict(fitted["metrics"])


def read_trainings(
    arms: Sequence[Arm],
) -> tuple[pd.DataFrame, list[LogCurve], list[Arm]]:
    """Read the logs of language models and networks. Return a row of `TRAININGS` for each learning rate, with
    means over seeds, their validation AUROC over steps, and the arms of the chosen learning rates and of all
    predictors without one."""
    rows, curves, rest = [], [], []
    groups: list[list[Arm]] = []
    names = dict.fromkeys(arm.options["name"] for arm in arms)
    for name in names:
        group = [arm for arm in arms if arm.options["name"] == name]
        first = group[0]
        network = first.options.get("comparator") in NETWORK_NAMES
        if first.options["training"] != FINE_TUNED and not network:
            rest += group
            continue
        groups.append(group)
        measured, aurocs = [], []
        for arm in group:
            log = validation_curves(arm.model, "loss", "auroc")
            loss, auroc = log.evaluation["loss"], log.evaluation["auroc"]
            best = int(loss.values.argmin())
            seconds = np.nan if log.loss.seconds is None else log.loss.seconds[-1]
            measured.append(
                (seconds, loss.steps[best], loss.values[best], auroc.values[best])
            )
            aurocs.append(auroc)
        curves.append(mean_curve(aurocs))
        path = first.model / (DESCRIPTION if network else "metrics.json")
        counts = read_object(path).get("chosen" if network else "training")
        training = getattr(first.config, first.options["task"]).training
        examples = training.steps * training.batch_size
        rows.append(
            (
                _window(first),
                first.options["negative_set"],
                first.options["predictor"],
                first.options["weights"],
                training.optimizer.learning_rate,
                "",
                len(group),
                whole_number(counts, "parameters", path),
                training.steps,
                examples * getattr(training, "bins_per_window", 1),
                *np.mean(measured, axis=0).tolist(),
            )
        )
    table = pd.DataFrame(rows, columns=TRAININGS.names)
    contenders = table.groupby(
        ["window", "negative_set", "predictor", "weights"], dropna=False, sort=False
    )
    lowest = contenders["validation_loss"].idxmin()
    table["chosen"] = np.where(table.index.isin(lowest), "yes", "no")
    left_out = {
        arm.name
        for group, chosen in zip(groups, table["chosen"], strict=True)
        if chosen == "no"
        for arm in group
    }
    return table, curves, [arm for arm in arms if arm.name not in left_out]


def _window(arm: Arm) -> float:
    """Return the window of a training in bp; NaN for a network on bins, which reads the comparators' window."""
    from bigbird_dna.data.promoter_windows import read_origin

    if arm.options["task"] == "chromatin":
        fine_tuned = arm.options["training"] == FINE_TUNED
        return float(arm.options["window"]) if fine_tuned else np.nan
    origin = read_origin(arm.run.paths.windows) if arm.run.has_sequences else None
    if origin is not None:
        return origin.upstream + origin.downstream
    return arm.config.promoters.windows.length


def trainings_figure(
    table: pd.DataFrame, curves: Sequence[LogCurve], path: Path
) -> None:
    """Plot validation AUROC over steps at the chosen learning rates, one panel per window and negative set;
    language models from random weights are dashed."""
    chosen = table[table["chosen"] == "yes"]
    # Windows of tracks differ by predictor: one panel has all.
    titles = chosen["negative_set"] + chosen["window"].map(", {:.0f} bp".format)
    titles = titles.where(chosen["negative_set"] != "", "Tracks")
    groups = list(chosen.groupby(titles, sort=False))
    names = list(dict.fromkeys(chosen["predictor"]))
    with panels(*grid_shape(len(groups)), 5.6, 3.8) as (figure, axes):
        for axis in axes[len(groups) :]:
            axis.set_visible(False)
        for axis, (title, rows) in zip(axes, groups, strict=False):
            for number, row in zip(rows.index, rows.to_dict("records"), strict=True):
                curve = curves[number]
                axis.plot(
                    curve.steps,
                    curve.values,
                    "--" if row["weights"] == RANDOM else "-",
                    color=SERIES[names.index(row["predictor"]) % len(SERIES)],
                    linewidth=1.4,
                    label=f"{row['predictor']} {row['weights']}".strip(),
                )
            axis.set(
                title=title,
                xlabel="optimizer step",
                ylabel="AUROC, validation"
                if rows["negative_set"].iloc[0]
                else "median AUROC, validation",
            )
            axis.set_xlim(left=0)
            axis.legend(loc="best", fontsize=8)
        save_figure(figure, path)


def label(predictor: str, weights: str, training: str) -> str:
    """Return the label of a predictor in plots, such as "bigbird, pretrained, probed"."""
    words = [predictor, weights, PROBED if training == PROBED else ""]
    return ", ".join(filter(None, words))


def side_by_side(
    cells: pd.DataFrame, figure: str, sides: Sequence[str]
) -> pd.DataFrame:
    """Return a metric with one row per predictor and one column per value of `sides`; "" if missing."""
    own = [name for name in (*ROW, "window") if name in cells and name not in sides]
    first, second = (
        cells[name] + (" bp" if name == "window" else "") for name in sides
    )
    cells = cells.assign(side=first + ", " + second)
    wide = cells.pivot_table(figure, own, "side", aggfunc="first", fill_value="")
    rows = pd.MultiIndex.from_frame(cells[own].drop_duplicates())
    return wide.reindex(rows)[cells["side"].unique()].reset_index()
