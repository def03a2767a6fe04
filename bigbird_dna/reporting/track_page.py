"""Page of a track report: one HTML file that needs no network; its tables also work without scripts.

The script of the page draws the plots from embedded data. All user input is escaped, and the page's content
security policy blocks other scripts and all network requests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bigbird_dna.disk.tables import json_rows
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.metrics.auroc import Counts
from bigbird_dna.reporting.pages import page_script, render_page
from bigbird_dna.reporting.track_evaluation import (
    ALL,
    CURVE_POINTS,
    PUBLISHED,
    excluded_tracks,
    other_auroc,
)

if TYPE_CHECKING:
    from markupsafe import Markup


# Numbers of colors in the style sheet, for groups and for curves (curves also differ in their dashes).
GROUP_COLORS, CURVE_COLORS = 6, 8
MAX_STRIPS = 24  # most groups in a distribution plot; more would fill several screens
LONG_LIST = 60  # tracks; longer lists are collapsed
_FACTS = {
    "cell": 8.0,
    "target": 8.0,
    "treatment": 8.0,
    "description": 14.0,
}  # column widths, rem


class SourceFile(NamedTuple):
    """An input file of the report."""

    role: str
    name: str
    size: int
    sha256: str  # "" for an array in memory


@dataclass(frozen=True)
class TrackPage:
    """Content of the page; tables as made by `tracks_table` and `groups_table`."""

    title: str
    tracks: Sequence[Track]
    table: pd.DataFrame
    groups: pd.DataFrame
    curves: Sequence[Counts | None]
    rows: int
    blocks: int  # blocks of the genome that the rows are in; 0 if unknown
    compare: Sequence[str]
    sources: Sequence[SourceFile]
    command: str
    version: str
    min_positives: int
    calibration: str = ""  # a sentence about the calibration plot
    picture: str = ""  # calibration plot as a data URI

    @property
    def group_numbers(self) -> dict[str, int]:
        """Groups, numbered in the order of their first tracks."""
        names = dict.fromkeys(track.group for track in self.tracks)
        return {name: number for number, name in enumerate(names)}

    @property
    def others(self) -> list[str]:
        """Predictors with which the AUROCs are compared."""
        return [PUBLISHED] * ("published_auroc" in self.table) + list(self.compare)

    @property
    def facts(self) -> list[str]:
        """Columns of the table of tracks that add information to the names of the tracks."""
        found = {
            fact
            for track in self.tracks
            for fact in _FACTS
            if getattr(track, fact) and getattr(track, fact) not in track.name
        }
        return [fact for fact in _FACTS if fact in found]


def report_page(page: TrackPage) -> str:
    """Return the page as HTML text."""
    return render_page(
        "track_page.html",
        style="track_page.css",
        filters={"decimal": decimal, "signed": signed, "breakable": breakable},
        page=page,
        **{name: getattr(page, name) for name in ("group_numbers", "others", "facts")},
        **page_script("sortable_table.js", "track_page.js"),
        data=_data(page),
        columns=_columns(page),
        lines=json_rows(page.table),
        groups=json_rows(page.groups),
        counted=int(page.table["counted"].sum()),
        comparisons=[_compared(page.table, name) for name in page.others],
        left_out=excluded_tracks(page.table),
        all_tracks=ALL,
        published=PUBLISHED,
        group_colors=GROUP_COLORS,
        max_strips=MAX_STRIPS,
        long_list=LONG_LIST,
        curve_error=200 / CURVE_POINTS,
    )


def decimal(value: float | None) -> str:
    """Format with three decimals; empty if undefined."""
    return "" if value is None else f"{value:.3f}"


def signed(value: float | None) -> str:
    """Format with a sign and three decimals (zero has no sign); empty if undefined."""
    text = "" if value is None else f"{value:+.3f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]


def breakable(name: str) -> Markup:
    """Return an escaped name with possible line breaks after its separators."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"(?<=[|._/:])(?=[^|._/:])", "<wbr>", str(escape(name))))


def _columns(page: TrackPage) -> list[dict[str, Any]]:
    """Columns of the table of tracks; fixed widths (rem) keep sorting fast in browsers."""
    texts = [("Group", 5.5)] * (len(page.group_numbers) > 1)
    texts += [(fact.capitalize(), _FACTS[fact]) for fact in page.facts]
    numbers = [
        ("AUROC (95 % interval)", 10.0),
        ("AUPRC", 5.0),
        ("Positives", 6.5),
        ("Prevalence", 7.4),
    ]
    for name in page.others:
        width = 6.5 if name == PUBLISHED else 12.5
        numbers += [(f"AUROC, {name}", 6.5), (f"Difference to {name}", width)]
    note = [("Note", 12.0)] * any(page.table["note"])
    kinds = ((("Track", 13.0), *texts), False), (numbers, True), (note, False)
    return [
        {"heading": heading, "width": width, "numeric": numeric}
        for group, numeric in kinds
        for heading, width in group
    ]


def _compared(table: pd.DataFrame, name: str) -> dict[str, Any]:
    """Count the tracks with a higher AUROC than another predictor, among those with an AUROC of both.

    `above` and `below` count the tracks whose interval of the difference excludes zero; `without` have none.
    """
    delta = f"delta_{name}"
    known = table[table["counted"] & table[delta].notna()]
    found = {
        "name": name,
        "tracks": len(known),
        "better": int((known[delta] > 0).sum()),
    }
    found["median"] = float(known[delta].median()) if len(known) else None
    if name != PUBLISHED:
        low, high = known[f"{delta}_low"], known[f"{delta}_high"]
        found |= {
            "above": (low > 0).sum(),
            "below": (high < 0).sum(),
            "without": low.isna().sum(),
        }
    return found


def _optional(column: pd.Series[Any]) -> list[Any]:
    return [None if value != value else value for value in column.tolist()]


def _data(page: TrackPage) -> dict[str, Any]:
    """Return the data of the script.

    The curves shown initially (`chosen`) are, for each group, those of the track nearest the median.
    """
    table = page.table
    chosen: list[int] = []
    counted = table[table["counted"]]
    areas, rows = counted["auroc"].to_numpy(), counted.index.to_numpy()
    for group in list(page.group_numbers)[:GROUP_COLORS]:
        inside = (counted["group"] == group).to_numpy()
        if inside.any():
            nearest = np.abs(areas[inside] - np.median(areas[inside])).argmin()
            chosen.append(int(rows[inside][nearest]))
    if len(chosen) == 1:  # a single group: add its best and its worst track
        chosen = [int(rows[areas.argmax()]), *chosen, int(rows[areas.argmin()])]
    return {
        "groups": list(page.group_numbers),
        "name": [track.name for track in page.tracks],
        "group": [page.group_numbers[track.group] for track in page.tracks],
        "counted": table["counted"].tolist(),
        "auroc": _optional(table["auroc"]),
        "auprc": _optional(table["auprc"]),
        "others": [
            {
                "name": name,
                "auroc": _optional(table[other_auroc(name)]),
                "delta": _optional(table[f"delta_{name}"]),
            }
            for name in page.others
        ],
        # Differences between corners need fewer characters than coordinates.
        "curves": [
            None
            if curve is None
            else np.diff(curve, axis=0, prepend=0).ravel().tolist()
            for curve in page.curves
        ],
        "chosen": list(dict.fromkeys(chosen)),
        "groupColors": GROUP_COLORS,
        "curveColors": CURVE_COLORS,
        "maxStrips": MAX_STRIPS,
    }
