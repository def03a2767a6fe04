"""The page of `auc-report`: one HTML file that needs no network; its tables also work without scripts.

The script of the page draws the plots from embedded data. All user input is escaped, and the page's content
security policy blocks other scripts and all network requests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
    other_auroc,
)

if TYPE_CHECKING:
    from markupsafe import Markup

# Numbers of colors in the style sheet, for groups and for curves (curves also differ in their dashes).
GROUP_COLORS, CURVE_COLORS = 6, 8
MAX_STRIPS = 24  # most groups in a distribution plot; more would fill several screens
LONG_LIST = 60  # tracks; longer lists are collapsed
FACT_WIDTHS = {"cell": 8.0, "target": 8.0, "treatment": 8.0, "description": 14.0}  # rem


def track_page(
    tracks: Sequence[Track],
    table: pd.DataFrame,
    groups: pd.DataFrame,
    curves: Sequence[Counts | None],
    compare: Sequence[str],
    **values: Any,
) -> str:
    """Return the page as HTML; tables as made by `tracks_table` and `groups_table`.

    `values` are further values of the template: `title`, `rows`, `blocks` (number of blocks of the genome that
    the rows are in, 0 if unknown), `sources` (role, name, size and checksum of the input files), `command`,
    `version`, `min_positives`, `calibration` (a sentence) and `picture` (its plot as a data URI).
    """
    numbers = {
        name: number
        for number, name in enumerate(dict.fromkeys(track.group for track in tracks))
    }
    others = [PUBLISHED] * ("published_auroc" in table) + [*compare]
    facts = [
        fact
        for fact in FACT_WIDTHS
        if any(
            getattr(track, fact) and getattr(track, fact) not in track.name
            for track in tracks
        )
    ]
    excluded: dict[str, list[str]] = {}
    for name, note in table.loc[~table["counted"], ["track", "note"]].to_numpy():
        excluded.setdefault(note, []).append(name)
    return render_page(
        "track_page.html",
        style="track_page.css",
        filters={"decimal": decimal, "signed": signed, "breakable": breakable},
        **page_script("sortable_table.js", "track_page.js"),
        tracks=tracks,
        group_numbers=numbers,
        others=others,
        facts=facts,
        data=_data(table, tracks, numbers, others, curves),
        columns=_columns(table, len(numbers) > 1, facts, others),
        lines=json_rows(table),
        groups=json_rows(groups),
        counted=int(table["counted"].sum()),
        comparisons=[_comparison(table, name) for name in others],
        left_out=excluded,
        all_tracks=ALL,
        published=PUBLISHED,
        group_colors=GROUP_COLORS,
        max_strips=MAX_STRIPS,
        long_list=LONG_LIST,
        curve_error=200 / CURVE_POINTS,
        **values,
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


def _columns(
    table: pd.DataFrame, several: bool, facts: Sequence[str], others: Sequence[str]
) -> list[dict[str, Any]]:
    """Columns of the table of tracks; fixed widths (rem) keep sorting fast in browsers."""
    columns: list[dict[str, Any]] = []

    def add(heading: str, width: float, numeric: bool) -> None:
        columns.append({"heading": heading, "width": width, "numeric": numeric})

    add("Track", 13.0, False)
    if several:
        add("Group", 5.5, False)
    for fact in facts:
        add(fact.capitalize(), FACT_WIDTHS[fact], False)
    add("AUROC (95 % interval)", 10.0, True)
    add("AUPRC", 5.0, True)
    add("Positives", 6.5, True)
    add("Prevalence", 7.4, True)
    for name in others:
        add(f"AUROC, {name}", 6.5, True)
        add(f"Difference to {name}", 6.5 if name == PUBLISHED else 12.5, True)
    if any(table["note"]):
        add("Note", 12.0, False)
    return columns


def _comparison(table: pd.DataFrame, name: str) -> dict[str, Any]:
    """Count the tracks with a higher AUROC than another predictor, among those with an AUROC of both.

    `above` and `below` count the tracks whose interval of the difference excludes zero; `without` have none.
    """
    delta = f"delta_{name}"
    known = table[table["counted"] & table[delta].notna()]
    found = {
        "name": name,
        "tracks": len(known),
        "better": int((known[delta] > 0).sum()),
        "median": float(known[delta].median()) if len(known) else None,
    }
    if name != PUBLISHED:
        low, high = known[f"{delta}_low"], known[f"{delta}_high"]
        found["above"] = int((low > 0).sum())
        found["below"] = int((high < 0).sum())
        found["without"] = int(low.isna().sum())
    return found


def _data(
    table: pd.DataFrame,
    tracks: Sequence[Track],
    numbers: dict[str, int],
    others: Sequence[str],
    curves: Sequence[Counts | None],
) -> dict[str, Any]:
    """Return the data of the script.

    The curves shown initially (`chosen`) are, for each group, those of the track nearest the median.
    """
    chosen: list[int] = []
    areas = table["auroc"].to_numpy(np.float64)
    for group in [*numbers][:GROUP_COLORS]:
        rows = np.flatnonzero(table["counted"] & (table["group"] == group))
        if len(rows):
            distances = np.abs(areas[rows] - np.median(areas[rows]))
            chosen.append(int(rows[distances.argmin()]))
    if len(chosen) == 1:  # a single group: add its best and its worst track
        known = np.where(table["counted"], areas, np.nan)
        chosen = [int(np.nanargmax(known)), *chosen, int(np.nanargmin(known))]

    def optional(column: str) -> list[Any]:
        return [None if value != value else value for value in table[column].tolist()]

    return {
        "groups": [*numbers],
        "name": [track.name for track in tracks],
        "group": [numbers[track.group] for track in tracks],
        "counted": table["counted"].tolist(),
        "auroc": optional("auroc"),
        "auprc": optional("auprc"),
        "others": [
            {
                "name": name,
                "auroc": optional(other_auroc(name)),
                "delta": optional(f"delta_{name}"),
            }
            for name in others
        ],
        # Differences between corners need fewer characters than coordinates.
        "curves": [
            None
            if curve is None
            else np.diff(curve, axis=0, prepend=0).ravel().tolist()
            for curve in curves
        ],
        "chosen": list(dict.fromkeys(chosen)),
        "groupColors": GROUP_COLORS,
        "curveColors": CURVE_COLORS,
        "maxStrips": MAX_STRIPS,
    }
