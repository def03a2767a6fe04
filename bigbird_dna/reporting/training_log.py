"""The training log `training.jsonl` as curves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import reading
from bigbird_dna.errors import DataError
from bigbird_dna.reporting.tables import number, whole_number


@dataclass(frozen=True)
class Curve:
    """Values over optimiser steps, ascending."""

    steps: NDArray[np.int64]  # (N,)
    values: NDArray[np.float64]  # (N,)
    seconds: NDArray[np.float64] | None = None  # (N,) of training up to then; None: not in the log


@dataclass(frozen=True)
class TrainingCurves:
    """Training loss, and the held-out figures by name."""

    loss: Curve
    evaluation: dict[str, Curve]


def read_training_log(path: Path) -> TrainingCurves:
    """Read a log; a step that was logged twice counts once, as it was logged last.

    The last line of a running or killed job may be cut short: it is left out, with a message. Any other
    fault is a `DataError` that names the line.
    """
    with reading(path, "not readable", UnicodeDecodeError):
        lines = Path(path).read_text().splitlines(keepends=True)
    loss: dict[int, float] = {}
    evaluation: dict[str, dict[int, float]] = {}
    seconds: dict[int, float] = {}
    for place, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}: line {place}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # no JSON, thousands of digits, or nested without end
            if place == len(lines) and not line.endswith("\n"):
                log(f"{where} is cut short and left out")
                continue
            raise DataError(f"{where}: not JSON: {line.strip()[:60]!r}") from None
        step = whole_number(record, "step", where)
        if "seconds" in record:
            seconds[step] = number(record, "seconds", where)
        if "loss" in record:
            loss[step] = number(record, "loss", where)
        if "evaluation" in record:
            values = record["evaluation"]
            if not isinstance(values, dict):
                raise DataError(f"{where}: 'evaluation' is not an object but {values!r:.60}")
            for name in values:
                evaluation.setdefault(name, {})[step] = number(values, name, where)
    if not loss and not evaluation:
        raise DataError(f"{path}: no training step in it")
    held_out = {name: _curve(points, seconds) for name, points in evaluation.items()}
    return TrainingCurves(_curve(loss, seconds), held_out)


def _curve(points: dict[int, float], seconds: dict[int, float]) -> Curve:
    steps = sorted(points)
    times = None
    if steps and seconds.keys() >= points.keys():
        times = np.array([seconds[step] for step in steps])
    return Curve(np.array(steps, dtype=np.int64), np.array([points[step] for step in steps]), times)
