"""The training loop: plain torch, one or more processes, killed and resumed without a trace in the result.

All randomness of step s is drawn from generators seeded by (seed, s, …): the data position and the state of
every generator are functions of the step, so a checkpoint needs weights, moments and the step alone.
"""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bigbird_dna.config import TrainingConfig
from bigbird_dna.console import log as log_line
from bigbird_dna.errors import ConfigError, DataError, ModelError
from bigbird_dna.training.distributed import World, autocast
from bigbird_dna.training.estimate import duration, matrix_rate, training_seconds
from bigbird_dna.training.log import TrainingLog
from bigbird_dna.training.memory import freed_memory_kept
from bigbird_dna.training.schedule import learning_rate, make_optimizer
from bigbird_dna.training.state import CheckpointStore, Progress

Batch = dict[str, Tensor]
LOG_STEPS = 10
_LONG, _TOO_LONG = 60.0, 86400.0  # seconds: an estimate is worth a line; a warning


class Objective(Protocol):
    """What is trained: batches, their loss, and figures on held-out data."""

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Examples `first … first + count` of a step's global batch, on the CPU, with `lengths`."""

    def counts(self, batch: Batch) -> dict[str, float]:
        """Numbers of loss terms in a batch; their sums over the global batch are the loss's divisors."""

    def loss(self, network: nn.Module, batch: Batch, totals: dict[str, float]) -> Tensor:
        """This batch's share of the global batch's loss."""

    def evaluate(self, network: nn.Module) -> dict[str, float]:
        """Figures on held-out data, equal on every process."""


@freed_memory_kept()
def train(
    network: nn.Module, objective: Objective, config: TrainingConfig, store: CheckpointStore, world: World
) -> Progress:
    """Train `network` in place for `config.steps` steps, or what is left of them.

    The global batch of a step is the same for any number of processes and micro-batches; without a checkpoint
    all of them begin with the weights of the first. The last evaluation, after the last step, is in the log.

    Raises
    ------
    ConfigError : `batch_size` can't be divided among the processes and micro-batches.
    DataError : the loss is not a number any more; the last checkpoint is still good.
    ModelError : the checkpoints are damaged, or the processes see different ones.
    """
    shares = world.size * config.accumulate
    if config.batch_size % shares:
        raise ConfigError(
            f"batch_size {config.batch_size} is not a multiple of {world.size} processes × "
            f"{config.accumulate} micro-batches"
        )
    network.to(world.device)
    optimizer = make_optimizer(network, config.optimizer)
    progress = store.restore(network, optimizer)
    if len(steps := set(world.gather(progress.step))) > 1:
        found = " and ".join(map(str, sorted(steps)))
        raise ModelError(
            f"{store.directory}: the processes found checkpoints of steps {found}: all must see the same "
            "directory"
        )
    # It gives all processes the weights of the first.
    parallel = DistributedDataParallel(network) if world.size > 1 else network
    log = TrainingLog(store.log_path, progress, config.steps) if world.is_first else None
    cast = autocast(world.device, config.precision)

    begin = progress.step
    for step, batches in _prefetched(objective, config, world, begin):
        if step == begin and log:
            _say_how_long(network, batches, config.steps - begin, world)
        network.train()
        torch.manual_seed(_step_seed(config.seed, step, world.rank))
        rate = learning_rate(step, config.steps, config.optimizer)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = _backward(parallel, objective, batches, world, cast)
        nn.utils.clip_grad_norm_(network.parameters(), config.optimizer.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        _count(progress, step, loss, batches, world)
        done = progress.step == config.steps
        if progress.step % LOG_STEPS == 0 or done:
            mean = progress.loss_sum / progress.loss_steps
            progress.loss_sum, progress.loss_steps = 0.0, 0
            if log:
                log.training(progress, loss=mean, learning_rate=rate)
        if progress.step % config.evaluate_every == 0 or done:
            values = evaluate(network, objective, cast)
            if log:
                log.evaluation(progress, values)
        if (progress.step % config.checkpoint_every == 0 or done) and world.is_first:
            store.save(network, optimizer, progress)
    world.wait()
    network.eval()
    return progress


def _say_how_long(network: nn.Module, batches: list[Batch], steps: int, world: World) -> None:
    """Before the first step on a CPU, which is where large networks take years."""
    if world.device.type != "cpu":
        return
    tokens = sum(int(batch["lengths"].sum()) for batch in batches)
    seconds = training_seconds(network, tokens, steps, matrix_rate())
    if seconds < _LONG:
        return
    parameters = sum(parameter.numel() for parameter in network.parameters())
    line = (
        f"{steps:,} steps of {tokens * world.size:,} tokens with {parameters:,} parameters will take about "
        f"{duration(seconds)} on this CPU"
    )
    if seconds < _TOO_LONG:
        log_line(line)
    else:
        log_line(
            f"warning: {line}; a smaller encoder (as in workflow/config/minimal.yaml) or a GPU takes less"
        )


def _backward(
    parallel: nn.Module, objective: Objective, batches: list[Batch], world: World, cast: Any
) -> Tensor:
    """Add up a step's gradients over micro-batches and processes; returns this process's part of the loss."""
    totals = world.sum(_added([objective.counts(batch) for batch in batches]))
    step_loss = torch.zeros((), device=world.device)
    for number, batch in enumerate(batches):
        waits = number + 1 < len(batches) and isinstance(parallel, DistributedDataParallel)
        with parallel.no_sync() if waits else nullcontext():  # type: ignore[operator]
            with cast:
                loss = objective.loss(parallel, _moved(batch, world.device), totals)
            # DDP averages gradients over processes, and the loss is already divided by global counts.
            (loss * world.size).backward()  # type: ignore[no-untyped-call]
        step_loss += loss.detach()
    return step_loss


def _count(progress: Progress, step: int, loss: Tensor, batches: list[Batch], world: World) -> None:
    """Add a step to `progress`; `DataError` if its loss, over all processes, is not a number."""
    tokens = float(sum(int(batch["lengths"].sum()) for batch in batches))
    sums = world.sum({"loss": loss.item(), "tokens": tokens})
    if not math.isfinite(sums["loss"]):
        # Before anything is saved: the last checkpoint is still good.
        raise DataError(
            f"step {step + 1}: the loss is {sums['loss']}: training has diverged; "
            "a lower learning_rate or a longer warm-up may help"
        )
    progress.step = step + 1
    progress.tokens += int(sums["tokens"])
    progress.loss_sum += sums["loss"]
    progress.loss_steps += 1


def evaluate(network: nn.Module, objective: Objective, cast: Any) -> dict[str, float]:
    """Held-out figures without gradients or dropout."""
    network.eval()
    with torch.inference_mode(), cast:
        return objective.evaluate(network)


def _prefetched(
    objective: Objective, config: TrainingConfig, world: World, first_step: int
) -> Iterator[tuple[int, list[Batch]]]:
    """Batches of this process by step; the next step's are made while the current one computes."""
    share = config.batch_size // (world.size * config.accumulate)
    start = world.rank * share * config.accumulate

    def make(step: int) -> list[Batch]:
        return [objective.batch(step, start + m * share, share) for m in range(config.accumulate)]

    if first_step >= config.steps:
        return
    with ThreadPoolExecutor(max_workers=1) as pool:
        upcoming = pool.submit(make, first_step)
        for step in range(first_step, config.steps):
            batches = upcoming.result()
            if step + 1 < config.steps:
                upcoming = pool.submit(make, step + 1)
            yield step, batches


def _step_seed(seed: int, step: int, rank: int) -> int:
    return (seed * 1_000_003 + step) * 4096 + rank


def _added(items: list[dict[str, float]]) -> dict[str, float]:
    return {key: sum(item[key] for item in items) for key in items[0]}


def _moved(batch: Batch, device: torch.device) -> Batch:
    return {key: value.to(device, non_blocking=True) for key, value in batch.items()}
