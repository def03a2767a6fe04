"""The training loop: plain torch, one or more processes, identical results after a kill and resume.

All random numbers of step s come from generators seeded by (seed, s, …): a checkpoint needs only weights,
moments and step. Axes: N rows of a process, n rows of a micro-batch, L tokens.
"""

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bigbird_dna.attention.call import copied
from bigbird_dna.config.training import OptimizerConfig, TrainingConfig
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError, Stopped
from bigbird_dna.gpus import freed_memory_kept
from bigbird_dna.model.inference import ahead
from bigbird_dna.training.checkpoints import CheckpointStore, fresh_moments
from bigbird_dna.training.distributed import Stopping, World, autocast
from bigbird_dna.training.log import (
    Progress,
    TrainingLog,
    check_figures,
    check_weights,
    chosen_kernels,
    diverged,
)

Batch = dict[str, Tensor]

HOST = ("lengths", "spans")
"""Batch tensors that stay on the CPU, because they determine the work plan: reading them from a GPU would
wait for all its pending work."""

TOKENS = ("ids", "segments", "base_starts")
"""Batch tensors with one value per token, (N, L)."""


def by_length(lengths: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Row numbers (n,) of micro-batches of these sizes, grouped by length (N,), longest rows and largest
    batches first."""
    order = torch.argsort(lengths, descending=True, stable=True)
    return [order[first:end] for first, end in pairwise(accumulate(sizes, initial=0))]


def take_rows(batch: Batch, rows: Tensor) -> Batch:
    """Selected rows of a batch of row-wise tensors, without their common padding."""
    longest = int(batch["lengths"][rows].max())
    return {
        name: value[rows, :longest].contiguous() if name in TOKENS else value[rows]
        for name, value in batch.items()
    }


def pinned(batch: Batch, device: torch.device) -> Batch:
    """The batch in pinned memory for a GPU; unchanged for other devices."""
    if device.type != "cuda":
        return batch
    torch.cuda.set_device(
        device
    )  # for this thread; otherwise memory is allocated on the first GPU
    return {name: value.pin_memory() for name, value in batch.items()}


def on_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on a device, except the tensors in `HOST`, without waiting for the copy."""
    return {
        name: value if name in HOST else copied(value, device)
        for name, value in batch.items()
    }


class Epochs:
    """Indices of examples over successive epochs, each shuffled separately.

    `members` returns at least `size` examples of an epoch by its number; only `size` of them are used.
    """

    def __init__(
        self, seed: int, size: int, members: Callable[[int], npt.NDArray[np.integer]]
    ) -> None:
        self.size = size

        @lru_cache(maxsize=1)
        def order(number: int) -> npt.NDArray[np.integer]:
            return np.random.default_rng((seed, 2, number)).permutation(
                members(number)
            )[:size]

        self._order = order

    def indices(self, first: int, count: int) -> list[int]:
        """Indices at positions `first` to `first + count` (exclusive) of all concatenated epochs."""
        return [
            int(self._order(position // self.size)[position % self.size])
            for position in range(first, first + count)
        ]


def learning_rate(step: int, steps: int, config: OptimizerConfig) -> float:
    """Linear warm-up, at most as long as the training, then linear decay to zero; `step` counts from 0."""
    warmup = min(config.warmup_steps, steps)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    return config.learning_rate * (steps - step) / max(1, steps - warmup)


def make_optimizer(
    network: nn.Module, config: OptimizerConfig
) -> torch.optim.Optimizer:
    """AdamW or Adafactor; weight decay excludes biases and LayerNorm weights, as in BERT.

    With `layer_decay` below 1, groups have a `scale`, by which the loop multiplies the learning rate: 1 for
    the head, and `layer_decay` to the power of the distance from the head for layers and embeddings.

    Adafactor (Shazeer and Stern 2018) stores no first moment, and only row and column means of the second;
    its rates are relative to the weights' magnitude.
    """
    trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
    distances = dict.fromkeys(trained, 0)
    if config.layer_decay < 1:
        distances = _distances(trained)
    groups: list[dict[str, Any]] = []
    for distance in sorted({0, *distances.values()}):
        near = [p for name, p in trained.items() if distances[name] == distance]
        scale = config.layer_decay**distance
        for is_matrix, decay in ((True, config.weight_decay), (False, 0.0)):
            params = [p for p in near if (p.dim() >= 2) == is_matrix]
            groups.append({"params": params, "weight_decay": decay, "scale": scale})
    if config.method == "adafactor":
        return torch.optim.Adafactor(groups, lr=config.learning_rate)
    # Fused: one pass over each tensor, an eighth of the default's time on a CPU.
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, betas=(0.9, 0.999), eps=1e-8, fused=True
    )


def step_if_finite(optimizer: torch.optim.Optimizer, norm: Tensor) -> None:
    """Change the weights if the gradient's norm is finite; `norm` is the same on all processes.

    AdamW decides this on the device, as for gradient scaling, without waiting for pending work.
    """
    if isinstance(optimizer, torch.optim.AdamW):
        optimizer.grad_scale, optimizer.found_inf = None, (~norm.isfinite()).float()  # type: ignore[attr-defined]
        optimizer.step()
    elif norm.isfinite():
        optimizer.step()


def _distances(names: Iterable[str]) -> dict[str, int]:
    """The distance of each parameter from the head: 1 for the last layer of an encoder, one more below it."""
    matches = {name: _LAYER.search(name) for name in names}
    last = max((int(match[1] or 0) for match in matches.values() if match), default=0)
    return {
        name: last + 1 - int(match[1] or -1) if match else 0
        for name, match in matches.items()
    }


_LAYER = re.compile(r"(?:^|\.)encoder\.(?:embeddings|layers\.(\d+))\.")
LOG_STEPS = 10
MAX_SKIPPED = 10
"""Number of consecutive steps with a loss or gradient that is not finite after which a training ends."""


class Objective(Protocol):
    """A training objective: batches, their loss, and metrics on held-out data."""

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Examples `first … first + count` of a step's global batch, on the CPU, with `lengths`."""

    def part(self, batch: Batch, rows: Tensor) -> Batch:
        """Selected rows (n,) of a batch: a micro-batch."""
        return take_rows(batch, rows)

    def counts(self, batch: Batch) -> dict[str, float]:
        """Numbers of loss terms in a batch; their sums over the global batch divide the loss."""

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """This batch's part of the global batch's loss; the tensors in `HOST` are on the CPU."""

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Metrics on held-out data, equal on every process; `loss…` and `bits…` must be finite."""


@freed_memory_kept()
def train_network(
    network: nn.Module,
    objective: Objective,
    config: TrainingConfig,
    store: CheckpointStore,
    world: World,
    patience: int | None = None,
) -> Progress:
    """Train `network` in place for `config.steps` steps, or the remaining ones. With `patience`, end after as
    many evaluations in a row with a held-out loss a tenth above the lowest.

    A step's global batch is the same for any number of processes and micro-batches. Without a checkpoint, all
    processes begin with the first one's weights. `ConfigError`: `batch_size` cannot be divided, or as in
    `chosen_kernels`. A step whose loss or gradient is not finite is counted but changes nothing. `DataError`:
    `MAX_SKIPPED` such steps in a row (or all steps), or weights or a held-out loss that are not finite; any
    remaining checkpoint has finite weights. `Stopped`: SIGTERM was received, or the
    time limit of `world` is near; every process stops after the same step, at least one, and a checkpoint is
    saved.
    """
    if config.batch_size < world.size * config.grad_accumulation:
        raise ConfigError(
            f"batch_size {config.batch_size}: must be at least {world.size} processes × "
            f"{config.grad_accumulation} micro-batches"
        )
    network.to(world.device)
    trainer = _Trainer(network, objective, config, store, world, patience)
    with (
        store.written(),
        Stopping(world.ends) as stopping,
        chosen_kernels(network, config, world, trainer.progress),
    ):
        trainer.run(stopping)
    world.wait()
    network.eval()
    return trainer.progress


def held_out_loss(figures: Mapping[str, float]) -> float:
    """The figure of `Objective.evaluate` that decides which weights are best: the lowest."""
    return next(
        figures[name]
        for name in ("loss", "bits_per_base", "bits_per_character")
        if name in figures
    )


class _Trainer:
    """The state of `train_network`.

    Loss, log line, metrics and checkpoint of a step are handled with the next step's batch: both need sums
    over processes, computed in one reduction.
    """

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        config: TrainingConfig,
        store: CheckpointStore,
        world: World,
        patience: int | None,
    ) -> None:
        self.network, self.objective, self.config = network, objective, config
        self.store, self.world, self.patience = store, world, patience
        self.optimizer = make_optimizer(network, config.optimizer)
        self.progress = world.first(lambda: store.restore(network, self.optimizer))
        if world.size > 1 and self.progress.step:
            _broadcast_moments(self.optimizer, world)
        self.log: TrainingLog | None = None
        if world.is_first:
            self.log = TrainingLog(store.log_path, self.progress, config.steps)
        self.cast = autocast(world.device, config.precision)
        self.lr = 0.0
        self.saved_step, self.saved_at = self.progress.step, time.monotonic()
        # Of the step that is not finished yet: this process's loss and tokens, and the gradient's norm.
        self.loss: Tensor | None = None
        self.norm: Tensor | None = None
        self.tokens = 0

    @property
    def ended(self) -> bool:
        """Whether training ends early, see `train_network`."""
        return self.patience is not None and self.progress.worse >= self.patience

    def run(self, stopping: Stopping) -> None:
        """Make the remaining steps."""
        network, config, world = self.network, self.config, self.world
        # Broadcasts the first process's weights to all.
        parallel = DistributedDataParallel(network) if world.size > 1 else network
        begin = config.steps if self.ended else self.progress.step
        for step, batches in prefetched(self.objective, config, world, begin):
            counts = [self.objective.counts(batch) for batch in batches]
            totals = self.finish_step(
                stopping,
                {name: sum(one[name] for one in counts) for name in counts[0]},
            )
            if self.ended:
                break
            network.train()
            torch.manual_seed((config.seed * 1_000_003 + step) * 4096 + world.rank)
            self.loss = backward(
                parallel, self.objective, batches, totals, world, self.cast
            )
            self.norm = nn.utils.clip_grad_norm_(
                network.parameters(), config.optimizer.clip_norm
            )
            step_if_finite(self.optimizer, self.norm)
            self.optimizer.zero_grad(set_to_none=True)
            self.tokens = sum(int(batch["lengths"].sum()) for batch in batches)
        self.finish_step(stopping, {})

    def finish_step(
        self, stopping: Stopping, counts: Mapping[str, float]
    ) -> dict[str, float]:
        """Finish the previous step, if any, and prepare the next; returns the sums of its `counts`."""
        # The first process decides, because clocks differ.
        due = (
            self.world.is_first
            and time.monotonic() - self.saved_at >= 60 * self.config.checkpoint_minutes
        )
        sums = self.world.sum(
            {
                "loss": 0.0 if self.loss is None else self.loss.item(),
                "tokens": float(self.tokens),
                "terminated": float(stopping.terminated),
                "late": float(stopping.late),
                "due": float(due),
                **{f"of {name}": value for name, value in counts.items()},
            }
        )
        if self.norm is not None:
            norm, self.loss, self.norm = self.norm.item(), None, None
            self._record(sums, norm)
            if sums["terminated"]:
                self._stop("SIGTERM")
            if sums["late"]:
                self._stop("the time limit is near")
        stopping.step()
        self.lr = learning_rate(
            self.progress.step, self.config.steps, self.config.optimizer
        )
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * group["scale"]
        return {name: sums[f"of {name}"] for name in counts}

    def _record(self, sums: dict[str, float], norm: float) -> None:
        """Log a step; measure held-out data, and save a checkpoint, if it is time."""
        progress, config = self.progress, self.config
        finite = math.isfinite(sums["loss"]) and math.isfinite(norm)
        if not finite:
            self._skip(f"loss {sums['loss']:.4g}, gradient norm {norm:.4g}")
        progress.step += 1
        progress.tokens += int(sums["tokens"])
        if finite:
            progress.skipped_in_row = 0
            progress.loss_sum += sums["loss"]
            progress.loss_steps += 1
        last = progress.step == config.steps
        if (progress.step % LOG_STEPS == 0 or last) and progress.loss_steps:
            mean = progress.loss_sum / progress.loss_steps
            progress.loss_sum, progress.loss_steps = 0.0, 0
            if self.log:
                self.log.training(progress, loss=mean, learning_rate=self.lr)
        evaluates = last or progress.step % config.evaluation_steps == 0
        # Weights that give nothing finite may be of no use.
        saves = last or (sums["due"] > 0 and finite)
        if evaluates or saves:
            # The loss was computed with the weights before the step.
            check_weights(self.network, progress.step, self.world)
        if evaluates:
            self._evaluate()
        if self.ended and not last and self.world.is_first:
            log(
                f"training ends at step {progress.step:,} of {config.steps:,}: in {progress.worse} "
                "evaluations in a row, the held-out loss was a tenth above that of step "
                f"{progress.best_step:,}"
            )
        if saves or self.ended:
            self._save()

    def _evaluate(self) -> None:
        self.network.eval()
        with torch.inference_mode(), self.cast:
            values = self.objective.evaluate(self.network)
        check_figures(values, self.progress.step)
        if self.log:
            self.log.evaluation(self.progress, values)
        if self.store.best is None:
            return
        if self.progress.is_best(held_out_loss(values)) and self.world.is_first:
            self.store.keep_best(self.network)

    def _skip(self, what: str) -> None:
        """Count a step that changed nothing; end the training after too many in a row."""
        progress = self.progress
        progress.skipped += 1
        progress.skipped_in_row += 1
        if progress.skipped_in_row < min(MAX_SKIPPED, self.config.steps):
            if self.world.is_first:
                log(f"warning: step {progress.step + 1} is skipped: {what}")
            return
        count = progress.skipped_in_row
        what = f"{count} steps in a row had no finite loss and gradient ({what})"
        raise diverged(progress.step + 1, what)

    def _save(self) -> None:
        if self.world.is_first and self.saved_step != self.progress.step:
            self.store.save(self.network, self.optimizer, self.progress)
            self.saved_step, self.saved_at = self.progress.step, time.monotonic()

    def _stop(self, why: str) -> NoReturn:
        check_weights(self.network, self.progress.step, self.world)
        self._save()
        self.world.wait()  # torchrun ends all processes once one has ended
        raise Stopped(
            f"stopped after step {self.progress.step:,} of {self.config.steps:,} ({why}): checkpoint saved. "
            "Run the same command again to resume",
            silent=not self.world.is_first,
        )


def backward(
    parallel: nn.Module,
    objective: Objective,
    batches: list[Batch],
    totals: dict[str, float],
    world: World,
    cast: Any,
) -> Tensor:
    """Accumulate a step's gradients over micro-batches and processes; return this process's loss part."""
    step_loss = torch.zeros((), device=world.device)
    for number, batch in enumerate(batches):
        waits = number + 1 < len(batches) and isinstance(
            parallel, DistributedDataParallel
        )
        with parallel.no_sync() if waits else nullcontext():  # type: ignore[operator]
            with cast:
                loss = objective.loss(parallel, on_device(batch, world.device), totals)
            # DDP averages gradients over processes, and the loss is already divided by global counts.
            (loss * world.size).backward()  # type: ignore[no-untyped-call]
        step_loss += loss.detach()
    return step_loss


def prefetched(
    objective: Objective, config: TrainingConfig, world: World, first_step: int
) -> Iterator[tuple[int, list[Batch]]]:
    """Batches of this process by step; the next step's batches are prepared during the current step."""
    count = config.grad_accumulation
    # As even as possible; if not divisible, some micro-batches have one more example.
    first, *ends = (
        config.batch_size * number // (world.size * count)
        for number in range(world.rank * count, (world.rank + 1) * count + 1)
    )
    sizes = np.diff([first, *ends]).tolist()

    def make(step: int) -> list[Batch]:
        batch = objective.batch(step, first, sum(sizes))
        if count == 1:
            return [pinned(batch, world.device)]
        # An example may have several rows, as in a step with shorter inputs.
        rows_per_example = len(batch["lengths"]) // sum(sizes)
        micro_batches = by_length(
            batch["lengths"], [rows_per_example * size for size in sizes]
        )
        return [
            pinned(objective.part(batch, rows), world.device) for rows in micro_batches
        ]

    steps = range(first_step, config.steps)
    yield from zip(steps, ahead(make, steps, None), strict=True)


def _broadcast_moments(optimizer: torch.optim.Optimizer, world: World) -> None:
    """Give every process the moments that the first one has read."""
    parameters = [
        parameter for group in optimizer.param_groups for parameter in group["params"]
    ]
    # Parameters that never affected a loss have no moments.
    numbers = world.first(
        lambda: [n for n, one in enumerate(parameters) if one in optimizer.state]
    )
    for number in numbers:
        parameter = parameters[number]
        moments = fresh_moments(optimizer, parameter)
        if world.is_first:
            # Adafactor counts its steps on the host, where GPU processes cannot broadcast them.
            state = optimizer.state[parameter]
            state["step"] = state["step"].to(parameter.device)
        else:
            optimizer.state[parameter] = moments
        world.overwrite(optimizer.state[parameter][name] for name in moments)
