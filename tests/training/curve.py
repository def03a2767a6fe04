"""A training that is quick: it fits a curve. What tests of the loop and of checkpoints have in common."""

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bigbird_dna.config.training import OptimizerConfig, TrainingConfig
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import (
    STATE,
    Batch,
    make_optimizer,
    read_checkpoint,
    train_network,
)
from bigbird_dna.training.task import Task

ALONE = World(0, 1, torch.device("cpu"))
CONFIG = TrainingConfig(
    evaluate_every=250,
    steps=12,
    batch_size=4,
    checkpoint_minutes=0,
    precision="float32",
    optimizer=OptimizerConfig(learning_rate=0.1, warmup_steps=1),
)


class Curve(Task[nn.Module, None]):
    """Fits a curve; a training of it may be ended before its time."""

    config = CONFIG

    def __init__(
        self,
        end: int = 10**9,
        change: Callable[[int, Tensor], Tensor] | None = None,
        spoiled: int = 0,
        **figures: float,
    ) -> None:
        """`change` makes another loss of a step's, counted from 1; after `spoiled` a weight is no number;
        `figures` are held-out ones."""
        self.end, self.change, self.spoiled, self.figures = (
            end,
            change,
            spoiled,
            figures,
        )

    def batch(self, step: int, first: int, count: int) -> Batch:
        x = torch.arange(first, first + count, dtype=torch.float32)[:, None] / 4 + step
        return {"ids": x, "lengths": torch.ones(count), "step": torch.tensor(step)}

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"rows": float(len(batch["ids"]))}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        if batch["step"] >= self.end:
            raise KeyboardInterrupt
        loss = (network(batch["ids"]) - batch["ids"].sin()).square().sum() / totals[
            "rows"
        ]
        step = int(batch["step"]) + 1
        if step == self.spoiled:
            network.state_dict()["2.bias"].fill_(math.nan)
        return loss if self.change is None else self.change(step, loss)

    def evaluate(self, network: nn.Module, world: World) -> dict[str, float]:
        return self.figures

    def identity(self) -> dict[str, Any]:
        return {}

    def build(self) -> nn.Module:
        return fresh(self.config)[0]


def fresh(config: TrainingConfig = CONFIG) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))
    return network, make_optimizer(network, config.optimizer)


def weights(network: nn.Module) -> list[float]:
    return [
        x for value in network.state_dict().values() for x in value.flatten().tolist()
    ]


def run(
    directory: Path,
    task: Curve | None = None,
    config: TrainingConfig = CONFIG,
    world: World = ALONE,
) -> list[float]:
    """Train, or go on, up to where the task ends; all weights."""
    network, _ = fresh()
    task = task or Curve()
    task.config = config
    with suppress(KeyboardInterrupt):
        train_network(network, task, directory, world)
    return weights(network)


def state_of(directory: Path) -> dict[str, Any]:
    state: dict[str, Any] = read_checkpoint(directory / STATE)
    return state
