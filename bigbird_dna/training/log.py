"""The training log: one JSON object a line, cut back to the checkpoint when a run resumes."""

import json
import time
from pathlib import Path
from typing import Any

from bigbird_dna.console import log
from bigbird_dna.files import atomic_path

SECONDS_BETWEEN_LINES = 15.0  # on standard error; the file has them all


class TrainingLog:
    """Appends to a JSON-lines file and says the same on standard error.

    Lines of steps beyond `resume_step` are removed first: that work is done again.
    """

    def __init__(self, path: Path, resume_step: int) -> None:
        self.path = path
        self.shown = -SECONDS_BETWEEN_LINES
        kept = [line for line in _lines(path) if json.loads(line)["step"] <= resume_step]
        with atomic_path(path) as temporary:
            temporary.write_text("".join(kept))

    def write(self, step: int, **values: Any) -> None:
        """Append one record."""
        with self.path.open("a") as stream:
            stream.write(json.dumps({"step": step, **values}) + "\n")

    def training(self, step: int, steps: int, seconds_left: float, **values: float) -> None:
        """Append a record of training and show it, now and then, with the time that is left."""
        self.write(step, **values)
        now = time.monotonic()
        if now - self.shown < SECONDS_BETWEEN_LINES and step < steps:
            return
        self.shown = now
        minutes, seconds = divmod(int(seconds_left), 60)
        log(
            f"step {step}/{steps}  loss {values['loss']:.4f}  {values['tokens_per_second']:,.0f} tokens/s"
            f"  {minutes}:{seconds:02d} left"
        )

    def evaluation(self, step: int, values: dict[str, float]) -> None:
        """Append a record of held-out figures and show it."""
        self.write(step, evaluation=values)
        log(
            f"step {step}  held out: "
            + "  ".join(f"{key} {value:.4f}" for key, value in values.items())
        )


def _lines(path: Path) -> list[str]:
    """Whole lines only: a killed run may have left half of its last one."""
    if not path.exists():
        return []
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
