"""The tables of a track report: one row a track, one row a group, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.metrics.auroc import UNDEFINED
from bigbird_dna.reporting.tracks.judging import Compared, Judged

if TYPE_CHECKING:
    import pandas as pd

# The row of `groups.tsv` over all groups, written where there are several.
ALL = "all"
PUBLISHED = "published"
_NOT_COMPARED = Compared(UNDEFINED, np.nan, UNDEFINED)


def tracks_table(
    tracks: Sequence[Track],
    judged: Sequence[Judged],
    compare: Sequence[str] = (),
    published: Sequence[float] | None = None,
    min_positives: int = 1,
) -> pd.DataFrame:
    """One row a track, in order; figures that are not defined are NaN, `note` says why.

    `delta_NAME` is the AUROC minus that of NAME (a predictor of `compare`, with DeLong's paired
    interval, or "published"). The column `counted` says whether a track takes part in its group's
    figures: both classes are there, and at least `min_positives` positives.
    """
    import pandas as pd

    rows = []
    for place, (track, j) in enumerate(zip(tracks, judged, strict=True)):
        few = j.defined and j.positives < min_positives
        notes = [j.note, f"fewer than {min_positives} positives: not in the group's figures" if few else ""]
        row: dict[str, Any] = {
            "track": track.name,
            "group": track.group,
            "positives": j.positives,
            "negatives": j.negatives,
            **j.auroc.columns("auroc"),
            "auprc": j.auprc,
            "note": "; ".join(filter(None, notes)),
            "prevalence": j.prevalence,
            "counted": j.defined and not few,
        }
        if published is not None:
            row["published_auroc"] = published[place]
            row["delta_published"] = j.auroc.value - published[place]
        for name in compare:
            other = j.compared.get(name, _NOT_COMPARED)
            row |= {f"auroc_{name}": other.auroc.value, f"auprc_{name}": other.auprc}
            row |= other.lead.columns(f"delta_{name}")
        rows.append(row)
    return pd.DataFrame(rows)


def groups_table(table: pd.DataFrame, compare: Sequence[str] = ()) -> pd.DataFrame:
    """Medians and means by group, in order of first appearance, over the counted tracks.

    Where there are several groups the last row, `all`, is over all tracks. A group none of whose
    tracks counts has 0 tracks and NaN.
    """
    import pandas as pd

    groups = list(dict.fromkeys(table["group"]))
    parts: list[tuple[str, pd.DataFrame]] = [(g, table[table["group"] == g]) for g in groups]
    if len(groups) > 1 and ALL not in groups:
        parts.append((ALL, table))
    others = ([PUBLISHED] if "published_auroc" in table else []) + list(compare)
    rows = []
    for group, part in parts:
        kept = part[part["counted"]]
        row = {
            "group": group,
            "tracks": len(kept),
            "median_auroc": kept["auroc"].median(),
            "mean_auroc": kept["auroc"].mean(),
            "median_auprc": kept["auprc"].median(),
            "mean_auprc": kept["auprc"].mean(),
            "left_out": len(part) - len(kept),
        }
        for name in others:
            row[f"median_auroc_{name}"] = kept[other_auroc(name)].median()
            row[f"median_delta_{name}"] = kept[f"delta_{name}"].median()
        rows.append(row)
    return pd.DataFrame(rows)


def other_auroc(name: str) -> str:
    """The column with the AUROC that a delta is to."""
    return "published_auroc" if name == PUBLISHED else f"auroc_{name}"


def left_out(table: pd.DataFrame) -> Mapping[str, list[str]]:
    """Names of the tracks that take no part in their group's figures, by the reason."""
    found: dict[str, list[str]] = {}
    for row in table[~table["counted"]].itertuples():
        found.setdefault(str(row.note), []).append(str(row.track))
    return found
