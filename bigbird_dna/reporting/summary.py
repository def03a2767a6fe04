"""The run on one page: its figures as (section, figure, value, low, high, note), and as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bigbird_dna.errors import DataError
from bigbird_dna.reporting.promoters.predictions import CONTROL, KMER, MODEL
from bigbird_dna.reporting.tables import DIFFERENCE, number

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ["section", "figure", "value", "low", "high", "note"]
# Columns of the promoter table that a summary reads.
PROMOTER_COLUMNS = [
    "negative_set",
    "model",
    "n",
    *(
        f"{name}{end}"
        for name in ("auroc", "auprc", "f1", "mcc", DIFFERENCE)
        for end in ("", "_low", "_high")
    ),
]
NAMES = {"auroc": "AUROC", "auprc": "AUPRC", "f1": "F1", "mcc": "MCC"}


class Row(NamedTuple):
    """One figure of the summary; `low` and `high` are NaN where it has no interval."""

    section: str
    figure: str
    value: float
    low: float = math.nan
    high: float = math.nan
    note: str = ""


def token_rows(statistics: Mapping[str, Any], source: Path) -> list[Row]:
    """Figures of the tokenizer's `statistics.json`: vocabulary, bases a token by region, unknowns."""
    genome = _object(statistics, "genome", source)
    rows = [
        Row("tokens", "vocabulary", number(statistics, "vocabulary", source)),
        Row(
            "tokens",
            "bases a token, genome",
            number(genome, "bases_per_token", source),
            note=f"{int(number(genome, 'bases', source)):,} bp",
        ),
    ]
    for name, region in _object(statistics, "regions", source).items():
        if region.get("bases_per_token") is not None:
            value = number(region, "bases_per_token", source)
            rows.append(Row("tokens", f"bases a token, {name}", value))
    rows.append(
        Row("tokens", "unknown tokens", number(genome, "unknown_rate", source), note="share")
    )
    return rows


def pretraining_rows(metrics: Mapping[str, Any], source: Path) -> list[Row]:
    """Figures of the pretrained model's `metrics.json`; bits per base of the baselines beside it."""
    split = metrics.get("split")
    held_out = f"held out ({split})" if split else "held out"
    order = metrics.get("ngram_order")
    rows = [
        Row(
            "pretraining",
            "bits per base, model",
            number(metrics, "bits_per_base", source),
            note=held_out,
        ),
        Row(
            "pretraining",
            "bits per base, n-gram",
            number(metrics, "ngram_bits_per_base", source),
            note=f"Kneser–Ney, order {order}" if order else "Kneser–Ney",
        ),
        Row(
            "pretraining",
            "bits per base, uniform",
            number(metrics, "uniform_bits_per_base", source),
        ),
        Row(
            "pretraining",
            "masked tokens right",
            number(metrics, "masked_accuracy", source),
            note=held_out,
        ),
    ]
    for key, name in (
        ("next_sentence_accuracy", "next sentences right"),
        ("steps", "steps"),
        ("tokens_seen", "tokens seen"),
    ):
        if key in metrics:
            note = held_out if key.endswith("accuracy") else ""
            rows.append(Row("pretraining", name, number(metrics, key, source), note=note))
    return rows


def promoter_rows(table: pd.DataFrame) -> list[Row]:
    """For each negative set: the model's figures, the k-mers' and the control's AUROC, and the lead."""
    rows = []
    for negative_set, chosen in table.groupby("negative_set", sort=False):
        section = f"promoters, {negative_set}"
        for _, line in chosen.iterrows():
            if line["model"] == MODEL:
                note = f"{int(line['n']):,} test windows"
                rows += [
                    Row(section, f"{title}, model", *_estimate(line, name), note=note)
                    for name, title in NAMES.items()
                ]
            elif line["model"] == KMER:
                rows.append(Row(section, "AUROC, k-mer regression", *_estimate(line, "auroc")))
            elif line["model"] == CONTROL:
                figures = _estimate(line, "auroc")
                note = "chance is 0.5"
                rows.append(Row(section, "AUROC, shuffled labels", *figures, note=note))
        for _, line in chosen[chosen["model"] == MODEL].iterrows():
            if not math.isnan(line[DIFFERENCE]):
                lead = _estimate(line, DIFFERENCE)
                rows.append(Row(section, "AUROC, model minus k-mer", *lead, note="paired DeLong"))
    return rows


def summary_table(rows: list[Row]) -> pd.DataFrame:
    """The rows as a table of `COLUMNS`."""
    import pandas as pd

    return pd.DataFrame(rows, columns=COLUMNS)


def summary_text(rows: list[Row], report: Path | None) -> str:
    """The rows in aligned columns under their sections, and where the report is."""
    cells = [(row.figure, _shown(row.value), _interval(row), row.note) for row in rows]
    header = ("", "value", "95 % interval", "")
    widths = [max(len(line[column]) for line in [header, *cells]) for column in range(4)]
    lines = [_line(header, widths)]
    for index, (row, cell) in enumerate(zip(rows, cells, strict=True)):
        if index == 0 or rows[index - 1].section != row.section:
            lines += ["", row.section[:1].upper() + row.section[1:]]
        lines.append(_line(cell, widths))
    if report is not None:
        lines += ["", f"Report: {report}"]
    return "\n".join(lines)


def _object(values: Mapping[str, Any], key: str, source: Path) -> Mapping[str, Any]:
    value = values.get(key)
    if not isinstance(value, Mapping):
        raise DataError(f"{source}: {key!r} is no object but {value!r:.60}")
    return value


def _line(cells: tuple[str, str, str, str], widths: list[int]) -> str:
    figure, value, interval, note = cells
    return (
        f"  {figure:<{widths[0]}}  {value:>{widths[1]}}  {interval:<{widths[2]}}  {note}".rstrip()
    )


def _shown(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{int(value):,}" if value.is_integer() and abs(value) >= 10 else f"{value:.4f}"


def _interval(row: Row) -> str:
    return "" if math.isnan(row.low) else f"[{row.low:.4f}, {row.high:.4f}]"


def _estimate(line: pd.Series[Any], name: str) -> tuple[float, float, float]:
    try:
        return float(line[name]), float(line[f"{name}_low"]), float(line[f"{name}_high"])
    except ValueError:
        raise DataError(f"promoter table: {name} {line[name]!r} is no number") from None
