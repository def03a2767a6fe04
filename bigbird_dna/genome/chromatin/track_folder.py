"""Tables of tracks from folders of peak files."""

import re
from dataclasses import replace
from pathlib import Path

from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.genome.chromatin.tracks import Track, distinct, make_track

_PEAK_SUFFIXES = (".narrowpeak", ".broadpeak", ".bed")


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
        `names` is no regular expression, or has none of the groups.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such directory")
    scheme = _scheme(names)
    tracks = []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        stem = _stem(path.name)
        if stem is None or not path.is_file():
            continue
        match = scheme.fullmatch(stem)
        if match is None:
            if names is not None:
                raise DataError(f"{path}: its name doesn't fit {names!r}")
            parts: dict[str, str] = {}
        else:
            parts = {key: text for key, text in match.groupdict().items() if text}
        fallback = ".".join(parts[k] for k in ("cell", "target", "treatment") if k in parts)
        values = {**parts, "track": parts.get("track", fallback or stem), "group": group}
        tracks.append(replace(make_track(values, folder, str(path)), file=path))
    if not tracks:
        raise DataError(f"{folder}: no .bed, .narrowPeak or .broadPeak file (also .gz) in it")
    return distinct(tracks, ".")


def _stem(name: str) -> str | None:
    """The name of a peak file without its suffixes; `None` for other files."""
    plain = name[:-3] if name.lower().endswith(".gz") else name
    for suffix in _PEAK_SUFFIXES:
        if plain.lower().endswith(suffix) and len(plain) > len(suffix):
            return None if name.startswith(".") else plain[: -len(suffix)]
    return None


def _scheme(names: str | None) -> re.Pattern[str]:
    if names is None:
        return re.compile(r"(?P<cell>[^.]+)\.(?P<target>[^.]+)")
    try:
        scheme = re.compile(names)
    except re.error as error:
        raise ConfigError(f"names {names!r} is no regular expression: {error}") from None
    if not scheme.groupindex.keys() & {"track", "cell", "target", "treatment"}:
        raise ConfigError(f"names {names!r} has no group called track, cell, target or treatment")
    return scheme
