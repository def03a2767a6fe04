"""Page of a run: one HTML file with its plots and tables, which needs no network and no script.

The conclusion and the main results come first; other sections are collapsed. The files of all plots and
tables are in the page as data URIs, which browsers save.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

from bigbird_dna.config import Config
from bigbird_dna.disk.atomic import atomic_path, reading
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.disk.tables import Schema, read_table, read_text_table
from bigbird_dna.errors import DataError, UsageError, one_of
from bigbird_dna.metrics.auroc import ENDS
from bigbird_dna.reporting.headlines import CALLS, Headline, headlines
from bigbird_dna.reporting.result import interval
from bigbird_dna.reporting.summary import SHUFFLED, SummaryRow
from bigbird_dna.reporting.track_page import data_uri, render_page, resource

if TYPE_CHECKING:
    from markupsafe import Markup


_LOCATION_KEYS = {"results", "data_dir"}  # configuration keys that are not shown
_LOW, _HIGH = ENDS[1:]
_PLAIN_ENDS = ["low", "high"]
_MOST = 5_000  # most rows of a table on the page, which would otherwise be slow
_SECONDS, _MEGABYTES, _CPU = "s", "max_rss", "cpu_time"
_TABLE = "text/tab-separated-values"


class _ShownItem(NamedTuple):
    item: ReportItem
    caption: list[Markup]  # its lines, of which all but the first are collapsed
    link: str  # data URI of the file; of a page, a relative link
    table: ShownTable | None = None
    paragraphs: tuple[str, ...] = ()


def check_benchmarks(directory: Path | None) -> None:
    """`UsageError` if the directory of Snakemake's benchmark files is not a directory."""
    if directory is not None and not directory.is_dir():
        raise UsageError(f"--benchmarks {directory} must be a directory")


def run_report(
    config: Config,
    paths: Sequence[Path],
    output: Path,
    *,
    benchmarks: Path | None = None,
    start: Path | None = None,
) -> None:
    """Write the page of a run from tables and plots of its reports, identified by file name (`PARTS`).

    `benchmarks` is the directory of Snakemake's tables of the time of each step, `start` the model that
    fine-tuning started from, in place of pretraining. `UsageError` for an unknown file name.
    """
    check_benchmarks(benchmarks)
    known = [item.name for items in PARTS.values() for item in items]
    found: dict[str, Path] = {}
    for path in paths:
        if path.name not in known:
            raise UsageError(
                f"{path}: not shown in a run report; its name {one_of(path.name, known)}"
            )
        if path.name in found:
            raise UsageError(
                f"{path}: same file name as {found[path.name]}; give only one"
            )
        found[path.name] = path
    parts = {
        title: [
            _shown_item(item, found[item.name], output)
            for item in items
            if item.name in found
        ]
        for title, items in PARTS.items()
    }
    main = headlines(found["summary.tsv"]) if "summary.tsv" in found else []
    steps, total = steps_table(sorted(benchmarks.glob("*.tsv")) if benchmarks else ())
    values = config.model_dump(mode="json", exclude=_LOCATION_KEYS)
    configuration = yaml.safe_dump(
        values, sort_keys=False, allow_unicode=True, width=100
    )
    subject = config.genome.title if config.has_genome else "Sequences"
    text = render_page(
        "run_page.html",
        style="run_page.css",
        title=f"{subject}: DNA language model report",
        conclusion=conclusion(main, _held_out(config, "test")),
        headlines=main,
        estimate=_text,
        about=_about(config) + ([] if start is None else origin(config, start)),
        parts={title: items for title, items in parts.items() if items},
        steps=steps,
        total=total,
        version=version("bigbird-dna"),
        configuration=configuration,
        data_uri=data_uri,
    )
    with atomic_path(output) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _shown_item(item: ReportItem, path: Path, output: Path) -> _ShownItem:
    from markupsafe import Markup, escape

    # Captions use no other markup of reStructuredText than literals.
    lines = str(escape(item.text)).splitlines()
    caption = [Markup(re.sub(r"``(.+?)``", r"<code>\1</code>", line)) for line in lines]
    if path.suffix == PAGE:
        # A relative link, so that both files can be moved together.
        return _ShownItem(
            item, caption, Path(os.path.relpath(path, output.parent)).as_posix()
        )
    table = None if path.suffix in (FIGURE, TEXT) else shown_table(path)
    with reading(path, "not readable", UnicodeDecodeError):
        text = path.read_text(encoding="utf-8")
    paragraphs = (
        tuple(filter(None, map(str.strip, text.splitlines())))
        if path.suffix == TEXT
        else ()
    )
    # Plots are shown as images, so that scripts inside an SVG cannot run.
    kind = {FIGURE: "image/svg+xml", TEXT: "text/plain"}.get(path.suffix, _TABLE)
    return _ShownItem(item, caption, data_uri(text, kind), table, paragraphs)


def conclusion(main: Sequence[Headline], held_out: Sequence[str]) -> list[str]:
    """Return two sentences: the result for calls along contigs, and all verdicts.

    Without calls, the first sentence is on the promoters where the model is weakest; without promoters, on
    all tracks. Of several distances of calls, it is that in the middle. A control that is not near chance is
    a warning.
    """
    tracks = [one for one in main if one.model.section.startswith("chromatin")]
    # The last group of tracks is that of all tracks.
    models = [
        one for one in main if one not in tracks[:-1] and SHUFFLED not in one.measure
    ]
    if not models:
        return []
    promoters = [one for one in models if one.model.section.startswith("promoters")]
    calls = [one for one in models if one.model.section.startswith(CALLS)]
    if calls:
        first = calls[len(calls) // 2]
    else:
        first = (
            min(promoters, key=lambda one: one.model.value)
            if promoters
            else (tracks or models)[-1]
        )
    where = (
        f"On {', '.join(held_out)}, held out from training"
        if held_out
        else "On held-out data"
    )
    lowest = ", its lowest," if len(promoters) > 1 and not calls else ""
    verdicts: dict[str, list[str]] = {}
    for one in models:
        verdicts.setdefault(one.verdict, []).append(one.task)
    clauses = [
        f"{verdict} for {', '.join(tasks)}" for verdict, tasks in verdicts.items()
    ]
    failed = [
        one.task
        for one in main
        if SHUFFLED in one.measure and one.verdict.startswith("not")
    ]
    return [
        f"{where}, the model has {first.measure} {_text(first.model)}{lowest} for {first.task}; the best "
        f"baseline ({first.baseline}) has {_text(first.best)}, and the difference is "
        f"{_text(first.difference, '+')}: the model is {first.verdict}.",
        f"Compared with the best baseline of each task, the model is {'; '.join(clauses)}.",
        *[
            f"Warning: with {SHUFFLED}, the model is not near chance for {', '.join(failed)}."
        ]
        * bool(failed),
    ]


def _text(row: SummaryRow, sign: str = "") -> str:
    return interval(row.value, row.low, row.high, form=f"{sign}.4f").replace("-", "−")


def _about(config: Config) -> list[str]:
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
    return sentences


def origin(config: Config, start: Path) -> list[str]:
    """Return sentences on the model that fine-tuning started from, from its `provenance.json`."""
    path = start / "provenance.json"
    values = read_mapping(path) if path.is_file() else {}
    files, contigs = values.get("files"), values.get("contigs")
    checksum = files.get("model.safetensors") if isinstance(files, Mapping) else None
    imported = values.get("imported_from")
    name = imported or Path(config.pretraining.start_from or start).name
    if isinstance(contigs, list) and contigs:
        trained = f"That model was pretrained on {', '.join(map(str, contigs))}."
    else:
        trained = "It is not recorded whether its pretraining included the held-out sequences."
    return [
        f"Fine-tuning started from the weights of {'the HuggingFace checkpoint ' * bool(imported)}{name} "
        f"(SHA-256 {checksum or 'not recorded'}).",
        trained,
    ]


def _held_out(config: Config, split: str) -> list[str]:
    regions = (
        getattr(config.chromatin.data, f"{split}_regions")
        if config.has_chromatin
        else ()
    )
    return [*getattr(config.genome, split), *regions]


class ReportItem(NamedTuple):
    """A file shown on the page, identified by its name."""

    name: str
    title: str
    caption: str = ""  # name in `captions/`
    folded: bool = False

    @property
    def text(self) -> str:
        """The caption, in reStructuredText without markup other than literals."""
        return resource(f"captions/{self.caption}.rst").strip() if self.caption else ""


# Sections of the page; sections without files are omitted, and those after the first are collapsed.
PARTS: dict[str, tuple[ReportItem, ...]] = {
    "Results": (
        ReportItem("score_track.svg", "Scores along a contig", "score_track"),
        ReportItem("scan.svg", "Calls along a contig", "scan"),
        ReportItem("scan.tsv", "Calls, table", folded=True),
        ReportItem("roc.svg", "ROC curves", "roc"),
        ReportItem("precision_recall.svg", "Precision and recall", "precision_recall"),
        ReportItem(
            "promoters.tsv", "All metrics of promoters", "promoters", folded=True
        ),
        ReportItem("calibration.svg", "Calibration", "calibration"),
        ReportItem("calibration.tsv", "Calibration, table", folded=True),
        ReportItem("groups.tsv", "Chromatin tracks by group", "tracks"),
        ReportItem("report.html", "Track browser"),
    ),
    "All metrics": (ReportItem("summary.tsv", "Summary", "summary"),),
    "Pretraining": (
        ReportItem("bits_per_base.svg", "Bits per base", "bits_per_base"),
        ReportItem("bits_per_base.tsv", "Bits per base, table"),
        ReportItem("held_out.svg", "Bits per base over training", "held_out"),
        ReportItem("loss.svg", "Loss of pretraining", "loss"),
    ),
    "Promoters": (
        ReportItem(
            "score_histograms.svg", "Distribution of scores", "score_histograms"
        ),
        ReportItem(
            "similarity.svg", "By similarity to the training data", "similarity"
        ),
        ReportItem("similarity.tsv", "By similarity, table", folded=True),
        ReportItem("finetuning_loss.svg", "Loss of fine-tuning", "finetuning_loss"),
    ),
    "Chromatin": (
        ReportItem(
            "track_calibration.svg", "Calibration of tracks", "track_calibration"
        ),
        ReportItem("track_calibration.tsv", "Calibration of every track", folded=True),
        ReportItem("tracks.tsv", "All tracks", folded=True),
        ReportItem(
            "bin_similarity.tsv", "By similarity to the training data", "bin_similarity"
        ),
    ),
    "Variants": (
        ReportItem("variants.svg", "Predicted effects of variants", "variants"),
        ReportItem("variants.tsv", "By variant category", folded=True),
        ReportItem(
            "compared_variants.tsv", "Compared with other predictors", folded=True
        ),
        ReportItem("random_variants.tsv", "Compared with random variants", folded=True),
        ReportItem("variant_p_values.tsv", "P-value of every variant", folded=True),
    ),
    "Effect of pretraining": (
        ReportItem("study.txt", "Comparison in words", "study_words"),
        ReportItem("study.svg", "AUROC and the number of examples", "study"),
        ReportItem("study_steps.svg", "AUROC while fine-tuning", "study_steps"),
        ReportItem("study.tsv", "All initializations", "study_table"),
        ReportItem("probes.svg", "Linear probes by layer", "probes"),
        ReportItem("probes.tsv", "Probes, table", folded=True),
    ),
    "Model": (ReportItem("attention.svg", "Attention pattern", "attention"),),
}
FIGURE, PAGE, TEXT = ".svg", ".html", ".txt"  # all other files are tables


class ShownTable(NamedTuple):
    """Headings, whether each column is numeric, and the cells as text."""

    headings: list[str]
    numeric: list[bool]
    rows: list[list[str]]
    left_out: int  # number of rows beyond the first 5,000

    @property
    def text(self) -> str:
        """The table as TSV."""
        return "".join("\t".join(row) + "\n" for row in (self.headings, *self.rows))


def shown_table(path: Path) -> ShownTable:
    """Read a table for display; a value and its interval become one column, and empty columns are dropped.

    The ends of an interval are `x_low`, `x_high`, or `low`, `high` after the value.
    """
    table = read_text_table(path)
    names = [str(name) for name in table.columns]
    if not names:
        raise DataError(f"{path}: the table has no columns")
    cells = {name: [str(cell) for cell in table[name].tolist()] for name in names}
    ends = {
        name: [name + _LOW, name + _HIGH]
        for name in names
        if {name + _LOW, name + _HIGH} <= cells.keys()
    }
    ends |= {
        name: pair
        for place, name in enumerate(names)
        if (pair := names[place + 1 :][:2]) == _PLAIN_ENDS
    }
    hidden = {end for pair in ends.values() for end in pair}
    headings, numeric, columns = [], [], []
    for name in names:
        if name in hidden or not any(cells[name]):
            continue
        column = [_short(cell) for cell in cells[name]]
        if name in ends:
            column = [
                f"{value} [{_short(low)}, {_short(high)}]"
                if value and low and high
                else value
                for value, low, high in zip(
                    column, *(cells[end] for end in ends[name]), strict=True
                )
            ]
        headings.append(name.replace("_", " "))
        numeric.append(all(_is_number(cell) for cell in cells[name] if cell))
        columns.append(column)
    rows = [list(row) for row in zip(*columns, strict=True)]
    return ShownTable(headings, numeric, rows[:_MOST], max(0, len(rows) - _MOST))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _short(cell: str) -> str:
    """Format fractions with four digits and integers with commas; other text is unchanged."""
    if not _is_number(cell):
        return cell
    value = float(cell)
    if value.is_integer() and "." not in cell and "e" not in cell.lower():
        return f"{int(value):,}"
    return (
        f"{value:.4f}".replace("-", "−")
        if 1e-3 <= abs(value) < 1e6
        else f"{value:.3g}".replace("-", "−")
    )


def steps_table(paths: Sequence[Path]) -> tuple[ShownTable | None, str]:
    """Return step, time, CPU time and peak memory, longest first, and the total time; None without files.

    Cells that Snakemake could not measure, for example for very short steps, are empty.
    """
    measured = [
        (path.stem, _measured(path, _SECONDS, _CPU, _MEGABYTES)) for path in paths
    ]
    found = [(name, row) for name, row in measured if row]
    if not found:
        return None, ""
    found.sort(key=lambda step: (-(step[1][0] or 0.0), step[0]))
    rows = [
        [name, clock(seconds), clock(cpu), "" if memory is None else f"{memory:,.0f}"]
        for name, (seconds, cpu, memory) in found
    ]
    headings = ["step", "time, h:m:s", "CPU time, h:m:s", "peak memory, MB"]
    total = sum(row[0] or 0.0 for _, row in found)
    return ShownTable(headings, [False, True, True, True], rows, 0), clock(total)


def processor_seconds(path: Path) -> float | None:
    """Return the CPU time of a step from its benchmark file; None if missing or not measured."""
    cells = _measured(path, _CPU) if path.is_file() else []
    return cells[0] if cells else None


def _measured(path: Path, *names: str) -> list[float | None]:
    """Return the last row of a benchmark file, with None for missing values; empty if there is no row."""
    table = read_table(path, Schema.of(*(f"metric {name}" for name in names)))
    last = table[[*names]].to_numpy(float)[-1:]
    return [None if math.isnan(value) else value for value in last.ravel().tolist()]


def clock(seconds: float | None) -> str:
    """Format seconds as h:mm:ss; empty if not measured."""
    if seconds is None:
        return ""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
