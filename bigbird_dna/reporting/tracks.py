"""Report of AUROC and AUPRC per track and group: `tracks.tsv`, `groups.tsv` and `report.html`."""

import math
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bigbird_dna.calibration.maps import read_calibration
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import atomic_directory, check_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.reporting.arrays import Array, TrackArray, open_array, read_blocks
from bigbird_dna.reporting.calibration import (
    median_line,
    track_calibration_figure,
    track_calibration_table,
)
from bigbird_dna.reporting.pages import image
from bigbird_dna.reporting.track_evaluation import (
    ALL,
    PUBLISHED,
    check_names,
    evaluate_tracks,
    groups_table,
    tracks_columns,
    tracks_table,
)
from bigbird_dna.reporting.track_page import track_page

DIGITS = 12
"""Significant digits of the metrics in the tables, for further computation."""


class AucReport(NamedTuple):
    """The tables as written; `tracks` has an additional column `counted`."""

    tracks: pd.DataFrame
    groups: pd.DataFrame


def auc_report(
    predictions: Array,
    labels: Array,
    output: str | Path,
    *,
    tracks: str | Path | Sequence[Track] | None = None,
    compare: Mapping[str, Array] | None = None,
    min_positives: int = 1,
    threads: int = 0,
    command: str = "",
    calibration: str | Path | None = None,
    bins: str | Path | None = None,
) -> AucReport:
    """Evaluate predictions per track, and write tables and a page to `output` atomically.

    AUROC has the interval of `metrics.auroc.auroc`, over blocks of the genome if the rows' positions are
    known. AUROC and average precision are undefined for a track of one class.

    Parameters
    ----------
    predictions, labels : (rows, tracks), or (rows,) for one track; files readable by `open_array`, or arrays,
        lists or data frames with a column per track.
        Scores have any range. Labels are 0, 1, or -1 or NaN for a row not measured in a track, where a score
        may be NaN.
    output : a separate directory; an earlier report in it is replaced. tracks : name, group and further facts
    of each column, as a table (`read_tracks`) or its rows; None: column
        names of the arrays, in one group.
    compare : name → array of another predictor; differences have a paired interval.
    min_positives : tracks with fewer positives are excluded from the metrics of their group.
    command : the command that made the page.
    threads : 0: one per core, up to four.
    calibration : `calibration.json` of the model; probabilities are then evaluated before and after
        calibration, in `track_calibration.tsv` and `.svg`, and on the page; None: no evaluation.
    bins : the table of the rows, such as `bins.parquet` of a data set; None: the columns `contig` and `start`
        of `labels`. Without positions, rows count as independent.

    Raises
    ------
    DataError
        A file cannot be read, or shapes, names, rows or values do not match.
    ModelError
        The calibration is damaged.
    UsageError
        `output` cannot be written or contains other files; a name in `compare` is invalid.
    """
    output = Path(output)
    compare = compare or {}
    tables = [Path(t) for t in (calibration, bins) if t is not None]
    if isinstance(tracks, str | Path):
        tables.insert(0, Path(tracks))
    files = [
        Path(str(source).partition("::")[0])
        for source in (predictions, labels, *compare.values())
        if isinstance(source, str | Path)
    ]
    check_directory(output, [*files, *tables])
    maps = None if calibration is None else read_calibration(Path(calibration))
    for name in compare:
        if not re.fullmatch(r"[\w.+-]+", name) or name == PUBLISHED:
            raise UsageError(
                f"predictor {name!r}: must consist of letters, digits and _ . + -, and not be {PUBLISHED!r}"
            )
    truth = open_array(labels, "labels")
    first = open_array(predictions, "predictions")
    others = {name: open_array(array, name) for name, array in compare.items()}
    for array in (first, *others.values()):
        _check_fit(array, truth)
    if first.tracks > first.rows:
        log(
            f"warning: {first.path}: {first.rows:,} rows × {first.tracks:,} tracks: more tracks than rows; "
            "check whether rows and tracks are swapped"
        )
    known = _tracks(tracks, [truth, first, *others.values()])
    names = tuple(track.name for track in known)
    figures: list[float] | None = None
    if any(track.published_auroc is not None for track in known):
        columns = [track.published_auroc for track in known]
        figures = [math.nan if value is None else value for value in columns]
    blocks = read_blocks(None if bins is None else Path(bins), truth)

    evaluated, curves = evaluate_tracks(first, truth, others, names, threads, blocks)
    table = tracks_table(known, evaluated, tuple(compare), figures, min_positives)
    predictors = [*compare] if figures is None else [PUBLISHED, *compare]
    groups = groups_table(table, predictors)
    with atomic_directory(output) as directory:
        path = directory / "tracks.tsv"
        write_tsv(path, table[tracks_columns(predictors)], DIGITS)
        write_tsv(directory / "groups.tsv", groups, DIGITS)
        sentence = picture = ""
        if maps is not None:
            rows = track_calibration_table(first, truth, maps, known, threads or 1)
            path = directory / "track_calibration.tsv"
            write_tsv(path, rows, DIGITS)
            track_calibration_figure(rows, path.with_suffix(".svg"))
            sentence = median_line(rows)
            picture = image(path.with_suffix(".svg"))
        arrays = {"predictions": first, "labels": truth, **others}
        page = track_page(
            known,
            table,
            groups,
            curves,
            predictors,
            rows=truth.rows,
            blocks=0 if blocks is None else len(np.unique(blocks)),
            sources=_sources(arrays, tables),
            command=command,
            version=version("bigbird-dna"),
            min_positives=min_positives,
            calibration=sentence,
            picture=picture,
        )
        (directory / "report.html").write_text(page, encoding="utf-8")
    return AucReport(table, groups)


def _check_fit(array: TrackArray, labels: TrackArray) -> None:
    """Raise `DataError` if shape, column names or intervals of predictions differ from those of labels."""
    ours, theirs = (array.rows, array.tracks), (labels.rows, labels.tracks)
    if ours != theirs:
        turned = " (rows and tracks swapped?)" if ours == theirs[::-1] else ""
        raise DataError(
            f"{array.path}: {ours[0]:,} rows × {ours[1]:,} tracks, but {labels.path} has "
            f"{theirs[0]:,} × {theirs[1]:,}{turned}"
        )
    if array.names and labels.names:
        check_names(array.path, array.names, labels.path, labels.names)
    if array.intervals is None or labels.intervals is None:
        return
    for name in array.intervals.columns.intersection(labels.intervals.columns):
        one, two = array.intervals[name], labels.intervals[name]
        unlike = ((one != two) & ~(one.isna() & two.isna())).to_numpy()
        if unlike.any():
            row = int(unlike.argmax())
            raise DataError(
                f"{array.path}: row {row + 1:,}: {name} {one[row]!s:.60}, "
                f"but {two[row]!s:.60} in {labels.path}"
            )


def _tracks(
    tracks: str | Path | Sequence[Track] | None, arrays: Sequence[TrackArray]
) -> Sequence[Track]:
    count = arrays[0].tracks
    if tracks is None:
        width = len(str(count))
        unnamed = tuple(f"track {i + 1:0{width}}" for i in range(count))
        names = next((array.names for array in arrays if array.names), unnamed)
        return [Track(name, ALL) for name in names]
    known = read_tracks(Path(tracks)) if isinstance(tracks, str | Path) else tracks
    if len(known) != count:
        raise DataError(
            f"the track table has {len(known):,} tracks, but {arrays[0].path} {count:,} columns"
        )
    for array in arrays:
        if array.names:
            tracks_of_table = [track.name for track in known]
            check_names(array.path, array.names, "the track table", tracks_of_table)
    return known


def _sources(
    arrays: Mapping[str, TrackArray], tables: Sequence[Path]
) -> list[dict[str, Any]]:
    """Return role, name, size and checksum of the input files; an array in memory has no checksum."""
    sources = []
    for role, array in arrays.items():
        name, sha256 = array.path, ""
        path = Path(name.partition("::")[0])
        if path.is_file():
            size, sha256 = path.stat().st_size, checksum(path)
        else:
            name = f"in memory, {array.dtype} {array.values.shape}"
            size = array.values.nbytes
        sources.append({"role": role, "name": name, "size": size, "sha256": sha256})
    for path in tables:
        row = {"role": "table", "name": str(path), "size": path.stat().st_size}
        sources.append({**row, "sha256": checksum(path)})
    return sources
