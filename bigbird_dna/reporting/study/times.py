"""What the trainings of a study took, by their logs and by Snakemake's benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bigbird_dna.reporting.run.steps import processor_seconds
from bigbird_dna.reporting.study.comparing import Cell
from bigbird_dna.reporting.study.models import LONGER, PRETRAINED, training_seconds
from bigbird_dna.reporting.training_log import read_training_log

# The task of a benchmark file's own name.
_PRETRAINING = "pretrain"


@dataclass(frozen=True)
class Times:
    """Seconds of pretraining, and of fine-tuning by start: a mean over shares and seeds."""

    pretraining: float | None
    by_start: Mapping[str, float]

    def said(self, what: str) -> str:
        """Both as a sentence, `what` they are at its end; "" where one of them isn't known."""
        if self.pretraining is None or PRETRAINED not in self.by_start:
            return ""
        own = self.by_start[PRETRAINED]
        text = (
            f"Pretraining took {minutes(self.pretraining)}, fine-tuning {minutes(own)}: "
            f"{minutes(self.pretraining + own)} in all"
        )
        if LONGER in self.by_start:
            text += (
                f", against {minutes(self.by_start[LONGER])} of random weights that were trained for longer"
            )
        return f"{text}, {what}."


def logged_times(cells: Sequence[Cell], pretraining: float | None) -> Times:
    """Times of the optimiser's steps."""
    starts = dict.fromkeys(cell.start for cell in cells)
    return Times(
        pretraining,
        {start: float(np.mean([c.seconds for c in cells if c.start == start])) for start in starts},
    )


def processor_times(cells: Sequence[Cell], benchmarks: Path) -> Times:
    """CPU time of the jobs, a start's only where all of its jobs have been measured."""
    found: dict[str, list[float | None]] = {}
    for cell in cells:
        for model in cell.models:
            path = benchmarks / f"study-{cell.task}-{model.path.parent.name}.tsv"
            found.setdefault(cell.start, []).append(processor_seconds(path))
    known = {start: [value for value in values if value is not None] for start, values in found.items()}
    means = {start: float(np.mean(known[start])) for start in found if len(known[start]) == len(found[start])}
    return Times(processor_seconds(benchmarks / f"{_PRETRAINING}.tsv"), means)


def pretraining_seconds(model: Path) -> float:
    """What the steps of a pretraining took, by the log in its directory."""
    path = model / "training.jsonl"
    return training_seconds(read_training_log(path), path)


def minutes(seconds: float) -> str:
    """A time in words."""
    if seconds < 90:
        return "a minute" if seconds >= 30 else "less than a minute"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
