"""What the page of a track report shows, and what of it at first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigbird_dna.reporting.tracks.page.svg import COLOURS
from bigbird_dna.reporting.tracks.tables import PUBLISHED, ReportTrack

if TYPE_CHECKING:
    import pandas as pd


class Source(NamedTuple):
    """A file behind the report."""

    role: str
    name: str
    size: int
    sha256: str  # "" for an array in memory


@dataclass(frozen=True)
class Page:
    """What the page shows; tables as `tracks_table` and `groups_table` make them."""

    title: str
    tracks: Sequence[ReportTrack]
    table: pd.DataFrame
    groups: pd.DataFrame
    curves: Sequence[str]  # encoded
    rows: int
    compare: Sequence[str]
    sources: Sequence[Source]
    command: str
    version: str
    min_positives: int

    @property
    def group_names(self) -> list[str]:
        return list(dict.fromkeys(track.group for track in self.tracks))

    @property
    def others(self) -> list[str]:
        """What the AUROCs are compared with."""
        return [PUBLISHED] * ("published_auroc" in self.table) + list(self.compare)


def default_tracks(page: Page) -> list[int]:
    """Rows of the tracks whose curves are shown at first: in each group that nearest its median."""
    chosen: list[int] = []
    counted = page.table[page.table["counted"]]
    areas = counted["auroc"].to_numpy()
    rows = counted.index.to_numpy()
    for group in page.group_names[:COLOURS]:
        inside = (counted["group"] == group).to_numpy()
        if inside.any():
            nearest = np.abs(areas[inside] - np.median(areas[inside])).argmin()
            chosen.append(int(rows[inside][nearest]))
    if len(chosen) == 1:  # a single group: also its best and its worst
        chosen = [int(rows[areas.argmax()]), *chosen, int(rows[areas.argmin()])]
    return list(dict.fromkeys(chosen))
