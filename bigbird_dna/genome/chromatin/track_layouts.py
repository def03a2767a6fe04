"""DeepSEA's list of 919 tracks, in the two layouts that go round, with the published AUROCs.

One is Supplementary Table 2 of Zhou & Troyanskaya (2015) saved as text: `Cell Type`,
`TF/DNase/HistoneMark`, `Treatment`, `File accession`, `AUC`, `AUPRC`, `AUPRC Baseline`, with decimal
commas. The other has `index class cell target treatment file url auc_deepsea`. Both have a row a
track in the order of the labels, and no names: a track is called `cell|target|treatment`.
"""

import re
from collections.abc import Callable, Sequence

from bigbird_dna.errors import DataError

Layout = Callable[[dict[str, str], int, str], dict[str, str]]
"""A row's columns, its number from 0 and what an error calls it → the columns of a table of tracks."""

_GROUPS = {"DNase": "DHS", "TF": "TF", "Histone": "HM"}
_INDEXED = {"index", "class", "cell", "target", "treatment", "auc_deepsea"}
_SUPPLEMENT = {
    "Cell Type": "cell",
    "TF/DNase/HistoneMark": "target",
    "Treatment": "treatment",
    "File accession": "file",
    "AUC": "published_auroc",
}
# The supplement's other figures, on the same test bins; the baseline is the share of positives.
_FIGURES = {"AUPRC": "published_auprc", "AUPRC Baseline": "published_prevalence"}
# A mark is named as H3K27ac is, or H2AZ; no factor of the list is.
_MARK = re.compile(r"H(2A|2B|3|4)(K\d+(ac|me[123])|Z)")


def deepsea_layout(columns: Sequence[str]) -> Layout | None:
    """How the rows of a table with these columns are read; None: it isn't DeepSEA's list."""
    if "track" in columns:
        return None
    if set(columns) >= _INDEXED:
        return _from_indexed
    if set(columns) >= _SUPPLEMENT.keys():
        return _from_supplement
    return None


def _from_indexed(values: dict[str, str], expected: int, where: str) -> dict[str, str]:
    if values.pop("index") != str(expected):
        raise DataError(f"{where}: index {expected} was to stand here: labels go by the row")
    kind = values.pop("class")
    if kind not in _GROUPS:
        raise DataError(f"{where}: class {kind!r} is not one of {', '.join(_GROUPS)}")
    values["published_auroc"] = values.pop("auc_deepsea")
    return {"track": _name(values), "group": _GROUPS[kind], **values}


def _from_supplement(values: dict[str, str], expected: int, where: str) -> dict[str, str]:
    values = {(_SUPPLEMENT | _FIGURES).get(key, key): text for key, text in values.items()}
    for key in ("published_auroc", *_FIGURES.values()):
        if key in values:
            values[key] = values[key].replace(",", ".")
    target = values["target"]
    kind = "DNase" if target == "DNase" else "Histone" if _MARK.fullmatch(target) else "TF"
    return {"track": _name(values), "group": _GROUPS[kind], **values}


def _name(values: dict[str, str]) -> str:
    return "|".join(values[key] for key in ("cell", "target", "treatment"))
