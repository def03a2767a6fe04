"""The report of a run: a summary of its metrics, figures of its trainings, and one HTML page with all results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from bigbird_dna.config.paths import RunPaths
from bigbird_dna.config.reading import load_config
from bigbird_dna.config.run import Config
from bigbird_dna.data.predictions import (
    CONTROL,
    MODEL,
    NETWORK,
    of_split,
    read_bits,
)
from bigbird_dna.disk.atomic import atomic_path, read_object, reading
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError, printable
from bigbird_dna.metrics.auroc import ENDS
from bigbird_dna.reporting.pages import (
    page_table,
    read_figure,
    read_page_table,
    render_page,
)
from bigbird_dna.reporting.predictors import predictor_label
from bigbird_dna.reporting.promoters import DIFFERENCES
from bigbird_dna.reporting.result import RULE, interval, verdict
from bigbird_dna.reporting.training import (
    bits_per_base_figure,
    loss_figure,
    read_training_log,
)

BITS_PER_BASE = "bits per base"
FIGURES = {
    "promoters": [
        "score_track",
        "scan",
        "roc",
        "precision_recall",
        "calibration",
        "finetuning_loss",
    ],
    "chromatin": ["variants"],
    "pretraining": ["bits_per_base", "loss"],
}
TABLES = {
    "promoters": ["scan", "promoters", "calibration"],
    "chromatin": ["chromatin/groups", "variants", "compared_variants"],
    "pretraining": ["../pretraining/bits_per_base"],
}
"""Part of a run → its figures, and its tables, in the directory `report`."""


def report_run(run: Path, config: Path | None = None) -> str:
    """Write the report of a run, and return its summary as text.

    Reads the tables and figures of evaluations and the training logs in the directory `run`; what is missing
    is omitted. Writes `report/summary.tsv` and `.txt`, figures of trainings (`loss`, `bits_per_base` and
    `finetuning_loss`), and `report.html`. `config` is the run's configuration; None: `config/report.yaml` in
    the run, which the workflow writes. `DataError`: a file is not as the commands write it, or there is no
    result.
    """
    paths = RunPaths(run)
    source = config or paths.stage("report")
    if not source.is_file():
        raise DataError(f"{source}: no such file; give the configuration of the run")

    settings = load_config(source)
    summary = summarize(settings, paths)
    if summary.empty:
        raise DataError(f"{run}: contains no tables of evaluations")

    models = (
        {"loss": {"pretraining": paths.pretrained}} if settings.has_pretraining else {}
    )
    if settings.has_dense:
        models["finetuning_loss"] = {"start sites": paths.start_sites_model}
    elif settings.has_promoters:
        names = (*settings.promoters.windows.negative_sets, CONTROL)
        models["finetuning_loss"] = {name: paths.promoter_model(name) for name in names}

    for figure, directories in models.items():
        logs = {
            name: read_training_log(directory / "training.jsonl")
            for name, directory in directories.items()
            if (directory / "training.jsonl").is_file()
        }
        if logs:
            loss_figure(logs, paths.report / f"{figure}.plotly.json")

    if settings.has_pretraining and paths.pretraining_bits.is_file():
        bits = of_split(read_bits(paths.pretraining_bits), "test")
        bits_per_base_figure(bits, paths.report / "bits_per_base.plotly.json")

    rows = readable(summary)
    text = f"{rows.to_string(index=False)}\n\nReport: {paths.report_page}\n"
    write_tsv(paths.report / "summary.tsv", summary)
    page = run_page(settings, paths, rows)
    for path, content in (
        (paths.report / "summary.txt", text),
        (paths.report_page, page),
    ):
        with atomic_path(path) as temporary:
            temporary.write_text(content, encoding="utf-8")

    return text


def summarize(config: Config, paths: RunPaths) -> pd.DataFrame:
    """Return a row per task and metric: the model, the best other predictor, their difference and the
    verdict on it.

    A control (shuffled labels) is no predictor here. Tables that don't exist are skipped; `DataError` if one
    is not as the evaluations write it.
    """
    report = paths.report
    # Estimates of all predictors: task, metric, predictor, and value and difference with intervals.
    tables = []
    aurocs = {f"auroc{end}": f"value{end}" for end in ENDS}

    path = report / "scan.tsv"
    if config.has_dense and path.is_file():
        with reading(path, "not a table of evaluate scan", LookupError, ValueError):
            table = pd.read_csv(path, sep="\t")
            table["task"] = table["within"].map("calls within {:,} bp of a TSS".format)
            table["metric"] = "average precision"
            table.columns = table.columns.str.replace("average_precision", "value")
            tables.append(table)

    path = report / "promoters.tsv"
    if config.has_promoter_windows and path.is_file():
        with reading(
            path, "not a table of evaluate promoters", LookupError, ValueError
        ):
            table = pd.read_csv(path, sep="\t", keep_default_na=False, na_values=[""])
            negative_sets = table["negative_set"].astype(str)
            table["task"] = "promoters against " + negative_sets + " negatives"
            table["metric"] = "AUROC"
            table = table.rename(columns={"model": "predictor", **aurocs})
            # The first row of a task, that of the model, has the differences to all others.
            first = table.groupby("task").transform("first")
            for name, column in DIFFERENCES.items():
                for end in ENDS:
                    is_baseline = table["predictor"] == name
                    table.loc[is_baseline, f"difference{end}"] = first[f"{column}{end}"]

            tables.append(table)

    path = report / "chromatin/groups.tsv"
    if config.has_chromatin and path.is_file():
        with reading(path, "not a table of auc-report", LookupError, ValueError):
            groups: Any = pd.read_csv(path, sep="\t").iloc[-1]  # that of all tracks
            medians = [{"predictor": MODEL, "value": groups["median_auroc"]}]
            for column in groups.index[groups.index.str.startswith("better_")]:
                name = column.removeprefix("better_")
                text = (
                    f"better on {groups[column]:,}, worse on {groups[f'worse_{name}']:,} of "
                    f"{groups['tracks']:,} tracks"
                )
                area = groups[f"median_auroc_{name}"]
                medians.append({"predictor": name, "value": area, "verdict": text})

            tables.append(
                pd.DataFrame(medians).assign(task="chromatin", metric="median AUROC")
            )

    path = report / "variants.tsv"
    if config.has_chromatin and path.is_file():
        with reading(path, "not a table of evaluate variants", LookupError, ValueError):
            table = pd.read_csv(path, sep="\t").assign(predictor=MODEL)
            compared = report / "compared_variants.tsv"
            if compared.is_file():
                table = pd.concat([table, pd.read_csv(compared, sep="\t")])

            table = table[table["subset"] == "all"].rename(columns=aurocs)
            tables.append(table.assign(task="effects of variants", metric="AUROC"))

    path = paths.pretraining_bits
    if config.has_pretraining and path.is_file():
        table = of_split(read_bits(path), "test")
        names = {"bits_per_base": "value", "low": "value_low", "high": "value_high"}
        table = table.rename(columns=names)
        tables.append(table.assign(task="held-out sequence", metric=BITS_PER_BASE))

    rows: list[dict[str, Any]] = []
    columns = [f"value{end}" for end in ENDS] + [f"difference{end}" for end in ENDS]
    for table in tables:
        for task, estimates in table.groupby("task", sort=False):
            metric = estimates["metric"].iloc[0]
            sign = -1 if metric == BITS_PER_BASE else 1
            by_name: Any = estimates.set_index("predictor")
            by_name = by_name.reindex(columns=[*columns, "verdict"])
            others = by_name.drop([MODEL, NETWORK, CONTROL], errors="ignore")
            others = others.dropna(subset="value")
            row = by_name.loc[MODEL, columns[:3]].to_dict()
            if len(others):
                best = (sign * others["value"]).idxmax()
                lead = others.loc[best, columns[3:]]
                row |= lead.to_dict()
                row["compared_with"] = predictor_label(best)
                row["best"] = others.loc[best, "value"]
                row["verdict"] = others.loc[best, "verdict"]
                if pd.isna(row["verdict"]):
                    row["verdict"] = verdict(*lead, sign=sign)

            rows.append({"task": task, "metric": metric, **row})

    header = ["task", "metric", *columns[:3], "compared_with", "best", *columns[3:]]
    summary = pd.DataFrame(rows, columns=[*header, "verdict"])
    summary.columns = summary.columns.str.replace("value", "model")
    for name in ("task", "compared_with", "verdict"):
        # Control characters in names must not reach the terminal.
        summary[name] = summary[name].astype(object).fillna("").map(printable)

    return summary


def readable(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the summary as text, with the intervals beside the values."""
    table = summary[["task", "metric"]].copy()
    for name, form in (("model", ".4f"), ("difference", "+.4f")):
        values = summary[[f"{name}{end}" for end in ENDS]].astype(float).to_numpy()
        table[name] = [
            interval(*row, form=form).replace("-", "−") if row[0] == row[0] else ""
            for row in values
        ]

    best = [f" {x:.4f}" if x == x else "" for x in summary["best"].astype(float)]
    table.insert(3, "compared with", summary["compared_with"] + pd.Series(best))
    table["the model is"] = summary["verdict"]
    return table


def run_page(config: Config, paths: RunPaths, rows: pd.DataFrame) -> str:
    """Return the page of a run as HTML; `rows` is the readable summary.

    Files of tasks that the run no longer has are left out.
    """
    has = {name: getattr(config, f"has_{name}", False) for name in FIGURES}
    figures = {}
    tables = {}
    for part in (name for name in TABLES if has[name]):
        for name in FIGURES.get(part, []):
            for suffix in (".plotly.json", ".svg"):
                path = paths.report / f"{name}{suffix}"
                if path.is_file():
                    figures[name] = read_figure(path)

        for name in TABLES[part]:
            path = paths.report / f"{name}.tsv"
            if path.is_file():
                tables[path.stem] = read_page_table(path)

    models = {}
    if config.has_promoter_windows:
        for name in config.promoters.windows.negative_sets:
            models[f"promoters, {name} negatives"] = paths.promoter_model(name)

    if config.has_chromatin:
        for number in range(config.chromatin.models):
            directory = paths.chromatin_model(config.chromatin.data.window, number)
            models[f"chromatin, model {number + 1}"] = directory

    members = []
    for model, directory in models.items():
        path = directory / "metrics.json"
        ensemble = read_object(path).get("ensemble") if path.is_file() else None
        if ensemble is not None:
            with reading(
                path, "not the metrics of an ensemble", LookupError, TypeError
            ):
                for member, area in ensemble["valid_auroc"].items():
                    row = {"model": model, "member": predictor_label(member)}
                    row["weight"] = ensemble["weights"].get(member)
                    row["AUROC on validation data"] = area
                    members.append(row)

    held_out = {}
    for split, purpose in (("valid", "validation"), ("test", "testing")):
        names = list(getattr(config.genome, split))
        if config.has_chromatin:
            names += getattr(config.chromatin.data, f"{split}_regions")

        if names:
            held_out[purpose] = ", ".join(names)

    provenance = paths.pretrained / "provenance.json"
    contigs = None
    if config.pretraining.start_from and provenance.is_file():
        contigs = read_object(provenance).get("contigs")

    tracks_page = paths.report / "chromatin/report.html"
    values = config.model_dump(mode="json", exclude={"results", "data_dir"})
    subject = config.genome.title if config.has_genome else "sequences"
    return render_page(
        "run_page.html",
        title=f"{subject[:1].upper()}{subject[1:]}: DNA language model report",
        sentences=conclusion(rows, held_out.get("testing", "")),
        summary=rows,
        rule=RULE,
        subject=subject,
        config=config,
        held_out=held_out,
        pretraining_contigs=contigs,
        members=page_table(pd.DataFrame(members)) if members else None,
        figures=figures,
        tables=tables,
        # A relative link, so that both files can be moved together.
        tracks_page=tracks_page.relative_to(paths.results).as_posix()
        if config.has_chromatin and tracks_page.is_file()
        else "",
        configuration=yaml.safe_dump(
            values, sort_keys=False, allow_unicode=True, width=100
        ),
    )


def conclusion(rows: pd.DataFrame, held_out: str) -> list[str]:
    """Return two sentences: on the first result, of calls on that of the middle distance, and on all verdicts."""
    distances = rows["task"].str.startswith("calls within").sum()
    first = rows.iloc[distances // 2]
    where = f"On {held_out}, held out from training" if held_out else "On held-out data"
    sentence = (
        f"{where}, the model has {first['metric']} {first['model']} for {first['task']}"
    )
    if first["compared with"]:
        sentence += f", compared with {first['compared with']}"

    clauses = []
    compared = rows[rows["the model is"] != ""]
    for text, tasks in compared.groupby("the model is", sort=False)["task"]:
        names = "" if text == "better" else f" ({', '.join(tasks)})"
        clauses.append(f"{text} in {len(tasks)}{names}")

    return [
        f"{sentence}.",
        f"Compared with the best other predictor of each of {len(compared)} tasks, the model is "
        f"{', '.join(clauses)}."
        if clauses
        else "No other predictor was compared.",
    ]
