"""Tables of tracks from folders of peak files."""

import re
from dataclasses import replace
from pathlib import Path

from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.genome.chromatin.tracks import Track, distinct, make_track
from bigbird_dna.genome.fields import quoted

_PEAK_FILE = re.compile(r"(?!\.)(.+)\.(narrowPeak|broadPeak|bed)(\.gz)?", re.IGNORECASE | re.DOTALL)


def tracks_from_folder(folder: Path, group: str, names: str | None = None) -> tuple[Track, ...]:
    """A table of the peak files (`.bed`, `.narrowPeak`, `.broadPeak`, also `.gz`) of a folder.

    Tracks come in the order of their files' names. A track is called as its file is, without the
    suffixes; of the form `cell.target` both are taken from it.

    Parameters
    ----------
    names
        A regular expression for the whole of the file's name without suffixes, with any of the
        named groups `track`, `cell`, `target` and `treatment`; without `track`, the others joined
        by "." are the name. Repeated names get the suffixes .2, .3 …

    Raises
    ------
    DataError
        No such folder, no peak file in it, or one that `names` doesn't fit.
    ConfigError
        `names` is not a regular expression, or has none of the groups.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such directory")
    scheme = _scheme(names)
    tracks = []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        peak_file = _PEAK_FILE.fullmatch(path.name)
        if peak_file is None or not path.is_file():
            continue
        stem = peak_file[1]
        match = scheme.fullmatch(stem)
        if match is None and names is not None:
            raise DataError(f"{folder}: file {quoted(path.name)}: its name doesn't fit {names!r}")
        parts = {key: text for key, text in match.groupdict().items() if text} if match else {}
        fallback = ".".join(parts[k] for k in ("cell", "target", "treatment") if k in parts)
        values = {**parts, "track": parts.get("track", fallback or stem), "group": group}
        tracks.append(replace(make_track(values, folder, f"{folder}: file {quoted(path.name)}"), file=path))
    if not tracks:
        raise DataError(f"{folder}: no .bed, .narrowPeak or .broadPeak file (also .gz) in it")
    return distinct(tracks, ".")


def _scheme(names: str | None) -> re.Pattern[str]:
    if names is None:
        return re.compile(r"(?P<cell>[^.]+)\.(?P<target>[^.]+)")
    try:
        scheme = re.compile(names)
    except re.error as error:
        raise ConfigError(f"names {names!r} is not a regular expression: {error}") from None
    if not scheme.groupindex.keys() & {"track", "cell", "target", "treatment"}:
        raise ConfigError(f"names {names!r} has no group called track, cell, target or treatment")
    return scheme
