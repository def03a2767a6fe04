"""Table 6 of Zaheer et al. (2020): promoters, predicted from windows of several lengths and negative sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from bigbird_dna.config.experiments import OWN_MODEL, PRETRAINED, RANDOM
from bigbird_dna.config.run import Config
from bigbird_dna.data.predictions import ALL, negative_set_of, read_predictions
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.sources import annotation_file, locate
from bigbird_dna.metrics.labels import THRESHOLD
from bigbird_dna.metrics.resampling import BLOCK_BASES
from bigbird_dna.papers.experiments.arms import (
    Arm,
    Keys,
    make_arm,
    training_inputs,
)
from bigbird_dna.papers.experiments.comparing import (
    compare_arms,
    interval_dots,
    panel_grid,
    window_aurocs,
)
from bigbird_dna.papers.experiments.predictors import (
    ROW,
    predictor_arms,
    read_trainings,
    train_predictor,
    trainings_figure,
)
from bigbird_dna.papers.experiments.table5 import PUBLISHED_NOTE
from bigbird_dna.reporting.result import (
    BLUE,
    GREEN,
    VERMILION,
    ResultTable,
    save_figure,
    write_result,
)

if TYPE_CHECKING:
    from bigbird_dna.training.distributed import World

FILES = tuple(
    f"tables/table6{end}"
    for end in (".tsv", ".json", ".md", ".svg", "_training.tsv", "_training.svg")
)
COLUMNS = [
    "window",
    "negative_set",
    "stratum",
    "predictor",
    "weights",
    "seeds",
    "windows",
    "auroc",
    "auroc_low",
    "auroc_high",
    "difference",
    "difference_low",
    "difference_high",
    "f1",
    "published_f1",
]
# Published F1 on human promoters of 8,000 bp, `substituted` negatives.
PUBLISHED = {"cnnprom": 0.697, "deepromoter": 0.956, "bigbird": 0.999}


def arms(run: Config) -> list[Arm]:
    """Return the data sets of other window lengths, then the predictors of each length and negative set."""
    if not run.has_promoters:
        raise ConfigError("table6: needs promoters in this run")
    tables, defaults = run.tables, run.promoters.windows
    sets = tables.negative_sets or defaults.negative_sets
    # Language models by window length and negative set.
    models = {(defaults.length, negative_set): [OWN_MODEL] for negative_set in sets}
    context = tables.context_negative_set
    for model in tables.models:
        if model.window:
            models.setdefault((model.window, context), []).append(model.name)
    data: dict[int, Arm] = {}
    for length in dict.fromkeys(length for length, _ in models):
        data[length] = _windows_arm(
            run, length, [name for size, name in models if size == length]
        )
    planned = list(data.values())
    for (length, negative_set), names in models.items():
        windows = data[length].config.promoters.windows
        planned += predictor_arms(
            run,
            "table6",
            "promoters",
            names,
            prefix=f"{length}-{negative_set}-",
            keys={
                "promoters.windows.upstream": windows.upstream,
                "promoters.windows.downstream": windows.downstream,
            },
            negative_set=negative_set,
            windows=data[length],
        )
    return planned


def _windows_arm(run: Config, length: int, negative_sets: Sequence[str]) -> Arm:
    """Return the arm that makes the windows of a length."""
    defaults = run.promoters.windows
    upstream = round(length * defaults.sides[0] / defaults.length)
    keys = {
        "promoters.windows.upstream": upstream,
        "promoters.windows.downstream": length - upstream,
        "promoters.windows.negative_sets": negative_sets,
    }
    read = training_inputs(run, "promoters", [run.paths.promoters])
    if annotation := annotation_file(run):
        read.append(annotation)
    if run.genome.aliases is not None:
        aliases = locate(run.genome.aliases, run.data_dir)
        read.append(aliases)
        keys["genome.aliases"] = str(aliases)
    return make_arm(
        run, "table6", f"{length}-windows", "windows", keys, inputs=read, processes=0
    )


def train(arm: Arm, world: World) -> Keys:
    run = arm.run
    if arm.stage == "windows":
        from bigbird_dna.data.promoter_windows import prepare_windows

        data, paths = arm.directory / "data", run.paths
        annotation = annotation_file(run)
        prepare_windows(arm.config, paths.reference, paths.promoters, data, annotation)
        return {}
    length = arm.config.promoters.windows.length
    return train_predictor(arm, world, arm.directory.parent / f"{length}-windows/data")


def compare(run: Config, output: Path) -> list[str]:
    predictors = [arm for arm in arms(run) if arm.stage != "windows"]
    training, curves, chosen = read_trainings(predictors)
    table = promoter_table(chosen)
    with into_directory(output, [arm.model for arm in chosen]) as directory:
        write_table6(table, directory)
        write_tsv(directory / "table6_training.tsv", training)
        trainings_figure(training, curves, directory / "table6_training.svg")
    return [f"table6: {len(table):,} rows"]


def promoter_table(arms: Sequence[Arm]) -> pd.DataFrame:
    """Return AUROC and F1 on test windows, by window length, negative set and stratum, and the difference of
    the first fine-tuned model to each predictor."""
    from sklearn.metrics import f1_score

    groups: dict[tuple[int, str], list[Arm]] = {}
    for arm in arms:
        path = arm.model / "predictions.parquet"
        frame = read_predictions(path)
        length = int((frame["end"] - frame["start"]).iloc[0])
        groups.setdefault((length, negative_set_of(path)), []).append(arm)
    tables = []
    for (length, negative_set), group in groups.items():
        files = [arm.model / "predictions.parquet" for arm in group]
        kinds = pd.DataFrame([arm.options for arm in group])
        tuned = kinds[kinds["weights"] != ""]["name"]
        first = {"name": tuned.iloc[0]} if len(tuned) else {}
        for stratum, metric, labels, scores in window_aurocs(files, negative_set):
            table = compare_arms(
                metric, group, ["name"], first, sign=-1, fitted_once=True
            )
            kinds["f1"] = [
                f1_score(labels, row >= THRESHOLD, zero_division=0) for row in scores
            ]
            table["f1"] = table["name"].map(kinds.groupby("name")["f1"].mean())
            table = table.merge(kinds[["name", *ROW]].drop_duplicates())
            table = table.assign(window=length, negative_set=negative_set)
            tables.append(table.assign(stratum=stratum, windows=len(labels)))
    table = pd.concat(tables, ignore_index=True)
    published = table["predictor"].map(PUBLISHED)
    alike = (table["negative_set"] == "substituted") & (table["stratum"] == ALL)
    table["published_f1"] = published.where(alike & (table["weights"] != RANDOM))
    return table[COLUMNS]


def write_table6(table: pd.DataFrame, directory: Path) -> None:
    blocks = f"{BLOCK_BASES // 1000} kb of sequence with their windows"
    notes = [PUBLISHED_NOTE, f"Intervals are 95 %, over blocks of {blocks}, and seeds."]
    result = ResultTable("Table 6: promoters", table, notes)
    strata = table["negative_set"] + " " + table["stratum"]
    windows = table["negative_set"].where(table["stratum"] == ALL, strata)
    write_result(directory, "table6", result)
    groups = list(table.groupby(["window", windows], sort=False))
    most = max(len(group) for _, group in groups)
    colors = {PRETRAINED: BLUE, RANDOM: VERMILION, "": GREEN}
    with panel_grid(len(groups), 4.8, 1.1 + 0.26 * most) as (figure, axes):
        for axis, ((length, name), group) in zip(axes, groups, strict=False):
            names = (group["predictor"] + " " + group["weights"]).str.strip().tolist()
            values = group[["auroc", "auroc_low", "auroc_high"]]
            interval_dots(axis, names, values, group["weights"].map(colors).tolist())
            title = f"{name}, {length:,} bp".replace("_", " ")
            axis.set(xlabel="AUROC, test", title=title)
        save_figure(figure, directory / "table6.svg")
