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
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.metrics.auroc import Counts
from bigbird_dna.reporting.pages import render_page, resource
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
FACTS = ("cell", "target", "treatment", "description")


def track_page(
    tracks: Sequence[Track],
    table: pd.DataFrame,
    groups: pd.DataFrame,
    curves: Sequence[Counts | None],
    others: Sequence[str],
    **values: Any,
) -> str:
    """Return the page as HTML; tables as made by `tracks_table` and `groups_table`.

    `others` are the compared predictors, possibly with `PUBLISHED`. `values` are further values of the
    template: `rows`, `blocks` (number of blocks of the genome that the rows are in, 0 if unknown),
    `sources` (role, name, size and checksum of the input files), `command`, `version`, `min_positives`,
    `calibration` (a sentence) and `picture` (its plot as a data URI).
    """
    group_numbers = {
        group: number for number, group in enumerate(table["group"].unique())
    }
    facts = []
    for fact in FACTS:
        cells = [(getattr(track, fact), track.name) for track in tracks]
        if any(cell and cell not in name for cell, name in cells):
            facts.append(fact)
    excluded = table[~table["counted"]].groupby("note", sort=False)["track"].agg(list)
    return render_page(
        "track_page.html",
        style="track_page.css",
        title="AUROC by track",
        script=resource("sortable_table.js") + resource("track_page.js"),
        filters={"decimal": decimal, "signed": signed, "breakable": breakable},
        tracks=tracks,
        group_numbers=group_numbers,
        others=others,
        facts=facts,
        data=_data(table, group_numbers, others, curves),
        notes=table["note"].any(),
        lines=json_rows(table),
        groups=json_rows(groups),
        counted=int(table["counted"].sum()),
        comparisons=[_comparison(table, name) for name in others],
        left_out=excluded.to_dict(),
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


def _comparison(table: pd.DataFrame, name: str) -> dict[str, Any]:
    """Count the tracks with a higher AUROC than another predictor, among those with an AUROC of both.

    `above` and `below` count the tracks whose interval of the difference excludes zero; `without` have none.
    """
    delta = f"delta_{name}"
    tracks = table[table["counted"] & table[delta].notna()]
    counts = {
        "name": name,
        "tracks": len(tracks),
        "better": int((tracks[delta] > 0).sum()),
        "median": float(tracks[delta].median()) if len(tracks) else None,
    }
    if name != PUBLISHED:
        counts["above"] = int((tracks[f"{delta}_low"] > 0).sum())
        counts["below"] = int((tracks[f"{delta}_high"] < 0).sum())
        counts["without"] = int(tracks[f"{delta}_low"].isna().sum())
    return counts


def _data(
    table: pd.DataFrame,
    group_numbers: dict[str, int],
    others: Sequence[str],
    curves: Sequence[Counts | None],
) -> dict[str, Any]:
    """Return the data of the script.

    The curves shown initially (`chosen`) are, for each group, those of the track nearest the median; of a
    single group, also its best and its worst track.
    """
    areas = table["auroc"].where(table["counted"])
    chosen: list[Any] = []
    for group in [*group_numbers][:GROUP_COLORS]:
        of_group = areas[table["group"] == group].dropna()
        if len(of_group):
            chosen.append((of_group - of_group.median()).abs().idxmin())
    if len(chosen) == 1:
        chosen = [areas.idxmax(), *chosen, areas.idxmin()]

    def optional(column: str) -> list[float | None]:
        return [None if value != value else value for value in table[column].tolist()]

    # Differences between corners need fewer characters than coordinates.
    steps = [
        None if curve is None else np.diff(curve, axis=0, prepend=0).ravel().tolist()
        for curve in curves
    ]
    return {
        "groups": [*group_numbers],
        "name": table["track"].tolist(),
        "group": [group_numbers[group] for group in table["group"]],
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
        "curves": steps,
        "chosen": [int(row) for row in dict.fromkeys(chosen)],
        "groupColors": GROUP_COLORS,
        "curveColors": CURVE_COLORS,
        "maxStrips": MAX_STRIPS,
    }
