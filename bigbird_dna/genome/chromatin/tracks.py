"""Read and write tables of tracks: the assays that a chromatin model predicts, one per track.

A table is tab-separated with a header. `track` (a name) and `group` are required. `cell`, `target`,
`treatment`, `file` (relative to the table), `description`, `opposite` and `published_auroc` are optional;
other columns are ignored. Lines that begin with `#` are comments. `opposite` names the track that this one
becomes on the reverse complement, for tracks of one strand; the other track must name this one.

The published list of DeepSEA's 919 tracks is read too: Supplementary Table 2 of Zhou & Troyanskaya (2015)
saved as text, with the columns `_SUPPLEMENT` and decimal commas. It has one row per track in the order of the
labels, and no names: the name of a track is `cell|target|treatment`.
"""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bigbird_dna.disk.compression import control_character
from bigbird_dna.disk.tables import open_lines
from bigbird_dna.errors import ConfigError, DataError, shortened
from bigbird_dna.genome.chromatin.track import Track, exchanged
from bigbird_dna.genome.fields import check_name, quoted, write_rows

_SUPPLEMENT = {
    "Cell Type": "cell",
    "TF/DNase/HistoneMark": "target",
    "Treatment": "treatment",
    "File accession": "file",
    "AUC": "published_auroc",
}
# Histone marks have names such as H3K27ac or H2AZ; no transcription factor of the list does.
_MARK = re.compile(r"H(2A|2B|3|4)(K\d+(ac|me[123])|Z)")
TEXTS = ("cell", "target", "treatment", "description", "opposite")


def read_tracks(path: Path) -> tuple[Track, ...]:
    """Read a table of tracks in file order; `DataError` names the line."""
    path = Path(path)
    where, header, rows = open_lines(path, "#")
    columns = [name.strip() for name in header]
    is_deepsea = _SUPPLEMENT.keys() <= set(columns)
    for name in ("track", "group"):
        if not is_deepsea and name not in columns:
            raise DataError(
                f"{where}: no column {name!r} in the header ({shortened(', '.join(columns), 300)})"
            )

    tracks: list[Track] = []
    seen: dict[str, str] = {}
    for where, fields in rows:
        values = {key: text.strip() for key, text in zip(columns, fields, strict=True)}
        if is_deepsea:
            values = {new: values[name] for name, new in _SUPPLEMENT.items()}
            target = values["target"]
            values["group"] = "HM" if _MARK.fullmatch(target) else "TF"
            if target == "DNase":
                values["group"] = "DHS"

            values["track"] = f"{values['cell']}|{target}|{values['treatment']}"
            values["published_auroc"] = values["published_auroc"].replace(",", ".")

        track = make_track(values, path.parent, where)
        if not is_deepsea and track.name in seen:
            line = seen[track.name].rpartition(": ")[2]
            raise DataError(f"{where}: duplicate track {track.name!r}, also in {line}")

        seen[track.name] = where
        tracks.append(track)

    if not tracks:
        raise DataError(f"{path}: the table has no tracks")

    if is_deepsea:
        return distinct(tracks, "|")

    try:
        exchanged(tracks)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from None

    return tuple(tracks)


def make_track(values: Mapping[str, str], directory: Path, where: str) -> Track:
    """Return a track from the columns of its row; `where` names the row in errors."""
    name, group = values["track"], values["group"]
    for what, text in (("name", name), ("group", group)):
        if not text or "," in text:
            raise DataError(
                f"{where}: track {quoted(name)}: {what} {quoted(text)} is empty or contains a comma"
            )

    check_name(name, "track", where)
    texts = {key: values.get(key, "") for key in TEXTS}
    for key, text in {"group": group, **texts}.items():
        if found := control_character(text):
            raise DataError(
                f"{where}: {key} {quoted(text)} contains a control character ({found})"
            )

    auroc = None
    figure = values.get("published_auroc", "")
    if figure and not figure.startswith("NA"):
        try:
            auroc = float(figure)
        except ValueError:
            auroc = -1.0

        if not 0 <= auroc <= 1:
            raise DataError(
                f"{where}: published AUROC {quoted(figure)} must be a number from 0 to 1"
            )

    file = directory / values["file"] if values.get("file") else None
    return Track(name, group, file=file, published_auroc=auroc, **texts)


def write_tracks(
    path: Path,
    tracks: Sequence[Track],
    columns: Mapping[str, Sequence[object]] | None = None,
) -> None:
    """Write a table for `read_tracks`, atomically.

    Files are written relative to the table. Empty columns are omitted. `columns` are added at the end, with
    one value per track.
    """
    path = Path(path)
    table: dict[str, Sequence[object]] = {
        "track": [track.name for track in tracks],
        "group": [track.group for track in tracks],
    }
    for name in TEXTS:
        table[name] = [getattr(track, name) for track in tracks]

    home = path.absolute().parent
    table["file"] = [
        "" if track.file is None else os.path.relpath(track.file.absolute(), home)
        for track in tracks
    ]
    table["published_auroc"] = [
        "" if track.published_auroc is None else repr(track.published_auroc)
        for track in tracks
    ]
    table = {name: values for name, values in table.items() if any(values)}
    table |= columns or {}
    write_rows(path, [tuple(table), *zip(*table.values(), strict=True)])


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
        scheme = re.compile(names or r"(?P<cell>[^.]+)\.(?P<target>[^.]+)")
    except re.error as error:
        raise ConfigError(
            f"names {names!r} is not a regular expression: {error}"
        ) from None

    if not scheme.groupindex.keys() & {"track", "cell", "target", "treatment"}:
        raise ConfigError(
            f"names {names!r} needs a group named track, cell, target or treatment"
        )

    peak_file = re.compile(
        r"([^.].*)\.(narrowPeak|broadPeak|bed)(\.gz)?", re.IGNORECASE
    )
    tracks = []
    for path in sorted(folder.iterdir()):
        suffixed = peak_file.fullmatch(path.name)
        if suffixed is None or not path.is_file():
            continue

        where = f"{folder}: file {quoted(path.name)}"
        match = scheme.fullmatch(suffixed[1])
        if match is None and names is not None:
            raise DataError(f"{where}: its name does not match {names!r}")

        values = {}
        if match is not None:
            values = {key: text for key, text in match.groupdict().items() if text}

        found = [
            values[key] for key in ("cell", "target", "treatment") if key in values
        ]
        values.setdefault("track", ".".join(found) or suffixed[1])
        values |= {"group": group, "file": path.name}
        tracks.append(make_track(values, folder, where))

    if not tracks:
        raise DataError(
            f"{folder}: the folder contains no .bed, .narrowPeak or .broadPeak file (or .gz)"
        )

    return distinct(tracks, ".")


def distinct(tracks: Sequence[Track], mark: str) -> tuple[Track, ...]:
    """Return the tracks with unique names: the second of the same name becomes NAME`mark`2 and so on."""
    seen: Counter[str] = Counter()
    unique = []
    for track in tracks:
        seen[track.name] += 1
        count = seen[track.name]
        name = f"{track.name}{mark}{count}" if count > 1 else track.name
        unique.append(replace(track, name=name))
    return tuple(unique)
