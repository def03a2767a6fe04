"""What the steps of a run took, from Snakemake's benchmark files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bigbird_dna.reporting.run.tables import Table
from bigbird_dna.reporting.tables import read_tsv

_SECONDS, _MEGABYTES, _CPU = "s", "max_rss", "cpu_time"


def steps_table(paths: Sequence[Path]) -> tuple[Table | None, str]:
    """Step, time, CPU time and peak memory, the longest first, and the sum of times; without files None.

    A cell that Snakemake couldn't measure, as of a step that was over at once, is empty.

    Raises
    ------
    DataError
        A file isn't such a table.
    """
    found: list[tuple[str, float | None, float | None, float | None]] = []
    for path in paths:
        last = read_tsv(path, [_SECONDS, _MEGABYTES, _CPU], text=True).iloc[-1:]
        for row in last.to_dict("records"):
            seconds, cpu, memory = (_number(str(row[name])) for name in (_SECONDS, _CPU, _MEGABYTES))
            found.append((path.stem, seconds, cpu, memory))
    if not found:
        return None, ""
    found.sort(key=lambda step: (-(step[1] or 0.0), step[0]))
    rows = [
        [name, clock(seconds), clock(cpu), "" if memory is None else f"{memory:,.0f}"]
        for name, seconds, cpu, memory in found
    ]
    headings = ["step", "time, h:m:s", "CPU time, h:m:s", "peak memory, MB"]
    total = sum(seconds or 0.0 for _, seconds, _, _ in found)
    return Table(headings, [False, True, True, True], rows, 0), clock(total)


def processor_seconds(path: Path) -> float | None:
    """CPU time of a step by its benchmark file; None where there is no file, or it wasn't measured.

    Raises
    ------
    DataError
        The file isn't such a table.
    """
    if not path.is_file():
        return None
    cells = read_tsv(path, [_CPU], text=True)[_CPU].tolist()
    return _number(str(cells[-1])) if cells else None


def clock(seconds: float | None) -> str:
    """Seconds as h:mm:ss; nothing where they weren't measured."""
    if seconds is None:
        return ""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:  # "NA" and "-"
        return None
