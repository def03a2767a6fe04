"""The trainings behind a table: learning rates, curves on validation data, time, parameters.

Language models and networks are trained by one rule: as many steps on the same draws of examples, the same
learning rates, and the weights with the lowest validation loss. The table has the learning rate with the
lowest mean over seeds of this loss. Test data are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bigbird_dna.data.promoter_windows import read_origin
from bigbird_dna.disk.atomic import read_object
from bigbird_dna.disk.tables import Schema, whole_number
from bigbird_dna.errors import DataError
from bigbird_dna.papers.comparators.interface import DESCRIPTION, NETWORK_NAMES
from bigbird_dna.papers.experiments.comparing import mean_curve, training_seconds
from bigbird_dna.papers.experiments.experiment import ArmJob
from bigbird_dna.reporting.training import LogCurve, read_training_log

TRAININGS = Schema.of(
    "optional window; text negative_set predictor weights; number learning_rate; text chosen",
    "count seeds parameters steps examples; number seconds best_step validation_loss validation_auroc",
)
_CONTENDER = ["window", "negative_set", "predictor", "weights"]


class Trainings(NamedTuple):
    """The trainings of a table, with the jobs and curves of the chosen learning rates."""

    table: pd.DataFrame  # rows of `TRAININGS`, one per arm
    jobs: list[ArmJob]  # of the chosen rates, and of predictors without a learning rate
    curves: list[LogCurve]  # validation AUROC of each row, mean over seeds


def read_trainings(jobs: Sequence[ArmJob]) -> Trainings:
    """Read the logs of all trainings among the jobs of a table, and choose the learning rates."""
    arms: dict[str, list[ArmJob]] = {}
    for job in jobs:
        if job.is_model or job.arm.predictor in NETWORK_NAMES:
            arms.setdefault(job.arm.name, []).append(job)
    rows, curves = [], []
    for own in arms.values():
        values, curve = _of_arm(own)
        rows.append(values)
        curves.append(curve)
    table = pd.DataFrame(rows, columns=TRAININGS.names)
    best = table.groupby(_CONTENDER, dropna=False, sort=False)[
        "validation_loss"
    ].idxmin()
    table["chosen"] = np.where(table.index.isin(best), "yes", "no")
    left = {
        name
        for name, chosen in zip(arms, table["chosen"], strict=True)
        if chosen == "no"
    }
    return Trainings(table, [job for job in jobs if job.arm.name not in left], curves)


def _of_arm(jobs: Sequence[ArmJob]) -> tuple[tuple[Any, ...], LogCurve]:
    """Return the row of an arm, means over its seeds, and its curve."""
    arm, config = jobs[0].arm, jobs[0].config
    measured, curves = [], []
    for job in jobs:
        path = job.model / "training.jsonl"
        log = read_training_log(path)
        if not {"loss", "auroc"} <= log.evaluation.keys():
            raise DataError(f"{path}: contains no loss and AUROC on validation data")
        loss, auroc = log.evaluation["loss"], log.evaluation["auroc"]
        best = int(loss.values.argmin())
        curves.append(auroc)
        measured.append(
            (
                training_seconds(log, path),
                loss.steps[best],
                loss.values[best],
                auroc.values[best],
            )
        )
    name, key = (
        ("metrics.json", "training") if jobs[0].is_model else (DESCRIPTION, "chosen")
    )
    file = jobs[0].model / name
    parameters = whole_number(read_object(file).get(key), "parameters", file)
    promoters = arm.task == "promoters"
    training = config.promoters.training if promoters else config.chromatin.training
    window = arm.row.window
    if promoters:
        origin = read_origin(jobs[0].data)  # of custom sequences
        window = (
            origin.upstream + origin.downstream
            if origin
            else config.promoters.windows.length
        )
    examples = (
        training.steps * training.batch_size * getattr(training, "bins_per_window", 1)
    )
    row = (
        *(
            np.nan if window is None else window,
            arm.options.get("negative_set", ""),
            *arm.row[:2],
        ),
        *(
            training.optimizer.learning_rate,
            "",
            len(jobs),
            parameters,
            training.steps,
            examples,
        ),
        *np.mean(measured, axis=0).tolist(),
    )
    return row, mean_curve(curves)
