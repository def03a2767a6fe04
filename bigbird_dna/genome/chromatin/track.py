"""A track: one assay that a chromatin model predicts."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bigbird_dna.errors import UsageError, meant


@dataclass(frozen=True)
class Track:
    """One assay: its unique name, its group and the other columns of its table."""

    name: str
    group: str
    cell: str = ""
    target: str = ""
    treatment: str = ""
    file: Path | None = None  # file of its peaks
    description: str = ""
    opposite: str = ""  # track of the other strand; "": peaks have no strand
    published_auroc: float | None = None


def exchanged(tracks: Sequence[Track]) -> list[int] | None:
    """Return the index of each track on the reverse complement; None: all tracks keep their place.

    `ValueError` if the opposite of a track is missing, or has another opposite.
    """
    numbers = {track.name: number for number, track in enumerate(tracks)}
    opposites = {track.name: track.opposite for track in tracks}
    for track in tracks:
        if track.opposite and opposites.get(track.opposite) != track.name:
            raise ValueError(
                f"track {track.name!r} has the opposite {track.opposite!r}, which is not a track with the "
                f"opposite {track.name!r}"
            )

    order = [numbers[track.opposite or track.name] for track in tracks]
    return None if order == list(range(len(order))) else order


def select_tracks(tracks: Sequence[Track], pattern: str) -> tuple[Track, ...]:
    """Return the tracks that match a comma-separated list of names, groups or shell patterns, in their order.

    Case is ignored. An element without a match is a `UsageError` that suggests similar names and groups.
    """
    chosen: set[str] = set()
    elements = [element.strip() for element in pattern.split(",") if element.strip()]
    if not elements:
        raise UsageError(f"tracks {pattern!r}: the list is empty")

    for element in elements:
        text = element.casefold()
        by_name, by_group, by_pattern = set(), set(), set()
        for track in tracks:
            name, group = track.name.casefold(), track.group.casefold()
            if name == text:
                by_name.add(track.name)

            if group == text:
                by_group.add(track.name)

            if fnmatchcase(name, text) or fnmatchcase(group, text):
                by_pattern.add(track.name)

        # Names take precedence over groups, and groups over patterns.
        found = by_name or by_group or by_pattern
        if not found:
            known = [track.name for track in tracks]
            groups = ", ".join(sorted({track.group for track in tracks}))
            raise UsageError(
                f"tracks: {element!r} is not a track, group or pattern{meant(element, known)}; groups are {groups}"
            )

        chosen |= found

    return tuple(track for track in tracks if track.name in chosen)
