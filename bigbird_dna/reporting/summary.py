"""The run on one page: its figures as a table, and as text."""

from __future__ import annotations

import math
from pathlib import Path

from bigbird_dna.errors import UsageError, printable
from bigbird_dna.reporting.summary_rows import (
    Row,
    calibration_rows,
    group_rows,
    language_rows,
    lead_rows,
    locus_rows,
    pretraining_rows,
    promoter_rows,
    token_rows,
    variant_rows,
)
from bigbird_dna.reporting.tables import write_tsv


def summarise(
    *,
    loci: Path | None = None,
    statistics: Path | None = None,
    pretraining: Path | None = None,
    bits: Path | None = None,
    promoters: Path | None = None,
    groups: Path | None = None,
    tracks: Path | None = None,
    variants: Path | None = None,
    calibration: Path | None = None,
    report: Path | None = None,
    output: Path | None = None,
) -> str:
    """Sum up a run from the tables and metrics that its steps wrote, whichever there are.

    Parameters
    ----------
    loci
        `promoters.json` of the promoters that were put on the reference.
    statistics, pretraining, bits
        `statistics.json` of the tokenizer; `metrics.json` of the pretrained model; its bits per base beside
        those of simpler predictors, as `evaluate pretraining` writes them.
    promoters, groups, tracks, variants
        `promoters.tsv`, `groups.tsv`, `tracks.tsv` and `variants.tsv` of the reports.
    calibration
        `calibration.tsv` of the promoters' report; its rows follow those of `promoters`.
    report
        Where the run's report is: named in the last line.
    output
        A TSV of the same figures: section, figure, value, low, high, note; None: none is written.

    Returns
    -------
    The figures and their intervals in aligned columns under their sections.

    Raises
    ------
    UsageError
        No file is given.
    DataError
        A file is missing, damaged, or lacks a figure.
    """
    import pandas as pd

    sources = (
        (loci, locus_rows),
        (statistics, token_rows),
        (bits, language_rows),
        (pretraining, pretraining_rows),
        (promoters, promoter_rows),
        (calibration, calibration_rows),
        (groups, group_rows),
        (tracks, lead_rows),
        (variants, variant_rows),
    )
    rows = [_plain(row) for path, read in sources if path is not None for row in read(path)]
    order = {section: place for place, section in enumerate(dict.fromkeys(row.section for row in rows))}
    rows.sort(key=lambda row: order[row.section])  # a section's rows from several files stand together
    if not rows:
        raise UsageError("nothing to sum up: give metrics.json, promoters.tsv, groups.tsv or another file")
    if output is not None:
        write_tsv(output, pd.DataFrame(rows, columns=list(Row._fields)))
    return summary_text(rows, report)


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


def _plain(row: Row) -> Row:
    """The row with names that a terminal shows as they are, whatever the files hold."""
    return row._replace(
        section=printable(row.section), figure=printable(row.figure), note=printable(row.note)
    )


def _line(cells: tuple[str, str, str, str], widths: list[int]) -> str:
    figure, value, interval, note = cells
    return f"  {figure:<{widths[0]}}  {value:>{widths[1]}}  {interval:<{widths[2]}}  {note}".rstrip()


def _shown(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{int(value):,}" if value.is_integer() and abs(value) >= 10 else f"{value:.4f}"


def _interval(row: Row) -> str:
    return "" if math.isnan(row.low) else f"[{row.low:.4f}, {row.high:.4f}]"
