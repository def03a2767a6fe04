"""The training loop: plain torch, one or more processes, identical results after a kill and resume.

All random numbers of step s come from generators seeded by (seed, s, …): a checkpoint needs only weights,
moments and step.
"""

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bigbird_dna.attention.call import copied
from bigbird_dna.config.training import OptimizerConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.outputs import naming_errors
from bigbird_dna.errors import ConfigError, DataError, ModelError, Stopped
from bigbird_dna.gpus import freed_memory_kept
from bigbird_dna.model.inference import ahead
from bigbird_dna.training.distributed import Stopping, World, autocast
from bigbird_dna.training.log import LOG, Progress, TrainingLog, chosen_kernels

if TYPE_CHECKING:
    from bigbird_dna.training.task import Task

Batch = dict[str, Tensor]

HOST = ("lengths", "spans")
"""Batch tensors that stay on the CPU, because they determine the work plan: reading them from a GPU would
wait for all its pending work."""

STATE, BEST = "state.pt", "best.pt"
"""Files of a checkpoint: weights, moments and progress; and the weights with the lowest held-out loss."""

LOG_STEPS = 10
MAX_SKIPPED = 10
"""Number of consecutive steps with a loss or gradient that is not finite after which a training ends."""


def learning_rate(step: int, steps: int, config: OptimizerConfig) -> float:
    """Linear warm-up, at most as long as the training, then linear decay to zero; `step` counts from 0."""
    warmup = min(config.warmup_steps, steps)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    return config.learning_rate * (steps - step) / max(1, steps - warmup)


def make_optimizer(network: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW; weight decay excludes biases and LayerNorm weights, as in BERT."""
    trained = [p for p in network.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {
            "params": [p for p in trained if p.dim() >= 2],
            "weight_decay": config.weight_decay,
        },
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]
    # Fused: one pass over each tensor, an eighth of the default's time on a CPU.
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, betas=(0.9, 0.999), eps=1e-8, fused=True
    )


@freed_memory_kept()
def train_network(
    network: nn.Module,
    task: "Task[Any, Any]",
    directory: Path,
    world: World,
) -> Progress:
    """Train `network` in place for `task.config.steps` steps, or the remaining ones; return the progress.

    The checkpoint and the log are in `directory`, which only the first process reads and writes; all
    processes begin with its weights. A step's global batch is the same for any number of processes and
    micro-batches. If the task keeps the best weights, they are those of the evaluation with the lowest
    held-out loss, and with `patience` training ends after as many evaluations in a row with a loss a tenth
    above it. A step whose loss or gradient is not finite is counted but changes nothing.

    `ConfigError`: `batch_size` cannot be divided. `DataError`: `MAX_SKIPPED` steps in a row (or all steps)
    without a finite loss and gradient, or weights or a held-out loss that are not finite; any remaining
    checkpoint has finite weights. `ModelError`: the checkpoint is damaged. `Stopped`: SIGTERM was received,
    or the Slurm job ends soon; every process stops after the same step, and a checkpoint is saved.
    """
    config = task.config
    if config.batch_size < world.size * config.grad_accumulation:
        raise ConfigError(
            f"batch_size {config.batch_size}: must be at least {world.size} processes × "
            f"{config.grad_accumulation} micro-batches"
        )

    network.to(world.device)
    optimizer = make_optimizer(network, config.optimizer)
    progress = Progress()
    state = world.first(lambda: read_checkpoint(directory / STATE))
    if state is not None:
        try:
            network.load_state_dict(state["network"])
            # Optimizer settings come from the configuration, regardless of the checkpoint.
            groups = optimizer.state_dict()["param_groups"]
            moments = state["optimizer"]["state"]
            optimizer.load_state_dict({"state": moments, "param_groups": groups})
            progress = Progress(**state["progress"])
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            raise _damaged(directory / STATE) from error

        if world.is_first:
            log(f"resuming at step {progress.step} from {directory / STATE}")

    training_log: TrainingLog | None = None
    if world.is_first:
        training_log = TrainingLog(directory / LOG, progress, config.steps)

    # Broadcasts the first process's weights to all.
    parallel = DistributedDataParallel(network) if world.size > 1 else network
    cast = autocast(world.device, config.precision)
    patience = task.patience if task.keeps_best else None
    saved_at = time.monotonic()

    def diverged(what: str) -> DataError:
        return DataError(
            f"step {progress.step}: {what}: training has diverged; try a lower learning_rate or a longer "
            "warm-up"
        )

    def save() -> None:
        if world.is_first:
            values = {
                "network": network.state_dict(),
                "optimizer": optimizer.state_dict(),
                "progress": vars(progress),
            }
            write_checkpoint(directory / STATE, values)

    ended = patience is not None and progress.worse >= patience
    steps = range(progress.step, progress.step if ended else config.steps)
    with (
        Stopping() as stopping,
        chosen_kernels(network, config, world, progress),
    ):
        for step, batches in zip(steps, prefetched(task, world, steps), strict=False):
            counts = [task.counts(batch) for batch in batches]
            totals = world.sum(
                {name: sum(one[name] for one in counts) for name in counts[0]}
            )
            rate = learning_rate(step, config.steps, config.optimizer)
            for group in optimizer.param_groups:
                group["lr"] = rate

            network.train()
            torch.manual_seed((config.seed * 1_000_003 + step) * 4096 + world.rank)
            loss = backward(parallel, task, batches, totals, world, cast)
            norm = nn.utils.clip_grad_norm_(
                network.parameters(), config.optimizer.clip_norm
            )
            # Decided on the device, as for gradient scaling, without waiting for pending work.
            optimizer.grad_scale, optimizer.found_inf = None, (~norm.isfinite()).float()  # type: ignore[attr-defined]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

            # The first process decides when to save, because clocks differ.
            waited = time.monotonic() - saved_at
            sums = world.sum(
                {
                    "loss": loss.item(),
                    "tokens": float(sum(int(b["lengths"].sum()) for b in batches)),
                    "stop": float(stopping.is_due()),
                    "save": float(
                        world.is_first and waited >= 60 * config.checkpoint_minutes
                    ),
                }
            )
            progress.step += 1
            progress.tokens += int(sums["tokens"])
            last = progress.step == config.steps
            finite = math.isfinite(sums["loss"]) and bool(norm.isfinite())
            if finite:
                progress.skipped_in_row = 0
                progress.loss_sum += sums["loss"]
                progress.loss_steps += 1
            else:
                progress.skipped += 1
                progress.skipped_in_row += 1
                what = f"loss {sums['loss']:.4g}, gradient norm {norm.item():.4g}"
                in_row = progress.skipped_in_row
                if in_row >= min(MAX_SKIPPED, config.steps):
                    raise diverged(
                        f"{in_row} steps in a row had no finite loss and gradient ({what})"
                    )

                if world.is_first:
                    log(f"warning: step {progress.step} is skipped: {what}")

            if (progress.step % LOG_STEPS == 0 or last) and progress.loss_steps:
                mean = progress.loss_sum / progress.loss_steps
                progress.loss_sum, progress.loss_steps = 0.0, 0
                if training_log:
                    training_log.training(progress, loss=mean, learning_rate=rate)

            evaluates = last or progress.step % config.evaluation_steps == 0
            # Weights that give nothing finite may be of no use.
            saves = last or (sums["save"] > 0 and finite) or sums["stop"] > 0
            if evaluates or saves:
                # The loss was computed with the weights before the step.
                broken = not all(
                    bool(parameter.isfinite().all())
                    for parameter in network.parameters()
                )
                if world.sum({"broken": float(broken)})["broken"]:
                    raise diverged("the weights are not finite")

            if evaluates:
                began = time.monotonic()
                network.eval()
                with torch.inference_mode(), cast:
                    metrics = task.evaluate(network, world)

                for name, value in metrics.items():
                    # Other metrics, such as AUROC, need two classes.
                    if name.startswith(("loss", "bits")) and not math.isfinite(value):
                        raise diverged(f"the held-out {name} is {value}")

                if training_log:
                    training_log.evaluation(progress, metrics, time.monotonic() - began)

                if task.keeps_best:
                    held_out = next(
                        metrics[name]
                        for name in ("loss", "bits_per_base", "bits_per_character")
                        if name in metrics
                    )
                    if progress.is_best(held_out) and world.is_first:
                        write_checkpoint(directory / BEST, network.state_dict())

                ended = patience is not None and progress.worse >= patience
                if ended and not last and world.is_first:
                    log(
                        f"training ends at step {progress.step:,} of {config.steps:,}: in {progress.worse} "
                        "evaluations in a row, the held-out loss was a tenth above that of step "
                        f"{progress.best_step:,}"
                    )

            if saves or ended:
                save()
                saved_at = time.monotonic()

            if ended:
                break

            if sums["stop"]:
                world.wait()  # torchrun ends all processes once one has ended
                raise Stopped(
                    f"stopped after step {progress.step:,} of {config.steps:,} ({stopping.reason}): checkpoint "
                    "saved. Run the same command again to resume",
                    silent=not world.is_first,
                )

    if task.keeps_best:
        best = world.first(lambda: read_checkpoint(directory / BEST))
        network.load_state_dict(best)
        if world.is_first:
            log(
                f"weights of step {progress.best_step:,} of {progress.step:,} are kept: "
                f"lowest held-out loss {progress.best_loss:.4f}"
            )

    network.eval()
    return progress


def backward(
    parallel: nn.Module,
    task: "Task[Any, Any]",
    batches: list[Batch],
    totals: dict[str, float],
    world: World,
    cast: Any,
) -> Tensor:
    """Accumulate a step's gradients over micro-batches and processes; return this process's loss part."""
    step_loss = torch.zeros((), device=world.device)
    for number, batch in enumerate(batches):
        moved = {
            name: value if name in HOST else copied(value, world.device)
            for name, value in batch.items()
        }
        waits = number + 1 < len(batches) and isinstance(
            parallel, DistributedDataParallel
        )
        with parallel.no_sync() if waits else nullcontext():  # type: ignore[operator]
            with cast:
                loss = task.loss(parallel, moved, totals)

            # DDP averages gradients over processes, and the loss is already divided by global counts.
            (loss * world.size).backward()  # type: ignore[no-untyped-call]

        step_loss += loss.detach()

    return step_loss


def prefetched(
    task: "Task[Any, Any]", world: World, steps: range
) -> Iterator[list[Batch]]:
    """Micro-batches of this process by step; a thread prepares the next step's during the current step."""
    count = task.config.grad_accumulation
    # As even as possible; if not divisible, some micro-batches have one more example.
    bounds = [
        task.config.batch_size * number // (world.size * count)
        for number in range(world.rank * count, (world.rank + 1) * count + 1)
    ]

    def make(step: int) -> list[Batch]:
        batches = []
        for first, end in pairwise(bounds):
            batch = task.batch(step, first, end - first)
            if world.device.type == "cuda":
                # For this thread; otherwise memory is allocated on the first GPU.
                torch.cuda.set_device(world.device)
                batch = {name: value.pin_memory() for name, value in batch.items()}
            batches.append(batch)
        return batches

    return ahead(make, steps, None)


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint; if killed at any time, it or the one before is intact.

    `DataError` if it cannot be written, such as on a full disk.
    """
    with (
        naming_errors(path),
        atomic_path(path) as temporary,
        temporary.open("wb") as stream,
    ):
        torch.save(state, stream)


def read_checkpoint(path: Path) -> Any:
    """The content of a file, on the CPU: tensors and plain containers, never code; None if there is none."""
    if not path.exists():
        return None
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise errors of any type
        raise _damaged(path) from error


def _damaged(path: Path) -> ModelError:
    return ModelError(
        f"{path}: damaged, or not a checkpoint; delete {path.parent} to train from the start"
    )
