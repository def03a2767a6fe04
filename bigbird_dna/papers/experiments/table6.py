"""Table 6 of Zaheer et al. (2020): promoters, predicted from windows of several lengths and negative sets."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from bigbird_dna.config.experiments import OWN_MODEL, RANDOM
from bigbird_dna.config.run import Config
from bigbird_dna.data.predictions import ALL
from bigbird_dna.data.promoter_windows import prepare_windows
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.sources import annotation_file, locate
from bigbird_dna.metrics.labels import THRESHOLD
from bigbird_dna.metrics.resampling import BLOCK_BASES
from bigbird_dna.papers.experiments.predictors import (
    ROW,
    choose_rates,
    first_tuned,
    train_predictors,
)
from bigbird_dna.papers.experiments.shared import (
    PUBLISHED_NOTE,
    Trainings,
    changed,
    compare_seeds,
    window_aurocs,
)
from bigbird_dna.reporting.result import write_result
from bigbird_dna.training.distributed import World

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


def run(config: Config, trainings: Trainings, output: Path) -> list[str]:
    """Make the windows of each length, train all predictors, and compare them."""
    if not config.has_promoters:
        raise ConfigError("table6: needs promoters in this run")
    tables, defaults = config.tables, config.promoters.windows
    # Language models by window length and negative set.
    names = {
        (defaults.length, negative_set): [OWN_MODEL]
        for negative_set in tables.negative_sets or defaults.negative_sets
    }
    for model in tables.models:
        if model.window:
            key = model.window, tables.context_negative_set
            names.setdefault(key, []).append(model.name)

    keys_of_length: dict[int, dict[str, Any]] = {}
    for length in dict.fromkeys(length for length, _ in names):
        upstream = round(length * defaults.sides[0] / defaults.length)
        keys = {
            "promoters.windows.upstream": upstream,
            "promoters.windows.downstream": length - upstream,
        }
        keys_of_length[length] = keys
        sets = {"promoters.windows.negative_sets": [s for n, s in names if n == length]}
        inputs = [config.paths.promoters, config.paths.reference]
        if annotation := annotation_file(config):
            inputs.append(annotation)
        aliases = {}
        if config.genome.aliases is not None:
            inputs.append(locate(config.genome.aliases, config.data_dir))
            aliases["genome.aliases"] = str(inputs[-1])
        name = f"{length}-windows"
        changes = changed(config, "windows", keys | sets | aliases, f"table6: {name}")
        trainings.run(
            name, changes, "windows", partial(make_windows, config, changes), inputs
        )
    models = []
    for (length, negative_set), names_of_set in names.items():
        models.append(
            train_predictors(
                config,
                trainings,
                "promoters",
                names_of_set,
                prefix=f"{length}-{negative_set}-",
                keys=keys_of_length[length],
                negative_set=negative_set,
                windows=trainings.model(f"{length}-windows"),
            )
        )
    if not trainings.complete():
        return []

    training, chosen = choose_rates(pd.concat(models, ignore_index=True))
    table = promoter_table(chosen)
    blocks = f"{BLOCK_BASES // 1000} kb of sequence with their windows"
    notes = [PUBLISHED_NOTE, f"Intervals are 95 %, over blocks of {blocks}, and seeds."]
    with into_directory(output, [*chosen["model"]]) as directory:
        write_result(directory, "table6", "Table 6: promoters", table, notes)
        write_tsv(directory / "table6_training.tsv", training)
    return [f"table6: {len(table):,} rows"]


def make_windows(
    run: Config, config: Config, output: Path, checkpoints: Path, world: World
) -> dict[str, Any]:
    """Write the data set of windows of another length."""
    paths = run.paths
    annotation = annotation_file(run)
    prepare_windows(config, paths.reference, paths.promoters, output, annotation)
    return {}


def promoter_table(models: pd.DataFrame) -> pd.DataFrame:
    """Return AUROC and F1 on test windows, by window length, negative set and stratum, and the difference of
    the first fine-tuned model to each predictor."""
    from sklearn.metrics import f1_score

    tables = []
    for _, group in models.groupby(["window", "negative_set"], sort=False):
        group = group.reset_index(drop=True)
        negative_set = str(group["negative_set"][0])
        files = [model / "predictions.parquet" for model in group["model"]]
        first = first_tuned(group)
        for stratum, metrics, class_blocks, labels, scores in window_aurocs(
            files, negative_set
        ):
            table = compare_seeds(
                "auroc",
                metrics,
                group,
                ROW,
                first,
                sign=-1,
                class_blocks=class_blocks,
            )
            group["f1"] = [
                f1_score(labels, row >= THRESHOLD, zero_division=0) for row in scores
            ]
            table = table.merge(group.groupby(ROW, as_index=False)["f1"].mean())
            table["negative_set"], table["stratum"] = negative_set, stratum
            table["windows"] = len(labels)
            tables.append(table)
    table = pd.concat(tables, ignore_index=True)
    published = table["predictor"].map(PUBLISHED)
    alike = (table["negative_set"] == "substituted") & (table["stratum"] == ALL)
    table["published_f1"] = published.where(alike & (table["weights"] != RANDOM))
    return table[COLUMNS]
