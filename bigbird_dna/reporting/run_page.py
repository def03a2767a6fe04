"""The report of a run: its summary, plots of its trainings, and one HTML page with all results.

The conclusion and the main results come first on the page; other parts are collapsed. The files of all plots
and tables are in the page as data URIs, which browsers save.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import yaml

from bigbird_dna.config.paths import RunPaths
from bigbird_dna.config.reading import load_config
from bigbird_dna.config.run import Config
from bigbird_dna.data.predictions import of_split, read_bits
from bigbird_dna.disk.atomic import atomic_path, reading
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.disk.tables import Schema, read_table, write_table
from bigbird_dna.errors import DataError
from bigbird_dna.reporting.pages import (
    PageTable,
    data_uri,
    page_table,
    read_page_table,
    render_page,
)
from bigbird_dna.reporting.result import interval
from bigbird_dna.reporting.summary import (
    CALLS,
    SHUFFLED,
    SUMMARY,
    Headline,
    SummaryRow,
    headlines,
    summarize,
    summary_text,
)
from bigbird_dna.reporting.training import (
    bits_per_base_figure,
    held_out_figure,
    loss_figure,
    read_training_log,
)

MEDIA_TYPES = {
    ".svg": "image/svg+xml",
    ".tsv": "text/tab-separated-values",
    ".txt": "text/plain",
}


def report_run(run: Path, config: Path | None = None) -> str:
    """Write the report of a run, and return its summary as text.

    Reads the tables and plots of evaluations, the training logs and the benchmark files in the directory
    `run`; what is missing is omitted. Writes `report/summary.tsv` and `.txt`, plots of trainings
    (`report/loss.svg`, `bits_per_base.svg`, `held_out.svg` and `finetuning_loss.svg`), and `report.html`.
    `config` is the run's configuration; None: `config/report.yaml` in the run, which the workflow writes.
    `DataError`: a file is not as the commands write it, or there is no result.
    """
    paths = RunPaths(run)
    source = config or paths.stage("report")
    if not source.is_file():
        raise DataError(f"{source}: no such file; give the configuration of the run")
    settings = load_config(source)
    summary = summarize(settings, paths)
    if summary.empty:
        raise DataError(f"{run}: contains no metrics or tables of evaluations")
    text = f"{summary_text(summary)}\n\nReport: {paths.report_page}\n"

    write_table(paths.report / "summary.tsv", summary, SUMMARY)
    draw_trainings(settings, paths)
    page = run_page(settings, paths, headlines(summary))
    for path, content in (
        (paths.report / "summary.txt", text),
        (paths.report_page, page),
    ):
        with atomic_path(path) as temporary:
            temporary.write_text(content, encoding="utf-8")
    return text


def draw_trainings(config: Config, paths: RunPaths) -> None:
    """Draw the losses of the trainings whose logs exist, and bits per base of the pretrained model."""
    directory = paths.report
    log = paths.pretrained / "training.jsonl"
    if config.has_pretraining and log.is_file():
        curves = read_training_log(log)
        loss_figure({"pretraining": curves}, directory / "loss.svg")
        if paths.pretraining_bits.is_file():
            bits = read_bits(paths.pretraining_bits)
            bits_per_base_figure(
                of_split(bits, "test"), directory / "bits_per_base.svg"
            )
            held_out = of_split(bits, "valid")
            held_out_figure(curves, held_out, directory / "held_out.svg")
    if config.has_promoters:
        names = (*config.promoters.windows.negative_sets, *config.promoters.controls)
        logs = {name: paths.promoter_model(name) / "training.jsonl" for name in names}
        runs = {
            name: read_training_log(log) for name, log in logs.items() if log.is_file()
        }
        if runs:
            loss_figure(runs, directory / "finetuning_loss.svg")


def run_page(config: Config, paths: RunPaths, main: Sequence[Headline]) -> str:
    """Return the page of a run as HTML."""
    files = _files(config, paths)
    benchmarks = sorted(paths.benchmark("any").parent.glob("*.tsv"))
    steps, total = steps_table(benchmarks)
    browser = paths.report / "chromatin/report.html"
    track_browser = ""
    if config.has_chromatin and browser.is_file():
        # A relative link, so that both files can be moved together.
        track_browser = browser.relative_to(paths.results).as_posix()
    values = config.model_dump(mode="json", exclude={"results", "data_dir"})
    configuration = yaml.safe_dump(
        values, sort_keys=False, allow_unicode=True, width=100
    )
    subject = config.genome.title if config.has_genome else "Sequences"

    def link(name: str) -> str:
        # Plots are shown as images, so that scripts inside an SVG cannot run.
        return data_uri(_read_text(files[name]), MEDIA_TYPES[files[name].suffix])

    return render_page(
        "run_page.html",
        style="run_page.css",
        title=f"{subject}: DNA language model report",
        conclusions=conclusion(main, _held_out(config, "test")),
        headlines=main,
        estimate=_text,
        about=_about(config, paths),
        files=files,
        link=link,
        data_uri=data_uri,
        read_table=read_page_table,
        read_text=_read_text,
        track_browser=track_browser,
        steps=steps,
        total=total,
        version=version("bigbird-dna"),
        configuration=configuration,
    )


def _files(config: Config, paths: RunPaths) -> dict[str, Path]:
    """Return the plots and tables of the report by name, without those of tasks that the run no longer has."""
    report = paths.report
    found = sorted(report.glob("*"))
    if config.has_chromatin:
        found += sorted((report / "chromatin").glob("*"))
    if config.has_pretraining:
        found += [path for path in (paths.pretraining_bits,) if path.is_file()]
    outdated: list[str] = []
    if not config.has_pretraining:
        outdated += ["loss", "bits_per_base", "held_out"]
    if not config.has_promoters:
        outdated += ["promoters", "roc", "precision_recall", "score_histograms"]
        outdated += ["calibration", "finetuning_loss", "score_track", "scan"]
    if not config.has_chromatin:
        outdated += ["variants", "compared_variants"]
        outdated += ["random_variants", "variant_p_values"]
    if config.pretraining_study is None:
        outdated += ["study", "study_steps", "probes"]
    return {
        path.name: path
        for path in found
        if path.suffix in MEDIA_TYPES and path.stem not in outdated
    }


def _read_text(path: Path) -> str:
    with reading(path, "not readable", UnicodeDecodeError):
        return path.read_text(encoding="utf-8")


def conclusion(main: Sequence[Headline], held_out: Sequence[str]) -> list[str]:
    """Return two sentences: the result for calls along contigs, and all verdicts.

    Without calls, the first sentence is on the promoters where the model is weakest; without promoters, on
    all tracks. Of several distances of calls, it is that in the middle. A control that is not near chance is
    a warning.
    """
    tracks = [one for one in main if one.model.section.startswith("chromatin")]
    # The last group of tracks is that of all tracks.
    models = [
        one for one in main if one not in tracks[:-1] and SHUFFLED not in one.metric
    ]
    if not models:
        return []
    promoters = [one for one in models if one.model.section.startswith("promoters")]
    calls = [one for one in models if one.model.section.startswith(CALLS)]
    first, lowest = (tracks or models)[-1], ""
    if calls:
        first = calls[len(calls) // 2]
    elif promoters:
        first = min(promoters, key=lambda one: one.model.value)
        lowest = ", its lowest," if len(promoters) > 1 else ""
    where = "On held-out data"
    if held_out:
        where = f"On {', '.join(held_out)}, held out from training"
    verdicts: dict[str, list[str]] = {}
    for one in models:
        verdicts.setdefault(one.verdict, []).append(one.task)
    clauses = [
        f"{verdict} for {', '.join(tasks)}" for verdict, tasks in verdicts.items()
    ]
    sentences = [
        f"{where}, the model has {first.metric} {_text(first.model)}{lowest} for {first.task}; the best "
        f"baseline ({first.baseline}) has {_text(first.best)}, and the difference is "
        f"{_text(first.difference, '+')}: the model is {first.verdict}.",
        f"Compared with the best baseline of each task, the model is {'; '.join(clauses)}.",
    ]
    failed = [
        one.task
        for one in main
        if SHUFFLED in one.metric and one.verdict.startswith("not")
    ]
    if failed:
        sentences.append(
            f"Warning: with {SHUFFLED}, the model is not near chance for {', '.join(failed)}."
        )
    return sentences


def _text(row: SummaryRow, sign: str = "") -> str:
    return interval(row.value, row.low, row.high, form=f"{sign}.4f").replace("-", "−")


def _about(config: Config, paths: RunPaths) -> list[str]:
    """Return sentences on the training data, tasks and held-out regions."""
    purposes = ["to distinguish promoters from other sequence"] * config.has_promoters
    purposes += ["to predict chromatin tracks"] * config.has_chromatin
    trained = "pretrained and fine-tuned" if config.has_pretraining else "trained"
    if config.pretraining.start_from is not None:
        trained = "fine-tuned"
    data_name = config.genome.title if config.has_genome else "sequences"
    sentences = [
        f"A DNA language model with block-sparse (BigBird) attention was {trained} on {data_name} "
        f"{' and '.join(purposes)}."
    ]
    for split, purpose in (("valid", "validation"), ("test", "testing")):
        if held_out := _held_out(config, split):
            sentences.append(f"Held out for {purpose}: {', '.join(held_out)}.")
    if config.pretraining.start_from is not None:
        sentences += origin(config.pretraining.start_from, paths.pretrained)
    return sentences


def origin(name: str, model: Path) -> list[str]:
    """Return sentences on the model that fine-tuning started from, from its `provenance.json`."""
    path = model / "provenance.json"
    values = read_mapping(path) if path.is_file() else {}
    files, contigs = values.get("files"), values.get("contigs")
    checksum = files.get("model.safetensors") if isinstance(files, Mapping) else None
    name = Path(name).name
    if imported := values.get("imported_from"):
        name = f"the HuggingFace checkpoint {imported}"
    trained = (
        "It is not recorded whether its pretraining included the held-out sequences."
    )
    if isinstance(contigs, list) and contigs:
        trained = f"That model was pretrained on {', '.join(map(str, contigs))}."
    return [
        f"Fine-tuning started from the weights of {name} (SHA-256 {checksum or 'not recorded'}).",
        trained,
    ]


def _held_out(config: Config, split: str) -> list[str]:
    regions = ()
    if config.has_chromatin:
        regions = getattr(config.chromatin.data, f"{split}_regions")
    return [*getattr(config.genome, split), *regions]


def steps_table(paths: Sequence[Path]) -> tuple[PageTable | None, str]:
    """Return step, time, CPU time and peak memory, longest first, and the total time; None without files.

    Cells that Snakemake could not measure, for example for very short steps, are empty.
    """
    schema = Schema.of("metric s cpu_time max_rss")
    last = [read_table(path, schema)[-1:].assign(step=path.stem) for path in paths]
    if not last:
        return None, ""
    steps = (
        pd.concat(last)
        .sort_values("step")
        .sort_values("s", ascending=False, kind="stable")
    )
    table = pd.DataFrame(
        {
            "step": steps["step"],
            "time, h:m:s": steps["s"].map(clock),
            "CPU time, h:m:s": steps["cpu_time"].map(clock),
            "peak memory, MB": steps["max_rss"].map(
                "{:.0f}".format, na_action="ignore"
            ),
        }
    )
    return page_table(table.fillna("")), clock(steps["s"].sum())


def clock(seconds: float) -> str:
    """Format seconds as h:mm:ss; empty if not measured (NaN)."""
    if math.isnan(seconds):
        return ""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
