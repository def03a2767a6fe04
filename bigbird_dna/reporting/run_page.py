"""Page of a run: one HTML file with its plots and tables, which needs no network and no script."""

from __future__ import annotations

import base64
import math
import os
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

from bigbird_dna.config import Config
from bigbird_dna.disk.atomic import atomic_path, reading
from bigbird_dna.disk.tables import Schema, read_table, read_text_table
from bigbird_dna.errors import DataError, UsageError, one_of
from bigbird_dna.metrics.auroc import ENDS
from bigbird_dna.reporting.track_page import render_page, resource

if TYPE_CHECKING:
    from markupsafe import Markup


_LOCATION_KEYS = {"results", "data_dir"}  # configuration keys that are not shown
_LOW, _HIGH = ENDS[1:]
_MOST = 5_000  # most rows of a table on the page, which would otherwise be slow
_SECONDS, _MEGABYTES, _CPU = "s", "max_rss", "cpu_time"


class _ShownItem(NamedTuple):
    item: ReportItem
    caption: Markup
    image: str = ""
    table: ShownTable | None = None
    link: str = ""
    link_text: str = ""
    paragraphs: tuple[str, ...] = ()


class _ReportSection(NamedTuple):
    title: str
    id: str
    items: list[_ShownItem]


def run_report(
    config: Config, paths: Sequence[Path], output: Path, *, benchmarks: Sequence[Path] = ()
) -> None:
    """Write the page of a run from tables and plots of its reports, identified by file name (`PARTS`).

    `benchmarks` are Snakemake's tables of the time of each step. `UsageError` for an unknown file name.
    """
    known = [item.name for items in PARTS.values() for item in items]
    found: dict[str, Path] = {}
    for path in paths:
        if path.name not in known:
            raise UsageError(f"{path}: not shown in a run report; its name {one_of(path.name, known)}")
        if path.name in found:
            raise UsageError(f"{path}: same file name as {found[path.name]}; give only one")
        found[path.name] = path
    parts = [
        _ReportSection(
            title,
            title.lower().replace(" ", "-"),
            [_shown_item(item, found[item.name], output) for item in items],
        )
        for title, whole in PARTS.items()
        if (items := [item for item in whole if item.name in found])
    ]
    steps, total = steps_table(benchmarks)
    values = config.model_dump(mode="json", exclude=_LOCATION_KEYS)
    subject = config.genome.title if config.has_genome else "Sequences"
    text = render_page(
        "run_page.html",
        style="run_page.css",
        title=f"{subject}: DNA language model report",
        about=_about(config),
        parts=parts,
        steps=steps,
        total=total,
        version=version("bigbird-dna"),
        configuration=yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100),
    )
    with atomic_path(output) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _shown_item(item: ReportItem, path: Path, output: Path) -> _ShownItem:
    from markupsafe import Markup, escape

    # Captions use no other markup of reStructuredText than literals.
    caption = Markup(re.sub(r"``(.+?)``", r"<code>\1</code>", str(escape(item.text))))
    if path.suffix == PAGE:
        # A relative link, so that both files can be moved together.
        link = os.path.relpath(path, output.parent)
        return _ShownItem(item, caption, link=Path(link).as_posix(), link_text=item.title)
    if path.suffix == FIGURE:
        with reading(path, "not readable"):
            data = base64.b64encode(path.read_bytes()).decode()
        # As an image, so that scripts inside an SVG cannot run.
        return _ShownItem(item, caption, image=f"data:image/svg+xml;base64,{data}")
    if path.suffix == TEXT:
        with reading(path, "not readable", UnicodeDecodeError):
            lines = path.read_text(encoding="utf-8").splitlines()
        return _ShownItem(item, caption, paragraphs=tuple(filter(None, map(str.strip, lines))))
    return _ShownItem(item, caption, table=shown_table(path))


def _about(config: Config) -> list[str]:
    """Return sentences on the training data, tasks and held-out regions."""
    genome, data = config.genome, config.chromatin.data
    purposes = ["to distinguish promoters from other sequence"] * config.has_promoters
    purposes += ["to predict chromatin tracks"] * config.has_chromatin
    trained = "pretrained and fine-tuned" if config.has_pretraining else "trained"
    data_name = genome.title if config.has_genome else "sequences"
    sentences = [
        f"A DNA language model with block-sparse (BigBird) attention was {trained} on {data_name} "
        f"{' and '.join(purposes)}."
    ]
    for split, purpose in (("valid", "validation"), ("test", "testing")):
        regions = getattr(data, f"{split}_regions") if config.has_chromatin else ()
        held_out = [*getattr(genome, split), *regions]
        if held_out:
            sentences.append(f"Held out for {purpose}: {', '.join(held_out)}.")
    return sentences


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


# Sections of the page; sections without files are omitted.
PARTS: dict[str, tuple[ReportItem, ...]] = {
    "Summary": (ReportItem("summary.tsv", "", "summary"),),
    "Pretraining": (
        ReportItem("bits_per_base.svg", "Bits per base", "bits_per_base"),
        ReportItem("bits_per_base.tsv", "Bits per base, table"),
        ReportItem("held_out.svg", "Bits per base over training", "held_out"),
        ReportItem("loss.svg", "Loss of pretraining", "loss"),
    ),
    "Promoters": (
        ReportItem("roc.svg", "ROC", "roc"),
        ReportItem("precision_recall.svg", "Precision and recall", "precision_recall"),
        ReportItem("score_histograms.svg", "Scores", "score_histograms"),
        ReportItem("calibration.svg", "Calibration", "calibration"),
        ReportItem("calibration.tsv", "Calibration, table", folded=True),
        ReportItem("promoters.tsv", "All metrics", "promoters"),
        ReportItem("similarity.svg", "By similarity to the training data", "similarity"),
        ReportItem("similarity.tsv", "By similarity, table", folded=True),
        ReportItem("finetuning_loss.svg", "Loss of fine-tuning", "finetuning_loss"),
        ReportItem("score_track.svg", "Scores along a contig", "score_track"),
    ),
    "Chromatin": (
        ReportItem("groups.tsv", "Groups", "tracks"),
        ReportItem("track_calibration.svg", "Calibration", "track_calibration"),
        ReportItem("track_calibration.tsv", "Calibration of every track", folded=True),
        ReportItem("tracks.tsv", "All tracks", folded=True),
        ReportItem("report.html", "Track browser"),
        ReportItem("bin_similarity.tsv", "By similarity to the training data", "bin_similarity"),
    ),
    "Variants": (
        ReportItem("variants.svg", "Effects", "variants"),
        ReportItem("variants.tsv", "By variant category", folded=True),
    ),
    "Effect of pretraining": (
        ReportItem("study.txt", "", "study_words"),
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


def shown_table(path: Path) -> ShownTable:
    """Read a table for display; `x`, `x_low`, `x_high` become one column, and empty columns are dropped."""
    table = read_text_table(path)
    names = [str(name) for name in table.columns]
    if not names:
        raise DataError(f"{path}: the table has no columns")
    cells = {name: [str(cell) for cell in table[name].tolist()] for name in names}
    headings, numeric, columns = [], [], []
    for name in names:
        base = name.removesuffix(_LOW).removesuffix(_HIGH)
        if (base != name and base in cells) or not any(cells[name]):
            continue
        column = [_short(cell) for cell in cells[name]]
        ends = (name + _LOW, name + _HIGH)
        if name == "value" and ends[0] not in cells:
            ends = ("low", "high")
        if ends[0] in cells and ends[1] in cells:
            column = [
                f"{value} [{_short(low)}, {_short(high)}]" if value and low and high else value
                for value, low, high in zip(column, *(cells[end] for end in ends), strict=True)
            ]
        elif name in ("low", "high") and "value" in cells:
            continue
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
    return f"{value:.4f}".replace("-", "−") if 1e-3 <= abs(value) < 1e6 else f"{value:.3g}".replace("-", "−")


def steps_table(paths: Sequence[Path]) -> tuple[ShownTable | None, str]:
    """Return step, time, CPU time and peak memory, longest first, and the total time; None without files.

    Cells that Snakemake could not measure, for example for very short steps, are empty.
    """
    measured = [(path.stem, _measured(path, _SECONDS, _CPU, _MEGABYTES)) for path in paths]
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
