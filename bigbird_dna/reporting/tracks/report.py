"""A report of AUROC and AUPRC by track and group: `tracks.tsv`, `groups.tsv` and `report.html`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.files import atomic_directory, check_writable, checksum
from bigbird_dna.reporting.tables import write_tsv
from bigbird_dna.reporting.tracks.arrays.array import TrackArray
from bigbird_dna.reporting.tracks.arrays.opening import open_array
from bigbird_dna.reporting.tracks.judging import judge_tracks
from bigbird_dna.reporting.tracks.page.content import Page, Source
from bigbird_dna.reporting.tracks.page.document import report_page
from bigbird_dna.reporting.tracks.published import read_published
from bigbird_dna.reporting.tracks.tables import (
    PUBLISHED,
    PlainTrack,
    ReportTrack,
    groups_table,
    tracks_table,
)

if TYPE_CHECKING:
    import pandas as pd

FILES = ("tracks.tsv", "groups.tsv", "report.html")
# Of the figures in the tables, so that others can compute with them.
_DIGITS = 12
Array = str | Path | NDArray[Any]


class AucReport(NamedTuple):
    """The tables as written; `tracks` has a further column, `counted`."""

    tracks: pd.DataFrame
    groups: pd.DataFrame


def write_auc_report(
    predictions: Array,
    labels: Array,
    tracks: Sequence[ReportTrack] | None,
    out_dir: Path,
    *,
    compare: Mapping[str, Array] | None = None,
    published: Sequence[float] | Path | None = None,
    min_positives: int = 1,
    title: str = "AUROC by track",
    command: str = "",
    sources: Sequence[str | Path] = (),
    threads: int = 0,
) -> AucReport:
    """Judge predictions track by track and write the report to `out_dir`, whole or not at all.

    Parameters
    ----------
    predictions, labels
        Arrays (rows, tracks): files as `open_array` reads them, or in memory. Scores of any range;
        labels 0 and 1, and -1 or NaN for a row that was not measured in a track.
    tracks
        Name, group and so on of each column; None: the names of the files' columns, one group.
    compare
        Further predictors on the same rows: name → array. Each gives AUROC, AUPRC and the
        difference with DeLong's paired interval.
    published
        AUROC of each track to compare with, NaN for none, or a table of them (see
        `read_published`); None: that of `tracks`, if any has one.
    min_positives
        A track with fewer takes no part in the figures of its group.
    command, sources
        For the page: how it was made, and further files whose checksums it states.

    Raises
    ------
    DataError
        Shapes, names, rows or values of the files don't fit; see `open_array` and `read_block`.
    UsageError
        `out_dir` can't be written or holds other files; a name in `compare` won't do.
    """
    compare = dict(compare or {})
    out_dir = Path(out_dir).absolute()
    check_output(out_dir)
    for name in compare:
        if not re.fullmatch(r"[\w.+-]+", name) or name == PUBLISHED:
            raise UsageError(
                f"predictor {name!r}: a name is of letters, digits and _ . + -, not {PUBLISHED!r}"
            )
    truth = open_array(labels, "labels")
    first = open_array(predictions, "predictions")
    others = {name: open_array(array, "predictions") for name, array in compare.items()}
    for array in (first, *others.values()):
        _check_fit(array, truth)
    known = _tracks(tracks, [truth, first, *others.values()])
    names = tuple(track.name for track in known)
    if isinstance(published, Path):
        sources = [*sources, published]
        published = read_published(published, names)
    elif published is None and any(track.published_auroc is not None for track in known):
        figures = [track.published_auroc for track in known]
        published = [math.nan if value is None else value for value in figures]
    judged = judge_tracks(first, truth, others, names, threads)
    table = tracks_table(known, judged, tuple(compare), published, min_positives)
    groups = groups_table(table, tuple(compare))
    files = {"predictions": predictions, "labels": labels, **compare}
    page = Page(
        title=title,
        tracks=known,
        table=table,
        groups=groups,
        curves=[j.curve for j in judged],
        rows=truth.rows,
        compare=tuple(compare),
        sources=[
            *(_source(role, array) for role, array in files.items()),
            *(_source("table", path) for path in sources),
        ],
        command=command,
        version=version("bigbird-dna"),
        min_positives=min_positives,
    )
    with atomic_directory(out_dir) as temporary:
        write_tsv(temporary / "tracks.tsv", table.drop(columns="counted"), digits=_DIGITS)
        write_tsv(temporary / "groups.tsv", groups, digits=_DIGITS)
        (temporary / "report.html").write_text(report_page(page), encoding="utf-8")
    return AucReport(table, groups)


def check_output(out_dir: Path) -> None:
    """Refuse a directory that can't be written or holds files that are not a report's."""
    check_writable(out_dir, directory=True)
    if out_dir.is_dir():
        strange = sorted({path.name for path in out_dir.iterdir()} - set(FILES))
        if strange:
            raise UsageError(
                f"{out_dir}: holds {strange[0]!r}; the report takes the place of a directory, "
                "so give it one of its own"
            )


def _check_fit(array: TrackArray, labels: TrackArray) -> None:
    """Refuse predictions whose shape, column names or intervals differ from those of the labels."""
    ours, theirs = (array.rows, array.tracks), (labels.rows, labels.tracks)
    if ours != theirs:
        turned = " (rows and tracks exchanged?)" if ours == theirs[::-1] else ""
        raise DataError(
            f"{array.path}: {ours[0]:,} rows × {ours[1]:,} tracks, but {labels.path}: "
            f"{theirs[0]:,} × {theirs[1]:,}{turned}"
        )
    if array.names and labels.names:
        _check_names(array.path, array.names, labels.path, labels.names)
    if array.places is None or labels.places is None:
        return
    for name in array.places.columns:
        if name in labels.places:
            one, two = array.places[name].to_numpy(), labels.places[name].to_numpy()
            unlike = one != two
            if unlike.any():
                row = int(unlike.argmax())
                raise DataError(
                    f"{array.path}: row {row + 1:,}: {name} {one[row]!s:.60}, "
                    f"but {two[row]!s:.60} in {labels.path}"
                )


def _check_names(path: str, names: Sequence[str], other: str, theirs: Sequence[str]) -> None:
    for column, (one, two) in enumerate(zip(names, theirs, strict=True)):
        if one != two:
            raise DataError(f"{path}: column {column + 1} is track {one!r}, but {two!r} in {other}")


def _tracks(
    tracks: Sequence[ReportTrack] | None, arrays: Sequence[TrackArray]
) -> Sequence[ReportTrack]:
    count = arrays[0].tracks
    named = next((array for array in arrays if array.names), None)
    if tracks is None:
        width = len(str(count))
        names = named.names if named is not None and named.names else None
        return [
            PlainTrack(name) for name in names or [f"track {i + 1:0{width}}" for i in range(count)]
        ]
    if len(tracks) != count:
        raise DataError(
            f"the table of tracks has {len(tracks):,}, but {arrays[0].path}: {count:,} columns"
        )
    table_names = [track.name for track in tracks]
    for array in arrays:
        if array.names:
            _check_names(array.path, array.names, "the table of tracks", table_names)
    return tracks


def _source(role: str, array: Array) -> Source:
    if isinstance(array, str | Path):
        path = Path(str(array).partition("::")[0])
        return Source(role, str(array), path.stat().st_size, checksum(path))
    return Source(role, f"in memory, {array.dtype} {array.shape}", array.nbytes, "")
