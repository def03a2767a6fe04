"""The tables of a track report: one row a track, one row a group, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from bigbird_dna.reporting.tracks.judging import Judged

if TYPE_CHECKING:
    import pandas as pd

# The row of `groups.tsv` over all groups, written where there are several.
ALL = "all"
PUBLISHED = "published"


class ReportTrack(Protocol):
    """What a report says of a track beside its figures; rows of a table of tracks fit."""

    @property
    def name(self) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def cell(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def treatment(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def published_auroc(self) -> float | None: ...


class PlainTrack(NamedTuple):
    """A track of which no more than the name is known."""

    name: str
    group: str = ALL
    cell: str = ""
    target: str = ""
    treatment: str = ""
    description: str = ""
    published_auroc: float | None = None


def tracks_table(
    tracks: Sequence[ReportTrack],
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

    counted = [j.defined and j.positives >= min_positives for j in judged]
    columns: dict[str, Any] = {
        "track": [track.name for track in tracks],
        "group": [track.group for track in tracks],
        "positives": [j.positives for j in judged],
        "negatives": [j.negatives for j in judged],
        "auroc": [j.auroc.value for j in judged],
        "auroc_low": [j.auroc.low for j in judged],
        "auroc_high": [j.auroc.high for j in judged],
        "auprc": [j.auprc for j in judged],
        "note": [_note(j, min_positives) for j in judged],
        "prevalence": [j.prevalence for j in judged],
        "counted": counted,
    }
    area = np.array(columns["auroc"], np.float64)
    if published is not None:
        columns["published_auroc"] = np.array(published, np.float64)
        columns["delta_published"] = area - columns["published_auroc"]
    for name in compare:
        theirs = [j.compared.get(name) for j in judged]
        for key, values in {
            f"auroc_{name}": [t.auroc.value if t else np.nan for t in theirs],
            f"auprc_{name}": [t.auprc if t else np.nan for t in theirs],
            f"delta_{name}": [t.lead.value if t else np.nan for t in theirs],
            f"delta_{name}_low": [t.lead.low if t else np.nan for t in theirs],
            f"delta_{name}_high": [t.lead.high if t else np.nan for t in theirs],
        }.items():
            columns[key] = values
    return pd.DataFrame(columns)


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


def _note(judged: Judged, min_positives: int) -> str:
    few = judged.defined and judged.positives < min_positives
    notes = [judged.note, f"fewer than {min_positives} positives: not in the group's figures"]
    return "; ".join(note for note, said in zip(notes, (judged.note, few), strict=True) if said)
