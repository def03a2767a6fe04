"""The table of `score-promoters` as tracks along one contig, one for each strand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError
from bigbird_dna.reporting.tables import read_cells

_LONGEST = 2**31  # bp of a contig
COLUMNS = ["contig", "start", "end", "name", "score", "strand"]


@dataclass(frozen=True)
class ScoreTrack:
    """Scores along `[start, end)` of a contig; `strands` maps "+" and "-" to positions and scores."""

    contig: str
    start: int
    end: int
    strands: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]  # NaN: not scored


class _Row(NamedTuple):
    contig: str
    start: int
    end: int
    score: float
    strand: str


def read_score_track(
    path: Path,
    contig: str | None = None,
    start: int | None = None,
    end: int | None = None,
    upstream: int | None = None,
) -> ScoreTrack:
    """Windows of one contig that lie whole inside `[start, end)`, as points.

    Parameters
    ----------
    contig
        None: the file's first.
    start, end
        0-based, half-open; None: the first base that a window with a score covers, the last that any does.
    upstream
        Where in the window the model expects the TSS, in bp from the window's 5' end, on the strand that
        was scored; None: in the middle. A score is drawn at that place.

    Raises
    ------
    DataError
        The file is no such table (the line is named), has no such contig, or nothing in that range.
    """
    inside: list[_Row] = []
    contigs = set()
    low, high = start or 0, math.inf if end is None else end
    for row in _rows(path):
        contig = row.contig if contig is None else contig
        contigs.add(row.contig)
        if row.contig == contig and low <= row.start and row.end <= high:
            inside.append(row)
    if contig is None:
        raise DataError(f"{path}: no scored window in it")
    if contig not in contigs:
        raise DataError(f"{path}: no contig {contig!r} (found: {', '.join(sorted(contigs)[:5])})")
    if not inside:
        raise DataError(f"{path}: no window inside {contig}:{low}-{'end' if end is None else end}")
    if start is None:  # N may stand before a region
        start = min((row.start for row in inside if not math.isnan(row.score)), default=inside[0].start)
    end = max(row.end for row in inside) if end is None else end
    strands = {}
    for strand in "+-":
        points = sorted((_place(row, upstream), row.score) for row in inside if row.strand == strand)
        if points:
            positions, scores = np.array(points, dtype=np.float64).T
            strands[strand] = (positions, scores)
    return ScoreTrack(contig, start, end, strands)


def _place(row: _Row, upstream: int | None) -> float:
    if upstream is None:
        return (row.start + row.end) / 2
    return row.start + upstream if row.strand == "+" else row.end - 1 - upstream


def _rows(path: Path) -> Iterator[_Row]:
    for place, (where, cells) in enumerate(read_cells(path)):
        if place:
            if any(cell.strip() for cell in cells):
                yield _parse(cells, where)
        elif [name.lstrip("#") for name in cells[: len(COLUMNS)]] != COLUMNS:
            found = "\t".join(cells).strip()
            raise DataError(f"{where}: expected the columns #{' '.join(COLUMNS)}, not {found[:80]!r}")


def _parse(cells: list[str], where: str) -> _Row:
    if len(cells) < len(COLUMNS):
        raise DataError(f"{where}: {len(cells)} columns, expected at least {len(COLUMNS)}")
    contig, start, end, _, score, strand = cells[: len(COLUMNS)]
    if strand not in ("+", "-"):
        raise DataError(f"{where}: strand {strand!r} is not + or -")
    try:
        value = math.nan if score in ("NA", ".", "") else float(score)
        row = _Row(contig, int(start), int(end), value, strand)
    except ValueError:
        raise DataError(
            f"{where}: start {start!r:.60}, end {end!r:.60} or score {score!r:.60} is not a number"
        ) from None
    if not 0 <= row.start < row.end < _LONGEST:
        raise DataError(f"{where}: start {start!r:.60} and end {end!r:.60} are not an interval")
    return row
