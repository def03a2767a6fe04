"""Members of a file that may hold several arrays: which one is meant, and the names of its tracks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bigbird_dna.errors import DataError

# Strings of this name, beside the values or an attribute of them, are the columns' names.
NAMES = "tracks"


def choose_array(path: Path, name: str, kind: str, found: Mapping[str, int]) -> str:
    """The array of a file that is meant: the named, that called as `kind`, or the only one."""
    listed = ", ".join(sorted(found)) or "none"
    if name:
        if name not in found:
            raise DataError(f"{path}: no array {name!r} of numbers (found: {listed})")
        return name
    for axes in (2, 1):  # one axis: one track
        flat = [key for key, count in found.items() if count == axes and key != NAMES]
        if kind in flat:
            return kind
        if len(flat) == 1:
            return flat[0]
        if flat:
            break
    raise DataError(
        f"{path}: {len(flat)} arrays of rows × tracks (found: {listed}); name one as {path}::NAME"
    )


def track_names(path: str, values: Any, tracks: int) -> tuple[str, ...] | None:
    """Names of tracks as text; anything that isn't a list of text counts as none."""
    if values is None:
        return None
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "SUOT":
        return None
    try:
        names = tuple(v.decode() if isinstance(v, bytes) else str(v) for v in array.tolist())
    except UnicodeDecodeError:
        raise DataError(f"{path}: the name of a track is not UTF-8") from None
    if len(names) != tracks:
        raise DataError(f"{path}: {len(names)} names of tracks beside {tracks} columns")
    return names
