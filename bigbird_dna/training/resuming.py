"""Where a training goes on: the first process finds it out and tells the others."""

import torch
from torch import nn

from bigbird_dna.training.distributed import World
from bigbird_dna.training.state import CheckpointStore, Progress

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def resume(
    store: CheckpointStore, network: nn.Module, optimizer: torch.optim.Optimizer, world: World
) -> Progress:
    """Load the last checkpoint on the first process; its progress and moments, on every process.

    No other process looks at the directory. The weights of the first one are the others' once the network is
    wrapped to train in parallel.

    Raises
    ------
    ModelError
        On every process: there are checkpoints, and none of them can be gone on from.
    """
    progress = world.first(lambda: store.restore(network, optimizer))
    if world.size > 1 and progress.step:
        _share_moments(optimizer, world)
    return progress


def _share_moments(optimizer: torch.optim.Optimizer, world: World) -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    # A parameter that no loss has depended on has none.
    numbers = world.first(lambda: [n for n, one in enumerate(parameters) if one in optimizer.state])
    for number in numbers:
        one = parameters[number]
        if not world.is_first:
            step = torch.zeros((), device=one.device)
            optimizer.state[one] = dict(
                zip(_MOMENTS, (step, torch.zeros_like(one), torch.zeros_like(one)), strict=True)
            )
        world.overwrite(optimizer.state[one][name] for name in _MOMENTS)
