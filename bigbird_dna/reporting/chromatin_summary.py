"""Chromatin tracks and variants in the summary of a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbird_dna.errors import DataError
from bigbird_dna.reporting.summary import Row
from bigbird_dna.reporting.variants.table import ALL, COLUMNS, HELD_OUT

if TYPE_CHECKING:
    import pandas as pd

# Columns that are read; those of the predictors compared with come on top.
GROUP_COLUMNS = ["group", "tracks", "median_auroc"]
TRACK_COLUMNS = ["track", "auroc", "note"]
VARIANT_COLUMNS = COLUMNS
NAMES = {"kmers": "k-mer regression"}
PUBLISHED = "published"  # figures of others, on other data: no lead over them is listed
LISTED = 3  # tracks with the largest lead

_MEDIAN = "median_auroc_"
_LEAD = "delta_"


def group_rows(table: pd.DataFrame, source: Path) -> list[Row]:
    """Median AUROC of each group of `groups.tsv`: the model's, and that of whatever it was compared with."""
    others = [name.removeprefix(_MEDIAN) for name in table.columns if name.startswith(_MEDIAN)]
    rows = []
    for line in table.to_dict("records"):
        section = f"chromatin, {line['group']}"
        count = _number(line, "tracks", source)
        note = f"{count:,.0f} {'track' if count == 1 else 'tracks'}"
        value = _number(line, "median_auroc", source)
        rows.append(Row(section, "median AUROC, model", value, note=note))
        for name in others if count else []:
            value = _number(line, f"{_MEDIAN}{name}", source)
            rows.append(Row(section, f"median AUROC, {_shown(name)}", value))
    return rows


def lead_rows(table: pd.DataFrame, source: Path) -> list[Row]:
    """The tracks of `tracks.tsv` with the largest lead in AUROC over the first predictor compared with.

    With two windows that is the narrow one: these tracks depend most on what only the wide one sees. Being
    the largest of many, the leads are a little too large. Tracks that don't count in their group's
    figures are left out.
    """
    leads = [
        name
        for name in table.columns
        if name.startswith(_LEAD) and not name.endswith(("_low", "_high"))
    ]
    name = next((n.removeprefix(_LEAD) for n in leads if n != f"{_LEAD}{PUBLISHED}"), None)
    if name is None:
        return []
    lead, other = f"{_LEAD}{name}", f"auroc_{name}"
    for column in (f"{lead}_low", f"{lead}_high", other):
        if column not in table.columns:
            raise DataError(f"{source}: no column {column!r}")
    found = []
    for line in table.to_dict("records"):
        value, low, high = (
            _number(line, key, source) for key in (lead, f"{lead}_low", f"{lead}_high")
        )
        if not math.isnan(value) and "not in the group's figures" not in str(line["note"]):
            ours, theirs = (_number(line, key, source) for key in ("auroc", other))
            note = f"{ours:.4f} against {theirs:.4f}"
            section = f"chromatin, AUROC above {_shown(name)}"
            found.append(Row(section, str(line["track"]), value, low, high, note))
    return sorted(found, key=lambda row: -row.value)[:LISTED]


def variant_rows(table: pd.DataFrame, source: Path) -> list[Row]:
    """AUROC and right signs of `variants.tsv`: of all variants, and of those on held-out contigs."""
    rows = []
    for line in table.to_dict("records"):
        if line["subset"] not in (ALL, HELD_OUT):
            continue
        value, low, high = (
            _number(line, key, source) for key in ("auroc", "auroc_low", "auroc_high")
        )
        variants, effects = (_number(line, key, source) for key in ("variants", "with_effect"))
        note = f"{variants:,.0f} variants, {effects:,.0f} with an effect"
        rows.append(Row("variants", f"AUROC, {line['subset']}", value, low, high, note))
        right = _number(line, "right_sign", source)
        if not math.isnan(right):
            rows.append(Row("variants", f"right sign, {line['subset']}", right, note="share"))
    return rows


def _shown(name: str) -> str:
    return NAMES.get(name, name.replace("_", " "))


def _number(line: dict[Any, Any], name: str, source: Path) -> float:
    """A cell that is a number or empty (NaN)."""
    try:
        return float(line[name])
    except ValueError:
        raise DataError(f"{source}: {name} {line[name]!r} is no number") from None
