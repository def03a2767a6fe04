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
    ALL,
    CONTROL,
    MODEL,
    NETWORK,
    of_split,
    read_bits,
)
from bigbird_dna.disk.atomic import atomic_path, reading
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError, printable
from bigbird_dna.reporting.pages import (
    page_table,
    read_figure,
    read_page_table,
    render_page,
)
from bigbird_dna.reporting.predictors import NEAR_CHANCE, predictor_label
from bigbird_dna.reporting.promoters import DIFFERENCES
from bigbird_dna.reporting.result import RULE, interval, verdict
from bigbird_dna.reporting.training import (
    bits_per_base_figure,
    loss_figure,
    read_training_log,
)

CHANCE = "chance"
ENDS = ("", "_low", "_high")


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
    rows = readable(summary)
    text = f"{rows.to_string(index=False)}\n\nReport: {paths.report_page}\n"

    log = paths.pretrained / "training.jsonl"
    if settings.has_pretraining and log.is_file():
        logs = {"pretraining": read_training_log(log)}
        loss_figure(logs, paths.report / "loss.plotly.json")
    if settings.has_pretraining and paths.pretraining_bits.is_file():
        bits = of_split(read_bits(paths.pretraining_bits), "test")
        bits_per_base_figure(bits, paths.report / "bits_per_base.plotly.json")
    if settings.has_promoters:
        names = (*settings.promoters.windows.negative_sets, CONTROL)
        files = {name: paths.promoter_model(name) / "training.jsonl" for name in names}
        logs = {
            name: read_training_log(file)
            for name, file in files.items()
            if file.is_file()
        }
        if logs:
            loss_figure(logs, paths.report / "finetuning_loss.plotly.json")

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

    Tables that don't exist are skipped; `DataError` if one is not as the evaluations write it.
    """
    report = paths.report
    rows = []

    def read(path: Path) -> pd.DataFrame:
        text = dict.fromkeys(["predictor", "model", "negative_set", "stratum"], str)
        return pd.read_csv(
            path, sep="\t", dtype=text, keep_default_na=False, na_values=[""]
        )

    path = report / "scan.tsv"
    if config.start_sites is not None and path.is_file():
        with reading(path, "not a table of evaluate scan", LookupError, ValueError):
            scan = read(path)
            for distance, table in scan.groupby("within", sort=False):
                task = f"calls within {distance:,} bp of a TSS"
                rows += compare(task, "average precision", table)

    path = report / "promoters.tsv"
    if config.has_promoters and path.is_file():
        with reading(
            path, "not a table of evaluate promoters", LookupError, ValueError
        ):
            promoters = read(path).rename(columns={"model": "predictor"})
            sets = promoters.groupby(["negative_set", "stratum"], sort=False)
            for (negative_set, stratum), table in sets:
                task = f"promoters against {negative_set} negatives"
                if stratum != ALL:
                    task += f" ({stratum})"
                of_model = table[table["predictor"] == MODEL].iloc[0]
                table = table.copy()
                for end in ENDS:
                    values = {n: of_model[f"{c}{end}"] for n, c in DIFFERENCES.items()}
                    table[f"difference{end}"] = table["predictor"].map(values)
                rows += compare(task, "AUROC", table)

    path = report / "chromatin/groups.tsv"
    if config.has_chromatin and path.is_file():
        with reading(path, "not a table of auc-report", LookupError, ValueError):
            groups = read(path).iloc[-1]  # the last group is that of all tracks
            prefix = "better_"
            names = [c.removeprefix(prefix) for c in groups.index if prefix in c]
            medians = {name: groups[f"median_auroc_{name}"] for name in names}
            medians.pop(NETWORK, None)
            row = {"task": "chromatin", "metric": "median AUROC"}
            row |= {"model": groups["median_auroc"]}
            tracks = f"{groups['tracks']:,} tracks"
            if medians:
                best = max(medians, key=lambda name: medians[name])
                row |= {"compared_with": predictor_label(best), "best": medians[best]}
                better, worse = groups[f"better_{best}"], groups[f"worse_{best}"]
                row["verdict"] = f"better on {better:,}, worse on {worse:,} of {tracks}"
            rows.append(row)

    path = report / "variants.tsv"
    if config.has_chromatin and path.is_file():
        with reading(path, "not a table of evaluate variants", LookupError, ValueError):
            variants = read(path).assign(predictor=MODEL)
            compared = report / "compared_variants.tsv"
            if compared.is_file():
                variants = pd.concat([variants, read(compared)])
            variants = variants[variants["subset"] == "all"]
            rows += compare("effects of variants", "AUROC", variants)

    path = paths.pretraining_bits
    if config.has_pretraining and path.is_file():
        bits = of_split(read_bits(path), "test")
        bits = bits.rename(columns={"bits_per_base": "value"})
        bits = bits.rename(columns={"low": "value_low", "high": "value_high"})
        rows += compare("held-out sequence", "bits per base", bits)

    columns = ["task", "metric", "model", "model_low", "model_high", "compared_with"]
    columns += ["best", "best_low", "best_high", "difference", "difference_low"]
    columns += ["difference_high", "verdict"]
    summary = pd.DataFrame(rows, columns=columns)
    for name in ("task", "compared_with", "verdict"):
        # Control characters in names must not reach the terminal.
        summary[name] = summary[name].fillna("").map(printable)
    return summary


def compare(task: str, metric: str, table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the row of the summary of a metric, and that of a control (shuffled labels), if there is one.

    `table` has a row per predictor, with its metric and the model's difference to it. Without another
    predictor, an AUROC is compared with chance.
    """
    column = {"average precision": "average_precision", "AUROC": "auroc"}
    name = column.get(metric, "value")
    sign = -1 if metric == "bits per base" else 1
    estimates = table.set_index("predictor")
    rows = []
    for predictor in (MODEL, CONTROL):
        if predictor not in estimates.index:
            continue
        estimate = estimates.loc[predictor]
        row: dict[str, Any] = {"task": task, "metric": metric}
        row |= {f"model{end}": estimate[f"{name}{end}"] for end in ENDS}
        others = estimates.drop([MODEL, NETWORK, CONTROL], errors="ignore")
        others = others[others[name].notna()]
        if predictor == CONTROL:
            row["metric"] = f"{metric}, {predictor_label(CONTROL)}"
        if predictor == MODEL and len(others):
            best: Any = (sign * others[name]).idxmax()
            row["compared_with"] = predictor_label(best)
            row |= {f"best{end}": others.loc[best, f"{name}{end}"] for end in ENDS}
            lead = [others.loc[best, f"difference{end}"] for end in ENDS]
        elif metric == "AUROC":
            row |= {"compared_with": CHANCE, "best": 0.5}
            lead = [row[f"model{end}"] - 0.5 for end in ENDS]
        else:
            continue
        difference, low, high = map(float, lead)
        row |= {"difference": difference, "difference_low": low}
        row["difference_high"] = high
        row["verdict"] = verdict(difference, low, high, sign=sign)
        if predictor == CONTROL:
            near = abs(difference) < NEAR_CHANCE
            row["verdict"] = "near chance" if near else "not near chance"
        rows.append(row)
    return rows


def readable(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the summary as text, with the intervals beside the values."""
    columns = {}
    for name, form in (("model", ".4f"), ("best", ".4f"), ("difference", "+.4f")):
        values = summary[[name, f"{name}_low", f"{name}_high"]].to_numpy(float)
        texts = [
            interval(*row, form=form) if row[0] == row[0] else "" for row in values
        ]
        columns[name] = [text.replace("-", "−") for text in texts]
    table = summary[["task", "metric"]].assign(model=columns["model"])
    table["compared with"] = summary["compared_with"] + " " + pd.Series(columns["best"])
    table["difference"] = columns["difference"]
    table["the model is"] = summary["verdict"]
    return table


def run_page(config: Config, paths: RunPaths, rows: pd.DataFrame) -> str:
    """Return the page of a run as HTML; `rows` is the readable summary.

    Files of tasks that the run no longer has are left out.
    """
    figure_names: list[str] = []
    table_paths: list[Path] = []
    if config.has_promoters:
        figure_names += ["score_track", "scan", "roc", "precision_recall"]
        figure_names += ["calibration", "finetuning_loss"]
        for name in ("scan", "promoters", "calibration"):
            table_paths.append(paths.report / f"{name}.tsv")
    if config.has_chromatin:
        figure_names.append("variants")
        table_paths.append(paths.report / "chromatin/groups.tsv")
        table_paths.append(paths.report / "variants.tsv")
        table_paths.append(paths.report / "compared_variants.tsv")
    if config.has_pretraining:
        figure_names += ["bits_per_base", "loss"]
        table_paths.append(paths.pretraining_bits)
    if config.pretraining_study is not None:
        table_paths.append(paths.report / "study.tsv")

    figures = {}
    for name in figure_names:
        for path in (
            paths.report / f"{name}.plotly.json",
            paths.report / f"{name}.svg",
        ):
            if path.is_file():
                figures[name] = read_figure(path)
                break
    tables = {
        path.stem: read_page_table(path) for path in table_paths if path.is_file()
    }

    tracks_page = paths.report / "chromatin/report.html"
    values = config.model_dump(mode="json", exclude={"results", "data_dir"})
    subject = config.genome.title if config.has_genome else "sequences"
    held_out = {}
    for split, purpose in (("valid", "validation"), ("test", "testing")):
        names = list(getattr(config.genome, split))
        if config.has_chromatin:
            names += getattr(config.chromatin.data, f"{split}_regions")
        if names:
            held_out[purpose] = ", ".join(names)
    members = ensemble_members(config, paths)
    return render_page(
        "run_page.html",
        title=f"{subject[:1].upper()}{subject[1:]}: DNA language model report",
        sentences=conclusion(rows, held_out.get("testing", "")),
        summary=rows,
        rule=RULE,
        about=_about(config, paths, subject, held_out),
        members=None if members.empty else page_table(members),
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


def ensemble_members(config: Config, paths: RunPaths) -> pd.DataFrame:
    """Return a row per member of each ensemble of the run: its weight and its AUROC on validation data."""
    models = {}
    if config.has_promoters:
        for name in config.promoters.windows.negative_sets:
            models[f"promoters, {name} negatives"] = paths.promoter_model(name)
    if config.has_chromatin:
        for number in range(config.chromatin.models):
            title = f"chromatin, model {number + 1}"
            models[title] = paths.chromatin_model(config.chromatin.data.window, number)
    rows = []
    for model, directory in models.items():
        path = directory / "metrics.json"
        ensemble = read_object(path).get("ensemble") if path.is_file() else None
        if ensemble is None:
            continue
        with reading(path, "not the metrics of an ensemble", LookupError, TypeError):
            for member, weight in ensemble["weights"].items():
                area = ensemble["valid_auroc"][member]
                rows.append((model, predictor_label(member), weight, area))
            area = ensemble["valid_auroc"]["ensemble"]
            rows.append((model, "ensemble", None, area))
    columns = ["model", "member", "weight", "AUROC on validation data"]
    return pd.DataFrame(rows, columns=columns)


def conclusion(rows: pd.DataFrame, held_out: str) -> list[str]:
    """Return two sentences: on the first result, and on all verdicts."""
    is_control = rows["metric"].str.contains(predictor_label(CONTROL), regex=False)
    models, controls = rows[~is_control], rows[is_control]
    wrong = controls.loc[controls["the model is"] == "not near chance", "task"]
    first = models.iloc[0]
    where = f"On {held_out}, held out from training" if held_out else "On held-out data"
    clauses = []
    for key, tasks in models.groupby("the model is", sort=False)["task"]:
        text = str(key)
        names = ", ".join(tasks)
        if text == "better":
            clauses.append(f"{text} in {len(tasks)}")
        elif text.startswith("better on"):
            clauses.append(f"{text} ({names})")
        else:
            clauses.append(f"{text} in {len(tasks)} ({names})")
    if len(wrong):
        clauses.append(
            f"but with shuffled labels not near chance for {', '.join(wrong)}"
        )
    return [
        f"{where}, the model has {first['metric']} {first['model']} for {first['task']}, compared with "
        f"{first['compared with']}.",
        f"Compared with the best other predictor of each of {len(models)} tasks, the model is "
        f"{', '.join(clauses)}.",
    ]


def _about(
    config: Config, paths: RunPaths, subject: str, held_out: dict[str, str]
) -> list[str]:
    """Return sentences on the training data, tasks and held-out regions."""
    purposes = ["to distinguish promoters from other sequence"] * config.has_promoters
    purposes += ["to predict chromatin tracks"] * config.has_chromatin
    start = config.pretraining.start_from
    trained = "pretrained and fine-tuned" if config.has_pretraining else "trained"
    if start is not None:
        trained = "fine-tuned"
    sentences = [
        f"A DNA language model with block-sparse (BigBird) attention was {trained} on {subject} "
        f"{' and '.join(purposes)}."
    ]
    for purpose, names in held_out.items():
        sentences.append(f"Held out for {purpose}: {names}.")
    if start is not None:
        sentences.append(f"Fine-tuning started from the weights of {Path(start).name}.")
        path = paths.pretrained / "provenance.json"
        contigs = read_object(path).get("contigs") if path.is_file() else None
        sentences.append(
            f"That model was pretrained on {', '.join(map(str, contigs))}."
            if contigs
            else "It is not recorded whether its pretraining included the held-out sequences."
        )
    return sentences
