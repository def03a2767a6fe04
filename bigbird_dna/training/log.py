"""The training log; time and kernels of a training; detection of divergence."""

import json
import math
import os
import time
import warnings
from collections.abc import Iterator, Mapping
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
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.inference import compiled_layers
from bigbird_dna.model.mechanism import goes_by_pattern
from bigbird_dna.training.distributed import World

LOG = "training.jsonl"
SECONDS_BETWEEN_LINES = 15.0  # on standard error; the file contains all lines
# Prefixes of held-out metrics that are finite for any data; others, such as AUROC, need two classes.
_NUMBERS = ("loss", "bits")


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

    def add_backend(self, route: str) -> None:
        """Add an attention route."""
        self.backends = " ".join(sorted({*self.backends.split(), route}))


class TrainingLog:
    """Append to a JSON-lines file and log the same on standard error.

    Lines of steps beyond `progress` are removed first, as these steps are repeated. Speed is measured since
    the previous line; `seconds` is the total training time, without held-out evaluation.
    """

    def __init__(self, path: Path, progress: Progress, steps: int) -> None:
        self.path = path
        self.steps = steps
        self.logged_at = -SECONDS_BETWEEN_LINES  # on standard error
        lines = []
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        self.seconds = 0.0
        earlier = []  # without what a killed run left incomplete
        for line in lines:
            try:
                record = json.loads(line)
                if line.endswith("\n") and record["step"] <= progress.step:
                    earlier.append(line)
                    self.seconds = record.get("seconds", 0.0)
            except (ValueError, TypeError, LookupError):
                log(f"warning: {path}: an incomplete line is omitted")
        with atomic_path(path) as temporary:
            temporary.write_text("".join(earlier), encoding="utf-8")
        self.step_seconds = 0.0
        self._begin(progress)

    def training(
        self, progress: Progress, *, loss: float, learning_rate: float
    ) -> None:
        """Append a training record and log it at intervals, with the remaining time."""
        now, step = time.monotonic(), progress.step
        elapsed = max(now - self.since, 1e-9)
        pace = (progress.tokens - self.tokens) / elapsed
        self.step_seconds = elapsed / max(1, step - self.step)
        left = self.step_seconds * (self.steps - step)
        self.seconds += elapsed
        self._begin(progress)
        self._write(
            step, loss=loss, learning_rate=learning_rate, tokens_per_second=pace
        )
        if now - self.logged_at < SECONDS_BETWEEN_LINES and step < self.steps:
            return
        self.logged_at = now
        minutes, seconds = divmod(int(left), 60)
        log(
            f"step {step}/{self.steps}  loss {loss:.4f}  {pace:,.0f} tokens/s  {minutes}:{seconds:02d} left"
        )

    def evaluation(self, progress: Progress, values: dict[str, float]) -> None:
        """Append and log held-out metrics; the time of their computation does not affect the speed.

        A metric that is not defined, such as the AUROC of a single class, is null in the file.
        """
        self.seconds += self.step_seconds * (
            progress.step - self.step
        )  # since the last training line
        stored = {
            key: None if math.isnan(value) else value for key, value in values.items()
        }
        self._write(progress.step, evaluation=stored)
        self._begin(progress)
        texts = [
            f"{key} {'not defined' if math.isnan(value) else f'{value:.4f}'}"
            for key, value in values.items()
        ]
        log(f"step {progress.step}  network, held out: {'  '.join(texts)}")

    def _begin(self, progress: Progress) -> None:
        self.since, self.step, self.tokens = (
            time.monotonic(),
            progress.step,
            progress.tokens,
        )

    def _write(self, step: int, **values: Any) -> None:
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(
                json.dumps({"step": step, "seconds": round(self.seconds, 3), **values})
                + "\n"
            )


def diverged(step: int, what: str) -> DataError:
    """The error for a training in which a value is not finite after a step."""
    return DataError(
        f"step {step}: {what}: training has diverged; try a lower learning_rate or a longer warm-up"
    )


def check_weights(network: nn.Module, step: int, world: World) -> None:
    """`DataError` on every process if, after a step, weights on any process are NaN or infinite."""
    finite = all(
        bool(torch.isfinite(parameter).all()) for parameter in network.parameters()
    )
    if world.sum({"broken": float(not finite)})["broken"]:
        raise diverged(step, "the weights are not finite")


def check_figures(figures: Mapping[str, float], step: int) -> None:
    """`DataError` if a held-out loss, or number of bits, is NaN or infinite."""
    for name, value in figures.items():
        if name.startswith(_NUMBERS) and not math.isfinite(value):
            raise diverged(step, f"the held-out {name} is {value}")


STRICT = ("cuda",)
"""Devices where the slow route is an error: training would take days, with the device mostly idle."""


@contextmanager
def chosen_kernels(
    network: nn.Module,
    config: TrainingConfig,
    world: World,
    progress: Progress | None = None,
) -> Iterator[None]:
    """Log on the first process, once each, the attention routes used in the context, with the reason.

    `progress` records their names.
    With `torch_compile` torch compiles the rest of the layers. `ConfigError`: it cannot, or attention on a
    GPU would use a slower route without `allow_slow_attention`.
    """

    def log_choice(choice: Choice) -> None:
        if (
            choice.route == "blocked"
            and choice.reason != "requested"
            and world.device.type in STRICT
            and not config.allow_slow_attention
        ):
            raise ConfigError(
                f"attention would use the slower route {choice.route}, because {choice.reason}; to allow "
                "this, set allow_slow_attention: true in this training's section"
            )
        if progress is not None:
            progress.add_backend(choice.route)
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
