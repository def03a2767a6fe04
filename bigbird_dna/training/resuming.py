"""Where a training goes on: the first process finds it out and tells the others."""

import torch
from torch import nn

from bigbird_dna.training.distributed import World
from bigbird_dna.training.optimizers import fresh_moments
from bigbird_dna.training.state import CheckpointStore, Progress


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
        fresh = fresh_moments(optimizer, one)
        if world.is_first:
            # Adafactor counts its steps on the host, where a GPU's processes can't share them.
            found = optimizer.state[one]
            found["step"] = found["step"].to(one.device)
        else:
            optimizer.state[one] = fresh
        world.overwrite(optimizer.state[one][name] for name in fresh)
