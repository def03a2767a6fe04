"""Progress and log of a training, and its kernels."""

import json
import math
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bigbird_dna.attention import Choice, routes_logged
from bigbird_dna.config.training import TrainingConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.inference import compiled_layers
from bigbird_dna.model.mechanism import goes_by_pattern
from bigbird_dna.training.distributed import World

LOG = "training.jsonl"
SECONDS_BETWEEN_LINES = 15.0  # on standard error; the file contains all lines


@dataclass
class Progress:
    """Progress of a training: completed steps, tokens seen, and sums for the next log line.

    `skipped` steps changed no weights because their loss or gradient was not finite; the last
    `skipped_in_row` were such steps. `best_loss` is the lowest held-out loss so far, of the weights after
    `best_step` (0: none yet), and `worse` the number of evaluations in a row, up to now, that exceed it by a
    tenth. `backends` are the attention routes that ran, separated by blanks.
    """

    step: int = 0
    tokens: int = 0
    loss_sum: float = 0.0
    loss_steps: int = 0
    skipped: int = 0
    skipped_in_row: int = 0
    best_loss: float = 0.0
    best_step: int = 0
    worse: int = 0
    backends: str = ""

    def is_best(self, loss: float) -> bool:
        """Record the held-out loss of the weights after `step`; whether it is the lowest so far."""
        if not self.best_step or loss < self.best_loss:
            self.best_loss, self.best_step, self.worse = loss, self.step, 0
            return True
        self.worse = (
            self.worse + 1 if loss > self.best_loss + abs(self.best_loss) / 10 else 0
        )
        return False


class TrainingLog:
    """Append to a JSON-lines file and log the same on standard error.

    Lines of steps beyond `progress` are removed first, as these steps are repeated. Speed is measured since
    the previous line of training; `seconds` is the total training time, without held-out evaluation.
    """

    def __init__(self, path: Path, progress: Progress, steps: int) -> None:
        self.path, self.steps = path, steps
        self.printed = -SECONDS_BETWEEN_LINES  # on standard error
        self.seconds = 0.0
        earlier = ""
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):  # a killed run may leave an incomplete line
                record = json.loads(line)
                if record["step"] <= progress.step:
                    earlier += line
                    self.seconds = record["seconds"]

        with atomic_path(path) as temporary:
            temporary.write_text(earlier, encoding="utf-8")

        self.since = time.monotonic()
        self.step, self.tokens = progress.step, progress.tokens

    def training(
        self, progress: Progress, *, loss: float, learning_rate: float
    ) -> None:
        """Append a training record and log it at intervals, with the remaining time."""
        now, step = time.monotonic(), progress.step
        elapsed = max(now - self.since, 1e-9)
        pace = (progress.tokens - self.tokens) / elapsed
        left = elapsed / max(1, step - self.step) * (self.steps - step)
        self.seconds += elapsed
        self.since, self.step, self.tokens = now, step, progress.tokens
        self._write(
            step,
            self.seconds,
            loss=loss,
            learning_rate=learning_rate,
            tokens_per_second=pace,
        )
        if now - self.printed >= SECONDS_BETWEEN_LINES or step == self.steps:
            self.printed = now
            minutes, seconds = divmod(int(left), 60)
            log(
                f"step {step}/{self.steps}  loss {loss:.4f}  {pace:,.0f} tokens/s  "
                f"{minutes}:{seconds:02d} left"
            )

    def evaluation(
        self, progress: Progress, values: dict[str, float], took: float
    ) -> None:
        """Append and log held-out metrics, computed in `took` seconds, which do not affect the speed.

        A metric that is not defined, such as the AUROC of a single class, is null in the file.
        """
        self.since += took
        stored = {
            key: None if math.isnan(value) else value for key, value in values.items()
        }
        seconds = self.seconds + time.monotonic() - self.since
        self._write(progress.step, seconds, evaluation=stored)
        texts = [
            f"{key} {'not defined' if value is None else f'{value:.4f}'}"
            for key, value in stored.items()
        ]
        log(f"step {progress.step}  network, held out: {'  '.join(texts)}")

    def _write(self, step: int, seconds: float, **values: Any) -> None:
        record = {"step": step, "seconds": round(seconds, 3), **values}
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")


@contextmanager
def chosen_kernels(
    network: nn.Module, config: TrainingConfig, world: World, progress: Progress
) -> Iterator[None]:
    """Log on the first process, once each, the attention routes used in the context, with the reason, and
    record their names in `progress`. With `torch_compile` torch compiles the rest of the layers."""

    def log_choice(choice: Choice) -> None:
        routes = {*progress.backends.split(), choice.route}
        progress.backends = " ".join(sorted(routes))
        if world.is_first:
            log(str(choice))

    layers = compiled_layers(network) if config.torch_compile else nullcontext()
    with routes_logged(log_choice), layers, repeatable(network, world.device):
        yield


@contextmanager
def repeatable(network: nn.Module, device: torch.device) -> Iterator[None]:
    """On a GPU, add up gradients in a fixed order within the context: the same seed gives the same weights.

    Some attention mechanisms have operations without such an order in torch; weights then differ by rounding.
    """
    if device.type != "cuda":
        yield
        return

    os.environ.setdefault(
        "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
    )  # read at the first matrix product
    memory: Any = torch.utils.deterministic  # has no types
    before, filled = (
        torch.get_deterministic_debug_mode(),
        memory.fill_uninitialized_memory,
    )
    memory.fill_uninitialized_memory = (
        False  # filling takes time, and nothing reads such memory
    )
    encoders = [module for module in network.modules() if isinstance(module, Encoder)]
    # Where operations without a fixed order only warn, torch's own attention does not have one either.
    strict = all(goes_by_pattern(encoder.config) for encoder in encoders)
    torch.use_deterministic_algorithms(True, warn_only=not strict)
    try:
        with warnings.catch_warnings():
            for words in (
                "does not have a deterministic",
                "defaults to a non-deterministic",
            ):
                warnings.filterwarnings("ignore", message=f".*{words}")

            yield
    finally:
        torch.set_deterministic_debug_mode(before)
        memory.fill_uninitialized_memory = filled
