"""The training log: one JSON object a line, cut back to the checkpoint when a run resumes."""

import json
import math
import time
from pathlib import Path
from typing import Any

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.training.state import Progress

SECONDS_BETWEEN_LINES = 15.0  # on standard error; the file has them all


class TrainingLog:
    """Appends to a JSON-lines file and says the same on standard error.

    Lines of steps beyond `progress` are removed first: that work is done again. The pace, tokens a second and
    time left, is that since the line before. `seconds` are those of all training so far, goes on where a
    resumed log ends, and leaves out what held-out figures take.
    """

    def __init__(self, path: Path, progress: Progress, steps: int) -> None:
        self.path = path
        self.steps = steps
        self.shown = -SECONDS_BETWEEN_LINES
        found = [(line, _step(line)) for line in _lines(path)]
        kept = [line for line, step in found if step is not None and step <= progress.step]
        if broken := sum(step is None for _, step in found):
            log(f"warning: {path}: {broken} damaged lines are left out")
        with atomic_path(path) as temporary:
            temporary.write_text("".join(kept))
        self.seconds, self.step_seconds = _seconds(kept), 0.0
        self._begin(progress)

    def training(self, progress: Progress, *, loss: float, learning_rate: float) -> None:
        """Append a record of training and show it, now and then, with the time that is left."""
        now, step = time.monotonic(), progress.step
        elapsed = max(now - self.since, 1e-9)
        pace = (progress.tokens - self.tokens) / elapsed
        self.step_seconds = elapsed / max(1, step - self.step)
        left = self.step_seconds * (self.steps - step)
        self.seconds += elapsed
        self._begin(progress)
        self._write(step, loss=loss, learning_rate=learning_rate, tokens_per_second=pace)
        if now - self.shown < SECONDS_BETWEEN_LINES and step < self.steps:
            return
        self.shown = now
        minutes, seconds = divmod(int(left), 60)
        log(f"step {step}/{self.steps}  loss {loss:.4f}  {pace:,.0f} tokens/s  {minutes}:{seconds:02d} left")

    def evaluation(self, progress: Progress, values: dict[str, float]) -> None:
        """Append a record of held-out figures and show it; the time they took doesn't count for the pace."""
        self.seconds += self.step_seconds * (progress.step - self.step)  # since the last line of training
        self._write(progress.step, evaluation=values)
        self._begin(progress)
        log(
            f"step {progress.step}  held out: "
            + "  ".join(f"{key} {value:.4f}" for key, value in values.items())
        )

    def _begin(self, progress: Progress) -> None:
        self.since, self.step, self.tokens = time.monotonic(), progress.step, progress.tokens

    def _write(self, step: int, **values: Any) -> None:
        with self.path.open("a") as stream:
            stream.write(json.dumps({"step": step, "seconds": round(self.seconds, 3), **values}) + "\n")


def _lines(path: Path) -> list[str]:
    """Whole lines only: a killed run may have left half of its last one."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", errors="replace", newline="\n") as stream:
        return [line for line in stream if line.endswith("\n")]


def _seconds(lines: list[str]) -> float:
    """The time of the last line; 0 where it has none, as in logs of earlier versions."""
    value = json.loads(lines[-1]).get("seconds") if lines else None
    return value if isinstance(value, float) and math.isfinite(value) else 0.0


def _step(line: str) -> int | None:
    """The step that a line is of; None: it isn't a line of a log, which is printable ASCII alone."""
    text = line.removesuffix("\n")
    if not (text.startswith("{") and text.isascii() and text.isprintable()):
        return None
    try:
        step = json.loads(line)["step"]  # figures may be NaN
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return step if type(step) is int else None
