"""The main results of a run: metrics of the model in its summary, each with the best baseline."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.data.predictions import MODEL
from bigbird_dna.disk.tables import read_table
from bigbird_dna.reporting.summary import (
    MINUS,
    NO_BASELINES,
    SHUFFLED,
    SUMMARY,
    SummaryRow,
)

# Measures, with the sign of a better value.
_MEASURES = {"average precision": 1, "AUROC": 1, "bits per base": -1, "median AUROC": 1}
CALLS, CHANCE = "calls", "chance"
# Trainings on shuffled labels differ by about 0.1, more than the interval over test windows contains.
_NEAR = 0.15


class Headline(NamedTuple):
    """A metric of the model, or of the control, and of its best baseline."""

    model: SummaryRow
    measure: str
    baseline: str
    best: SummaryRow
    difference: SummaryRow  # model minus baseline

    @property
    def task(self) -> str:
        """The section in words."""
        subject, _, part = self.model.section.partition(", ")
        if subject == "promoters":
            part, _, stratum = part.partition(", ")
            return f"promoters against {part} negatives" + (
                f" ({stratum})" if stratum else ""
            )
        if subject == CALLS:
            return f"{subject} {part} of a TSS"
        subject = {"pretraining": "held-out sequence"}.get(subject, subject)
        return f"{subject} ({part})" if part else subject

    @property
    def verdict(self) -> str:
        """What the model is, by the interval of the difference; for a median, on how many tracks."""
        low, high = self.difference.low, self.difference.high
        if math.isnan(low):
            return self.difference.note or "without interval"
        same = low <= 0 <= high
        if SHUFFLED in self.measure:
            near = abs(self.difference.value) < _NEAR
            return f"near {CHANCE}, as it should be" if near else f"not near {CHANCE}"
        better = _MEASURES[self.measure] * self.difference.value > 0
        return "not measurably different" if same else "better" if better else "worse"


def headlines(source: Path) -> list[Headline]:
    """Return the metrics in a `summary.tsv` that have a baseline, each with the best one.

    An AUROC without a baseline, such as that of the control, is compared with chance. Published metrics are
    of other data and no baseline, and the network of an ensemble is a part of the model.
    """
    found = []
    for section, part in read_table(source, SUMMARY).groupby("section", sort=False):
        rows = [
            SummaryRow._make(row) for row in part[SUMMARY.names].itertuples(index=False)
        ]
        for measure, sign in _MEASURES.items():
            start = f"{measure}, "
            known = {
                row.metric.removeprefix(start): row
                for row in rows
                if row.metric.startswith(start)
            }
            known = {
                name: row for name, row in known.items() if not math.isnan(row.value)
            }
            others = [
                (sign * row.value, name)
                for name, row in known.items()
                if name not in NO_BASELINES and not name.startswith(MINUS)
            ]
            if measure == "AUROC":
                known[CHANCE] = SummaryRow(str(section), CHANCE, 0.5)
            best = max(others, default=(0.0, CHANCE))[1]
            for name, title, other in (
                (MODEL, measure, best),
                (SHUFFLED, start + SHUFFLED, CHANCE),
            ):
                if name in known and other in known:
                    gap = known.get(MINUS + other) or _difference(
                        known[name], known[other]
                    )
                    found.append(Headline(known[name], title, other, known[other], gap))
    return found


def _difference(row: SummaryRow, other: SummaryRow) -> SummaryRow:
    """Return a difference without its note; only that to chance, a fixed value, has an interval."""
    fixed = 0 if other.metric == CHANCE else math.nan
    low, high = row.low - other.value + fixed, row.high - other.value + fixed
    return SummaryRow(row.section, "", row.value - other.value, low, high)
