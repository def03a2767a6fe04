"""Read and write tables of tracks: the assays that a chromatin model predicts, one per track.

A table is tab-separated with a header. `track` (a name) and `group` are required. `cell`, `target`,
`treatment`, `file` (relative to the table), `description`, `opposite` and `published_auroc` are optional.
Further columns are kept. Lines that begin with `#` are comments. `opposite` names the track that this one
becomes on the reverse complement, for tracks of one strand; the other track must name this one.

The published list of DeepSEA's 919 tracks is supported in two layouts. One is Supplementary Table 2 of Zhou &
Troyanskaya (2015) saved as text: `Cell Type`, `TF/DNase/HistoneMark`, `Treatment`, `File accession`, `AUC`,
`AUPRC`, `AUPRC Baseline`, with decimal commas. The other has `index class cell target treatment file url
auc_deepsea`. Both have one row per track in the order of the labels, and no names: the name of a track is
`cell|target|treatment`.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bigbird_dna.disk.compression import control_character
from bigbird_dna.disk.tables import open_lines
from bigbird_dna.errors import ConfigError, DataError, shortened
from bigbird_dna.genome.chromatin.track import TSS_TRACKS, Track, exchanged
from bigbird_dna.genome.fields import check_name, quoted, write_rows
from bigbird_dna.genome.sequence import Locus

_GROUPS = {"DNase": "DHS", "TF": "TF", "Histone": "HM"}
_INDEXED = {"index", "class", "cell", "target", "treatment", "auc_deepsea"}
_SUPPLEMENT = {
    "Cell Type": "cell",
    "TF/DNase/HistoneMark": "target",
    "Treatment": "treatment",
    "File accession": "file",
    "AUC": "published_auroc",
}
# The supplement's other metrics, on the same test bins; the baseline is the fraction of positives.
_FIGURES = {"AUPRC": "published_auprc", "AUPRC Baseline": "published_prevalence"}
_RENAMED = {"auc_deepsea": "published_auroc", **_SUPPLEMENT, **_FIGURES}
# Histone marks have names such as H3K27ac or H2AZ; no transcription factor of the list does.
_MARK = re.compile(r"H(2A|2B|3|4)(K\d+(ac|me[123])|Z)")


def _from_deepsea(
    row: dict[str, str], expected: int, where: str, indexed: bool
) -> dict[str, str]:
    """Convert a row of DeepSEA's list to columns of a table of tracks; `expected` is its index, from 0."""
    values = {_RENAMED.get(key, key): text for key, text in row.items()}
    target = values["target"]
    if indexed:
        if values.pop("index") != str(expected):
            raise DataError(
                f"{where}: expected index {expected}; labels are in the order of the rows"
            )
        kind = values.pop("class")
        if kind not in _GROUPS:
            raise DataError(
                f"{where}: class {kind!r} is not one of {', '.join(_GROUPS)}"
            )
    else:
        kind = (
            "DNase"
            if target == "DNase"
            else "Histone"
            if _MARK.fullmatch(target)
            else "TF"
        )
        for key in {"published_auroc", *_FIGURES.values()} & values.keys():
            values[key] = values[key].replace(",", ".")
    name = "|".join(values[key] for key in ("cell", "target", "treatment"))
    return {"track": name, "group": _GROUPS[kind], **values}


TEXTS = ("cell", "target", "treatment", "description", "opposite")


def read_tracks(path: Path, files: Path | None = None) -> tuple[Track, ...]:
    """Read a table of tracks in file order.

    Peak files are relative to `files`, by default to the table's directory."""
    path = Path(path)
    where, header, rows = open_lines(path, "#")
    if header == [""]:
        raise DataError(f"{path}: the file contains no table of tracks")
    columns = [name.strip() for name in header]
    if len(set(columns)) < len(columns) or "" in columns:
        raise DataError(f"{where}: empty or duplicate column names")
    indexed = set(columns) >= _INDEXED
    deepsea = "track" not in columns and (indexed or set(columns) >= _SUPPLEMENT.keys())
    for name in ("track", "group"):
        if not deepsea and name not in columns:
            raise DataError(
                f"{where}: no column {name!r} in the header ({shortened(', '.join(columns), 300)})"
            )
    directory = path.parent if files is None else Path(files)
    tracks: list[Track] = []
    places: dict[str, str] = {}
    for where, fields in rows:
        values = {key: text.strip() for key, text in zip(columns, fields, strict=True)}
        if deepsea:
            values = _from_deepsea(values, len(tracks), where, indexed)
        track = make_track(values, directory, where)
        if not deepsea and track.name in places:
            line = places[track.name].rpartition(": ")[2]
            raise DataError(f"{where}: duplicate track {track.name!r}, also in {line}")
        places[track.name] = where
        tracks.append(track)
    if not tracks:
        raise DataError(f"{path}: the table has no tracks")
    if deepsea:
        return distinct(tracks, "|")
    try:
        exchanged(tracks)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from None
    return tuple(tracks)


def tss_tracks(loci: Iterable[Locus], directory: Path) -> tuple[Track, ...]:
    """Return the tracks of start sites; those of each strand are written to a BED file in `directory`."""
    sites = list(loci)
    tracks = []
    for (strand, name), opposite in zip(
        TSS_TRACKS.items(), reversed(TSS_TRACKS.values()), strict=True
    ):
        own = [one for one in sites if one.strand == strand]
        write_rows(
            path := directory / f"{name}.bed",
            ((x.contig, x.position, x.position + 1) for x in own),
        )
        tracks.append(Track(name, "TSS", file=path, opposite=opposite))
    return tuple(tracks)


def write_tracks(
    path: Path,
    tracks: Sequence[Track],
    columns: Mapping[str, Sequence[object]] | None = None,
) -> None:
    """Write a table for `read_tracks`, atomically.

    Files are written relative to the table. Empty columns are omitted. A name or value that would break a
    line or column, or make the line a comment, is a `DataError`. `columns` are added at the end, with one
    value per track; they replace columns of the same name.
    """
    path = Path(path)
    table: dict[str, list[str]] = {
        "track": [track.name for track in tracks],
        "group": [track.group for track in tracks],
    }
    table |= {name: [getattr(track, name) for track in tracks] for name in TEXTS}
    home = path.absolute().parent
    table["file"] = [
        "" if track.file is None else os.path.relpath(track.file.absolute(), home)
        for track in tracks
    ]
    table["published_auroc"] = [
        "" if track.published_auroc is None else repr(track.published_auroc)
        for track in tracks
    ]
    for name in dict.fromkeys(name for track in tracks for name in track.extra):
        table[name] = [track.extra.get(name, "") for track in tracks]
    for name, values in (columns or {}).items():
        table[name] = [str(value) for value in values]
    table = {k: v for k, v in table.items() if k in ("track", "group") or any(v)}
    rows = [tuple(table), *zip(*table.values(), strict=True)]
    for row in rows:
        check_name(row[0], "track", str(path))
        for text in row:
            if found := control_character(text):
                raise DataError(
                    f"{path}: track {quoted(row[0])}: {quoted(text)} contains a control character ({found})"
                )
    write_rows(path, rows)


def make_track(values: dict[str, str], directory: Path, where: str) -> Track:
    """Return a track from the columns of its row; `where` names the row in errors."""
    name, group = values.pop("track"), values.pop("group")
    if not name or "," in name:
        raise DataError(
            f"{where}: track {quoted(name)}: the name must not be empty or contain a comma"
        )
    if not group or "," in group:
        raise DataError(
            f"{where}: track {quoted(name)}: group {quoted(group)} is empty or contains a comma"
        )
    check_name(name, "track", where)
    for key, text in {"group": group, **values}.items():
        if found := control_character(text):
            raise DataError(
                f"{where}: {key} {quoted(text)} contains a control character ({found})"
            )
    file, figure = values.pop("file", ""), values.pop("published_auroc", "")
    texts = {key: values.pop(key, "") for key in TEXTS}
    auroc = None
    if figure and not figure.startswith("NA"):
        try:
            auroc = float(figure)
        except ValueError:
            auroc = -1.0
        if not 0 <= auroc <= 1:
            raise DataError(
                f"{where}: published AUROC {quoted(figure)} must be a number from 0 to 1"
            )
    return Track(
        name,
        group,
        file=directory / file if file else None,
        published_auroc=auroc,
        extra=values,
        **texts,
    )


def distinct(tracks: Sequence[Track], mark: str) -> tuple[Track, ...]:
    """Return the tracks with unique names: the second of the same name becomes NAME`mark`2 and so on."""
    taken = {track.name for track in tracks}
    seen: Counter[str] = Counter()
    result = []
    for track in tracks:
        seen[track.name] += 1
        name = track.name
        if seen[name] > 1:
            name = f"{name}{mark}{seen[name]}"
            if name in taken:
                raise DataError(
                    f"two tracks would have the name {name!r}; rename one of them"
                )
        result.append(replace(track, name=name))
    return tuple(result)


_PEAK_FILE = re.compile(
    r"(?!\.)(.+)\.(narrowPeak|broadPeak|bed)(\.gz)?", re.IGNORECASE | re.DOTALL
)


def tracks_from_folder(
    folder: Path, group: str, names: str | None = None
) -> tuple[Track, ...]:
    """Return the tracks of the peak files (`.bed`, `.narrowPeak`, `.broadPeak`, also `.gz`) of a folder.

    Tracks are sorted by file name. A track's name is its file's name without suffixes; a name of the form
    `cell.target` also specifies both. `names` is a regular expression for this name, with any of the named
    groups `track`, `cell`, `target` and `treatment`. Without `track`, the other groups joined by "." are the
    name. Repeated names get the suffixes .2, .3 …
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such directory")
    try:
        scheme = re.compile(
            r"(?P<cell>[^.]+)\.(?P<target>[^.]+)" if names is None else names
        )
    except re.error as error:
        raise ConfigError(
            f"names {names!r} is not a regular expression: {error}"
        ) from None
    if not scheme.groupindex.keys() & {"track", "cell", "target", "treatment"}:
        raise ConfigError(
            f"names {names!r} needs a group named track, cell, target or treatment"
        )
    tracks = []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        peak_file = _PEAK_FILE.fullmatch(path.name)
        if peak_file is None or not path.is_file():
            continue
        stem = peak_file[1]
        match = scheme.fullmatch(stem)
        if match is None and names is not None:
            raise DataError(
                f"{folder}: file {quoted(path.name)}: its name does not match {names!r}"
            )
        parts = (
            {key: text for key, text in match.groupdict().items() if text}
            if match
            else {}
        )
        fallback = ".".join(
            parts[k] for k in ("cell", "target", "treatment") if k in parts
        )
        values = {
            **parts,
            "track": parts.get("track", fallback or stem),
            "group": group,
        }
        tracks.append(
            replace(
                make_track(values, folder, f"{folder}: file {quoted(path.name)}"),
                file=path,
            )
        )
    if not tracks:
        raise DataError(
            f"{folder}: the folder contains no .bed, .narrowPeak or .broadPeak file (or .gz)"
        )
    return distinct(tracks, ".")
