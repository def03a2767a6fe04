"""Watch a training from outside: its task and objective note when they are called, and start a profiler."""

from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

SKIPPED, PLAIN = 8, 16  # steps before the measurement, and steps without the profiler
ENCODER = (
    "encoder kernel"  # the range of the encoder's time outside of torch's operations
)


class WatchedObjective:
    """An objective that notes when its methods are called, and starts the profiler after some steps."""

    def __init__(self, objective: Any) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.profiler import ProfilerActivity, profile

        self.objective = objective
        self.profiler = profile(activities=[ProfilerActivity.CPU])
        self.begun: list[float] = []  # of each step's loss
        self.made: list[float] = []  # seconds, each batch
        self.waited: list[float] = []  # seconds, for each batch
        self.evaluated: list[
            float
        ] = []  # end of the profile, start and end of the first evaluation
        self.stepped = self.plain = 0.0
        register_optimizer_step_post_hook(self._after_optimizer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.objective, name)

    def _after_optimizer(self, *_: Any) -> None:
        self.stepped = monotonic()

    def batch(self, step: int, first: int, count: int) -> Any:
        """Time a batch; the loop calls this in a thread."""
        began = monotonic()
        batch = self.objective.batch(step, first, count)
        self.made.append(monotonic() - began)
        return batch

    def counts(self, batch: Any) -> Any:
        """The first call with a batch: the loop has waited for it."""
        if self.stepped:
            self.waited.append(monotonic() - self.stepped)
        return self.objective.counts(batch)

    def loss(self, *args: Any) -> Any:
        """The loss; each call begins a step."""
        self.begun.append(monotonic())
        if len(self.begun) == SKIPPED + PLAIN + 1:
            self.plain = monotonic() - self.begun[SKIPPED]
            self.profiler.start()
            self.begun[-1] = monotonic()
        return self.objective.loss(*args)

    def evaluate(self, network: Any) -> Any:
        """The evaluation, which ends the profile."""
        times = [monotonic()]
        if not self.evaluated:
            self.profiler.stop()
            times.append(monotonic())
        values = self.objective.evaluate(network)
        self.evaluated = self.evaluated or [*times, monotonic()]
        return values


class WatchedTask:
    """A task with a watched objective, whose last computations are timed."""

    def __init__(self, task: Any) -> None:
        self.task = task

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def objective(self, network: Any, world: Any) -> WatchedObjective:
        """The task's objective, watched."""
        self.watched = WatchedObjective(self.task.objective(network, world))
        return self.watched

    def measure(self, trained: Any) -> Any:
        """The task's last computations."""
        self.trained = monotonic()
        measured = self.task.measure(self._own(trained))
        self.measured = monotonic()
        return measured

    def write(self, directory: Path, trained: Any, measured: Any) -> Any:
        """The model, as the task writes it."""
        return self.task.write(directory, self._own(trained), measured)

    @staticmethod
    def _own(trained: Any) -> Any:
        return replace(trained, objective=trained.objective.objective)


def mark_encoders(network: Any) -> None:
    """Let a profiler see each call of an encoder as a range; its kernel is no operation of torch."""
    from torch.profiler import record_function

    from bigbird_dna.model.encoder import Encoder

    ranges: list[Any] = []

    def enter(*_: Any) -> None:
        ranges.append(record_function(ENCODER))
        ranges[-1].__enter__()

    for module in network.modules():
        if isinstance(module, Encoder):
            module.register_forward_pre_hook(enter)
            module.register_forward_hook(
                lambda *_: ranges.pop().__exit__(None, None, None)
            )
