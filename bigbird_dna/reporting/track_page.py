"""The page of a track report: one HTML file that needs no network, and whose tables need no script.

The page's script draws the figures from data in it. Everything that comes from a user is escaped, and the
page's own policy lets no other script run and no address be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bigbird_dna.disk.tables import json_rows
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.metrics.auroc import Counts
from bigbird_dna.reporting.track_evaluation import ALL, CURVE_POINTS, PUBLISHED, excluded_tracks, other_auroc

if TYPE_CHECKING:
    from markupsafe import Markup


# What the style sheet has: colors of groups, and of curves, which dashes tell apart too.
GROUP_COLORS, CURVE_COLORS = 6, 8
MAX_STRIPS = 24  # a figure of more groups than this would fill screens
LONG_LIST = 60  # tracks; a longer list is folded
_FACTS = {"cell": 8.0, "target": 8.0, "treatment": 8.0, "description": 14.0}  # columns' widths, rem


class SourceFile(NamedTuple):
    """A file behind the report."""

    role: str
    name: str
    size: int
    sha256: str  # "" for an array in memory


@dataclass(frozen=True)
class TrackPage:
    """What the page shows; tables as `tracks_table` and `groups_table` make them."""

    title: str
    tracks: Sequence[Track]
    table: pd.DataFrame
    groups: pd.DataFrame
    curves: Sequence[Counts | None]
    rows: int
    compare: Sequence[str]
    sources: Sequence[SourceFile]
    command: str
    version: str
    min_positives: int
    calibration: str = ""  # a sentence about the picture beside it
    picture: str = ""  # an image as an address of its own data

    @property
    def group_numbers(self) -> dict[str, int]:
        """The groups, counted in the order of their first tracks."""
        names = dict.fromkeys(track.group for track in self.tracks)
        return {name: number for number, name in enumerate(names)}

    @property
    def others(self) -> list[str]:
        """Predictors that the AUROCs are compared with."""
        return [PUBLISHED] * ("published_auroc" in self.table) + list(self.compare)

    @property
    def facts(self) -> list[str]:
        """Columns of the table of tracks that say more of some track than its name."""
        found = {
            fact
            for track in self.tracks
            for fact in _FACTS
            if getattr(track, fact) and getattr(track, fact) not in track.name
        }
        return [fact for fact in _FACTS if fact in found]


def resource(name: str) -> str:
    """A template, style sheet or script of a page."""
    return files("bigbird_dna.reporting").joinpath(name).read_text(encoding="utf-8")


def render_page(template: str, *, style: str, filters: Mapping[str, Any] | None = None, **values: Any) -> str:
    """An HTML page by its template: all `values` are escaped, and there must be one for each name."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= filters or {}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    sheets = Markup(resource("page.css") + resource(style))
    return environment.from_string(resource(template)).render(style=sheets, **values)


def report_page(page: TrackPage) -> str:
    """The page as HTML text."""
    from markupsafe import Markup

    script = resource("track_page.js")
    return render_page(
        "track_page.html",
        style="track_page.css",
        filters={"decimal": decimal, "signed": signed, "breakable": breakable},
        page=page,
        **{name: getattr(page, name) for name in ("group_numbers", "others", "facts")},
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=_data(page),
        columns=_columns(page),
        lines=json_rows(page.table),
        groups=json_rows(page.groups),
        counted=int(page.table["counted"].sum()),
        comparisons=[_compared(page.table, name) for name in page.others],
        left_out=excluded_tracks(page.table),
        all_tracks=ALL,
        published=PUBLISHED,
        group_colours=GROUP_COLORS,
        max_strips=MAX_STRIPS,
        long_list=LONG_LIST,
        curve_error=200 / CURVE_POINTS,
    )


def decimal(value: float | None) -> str:
    """Three digits; nothing for what is not defined."""
    return "" if value is None else f"{value:.3f}"


def signed(value: float | None) -> str:
    """Three digits with a sign, none before zero; nothing for what is not defined."""
    text = "" if value is None else f"{value:+.3f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]


def breakable(name: str) -> Markup:
    """An escaped name that lines may break in after its separators."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"(?<=[|._/:])(?=[^|._/:])", "<wbr>", str(escape(name))))


def _columns(page: TrackPage) -> list[dict[str, Any]]:
    """Of the table of tracks; widths (rem) are fixed, so that browsers need no cells for each sort."""
    texts = [("Group", 5.5)] * (len(page.group_numbers) > 1)
    texts += [(fact.capitalize(), _FACTS[fact]) for fact in page.facts]
    numbers = [("AUROC (95 % interval)", 10.0), ("AUPRC", 5.0), ("Positives", 6.5), ("Prevalence", 7.4)]
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
    """How many counted tracks are better than by another predictor, of those that it has an AUROC for.

    The interval of the difference lies above or below zero, or there is none.
    """
    delta = f"delta_{name}"
    known = table[table["counted"] & table[delta].notna()]
    found = {"name": name, "tracks": len(known), "better": int((known[delta] > 0).sum())}
    found["median"] = float(known[delta].median()) if len(known) else None
    if name != PUBLISHED:
        low, high = known[f"{delta}_low"], known[f"{delta}_high"]
        found |= {"above": (low > 0).sum(), "below": (high < 0).sum(), "without": low.isna().sum()}
    return found


def _optional(column: pd.Series[Any]) -> list[Any]:
    return [None if value != value else value for value in column.tolist()]


def _data(page: TrackPage) -> dict[str, Any]:
    """The data of the script.

    The curves shown at first (`chosen`) are in each group that of the track nearest its median.
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
    if len(chosen) == 1:  # a single group: also its best and its worst
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
        # Steps from corner to corner are shorter to write than corners.
        "curves": [
            None if curve is None else np.diff(curve, axis=0, prepend=0).ravel().tolist()
            for curve in page.curves
        ],
        "chosen": list(dict.fromkeys(chosen)),
        "groupColours": GROUP_COLORS,
        "curveColours": CURVE_COLORS,
        "maxStrips": MAX_STRIPS,
    }
