"""What a step has: its examples, cut into a process's micro-batches, its learning rate and optimizer.

Axes: N rows of a process, n those of a micro-batch, L tokens.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bigbird_dna.config import OptimizerConfig

Batch = dict[str, Tensor]

HOST = ("lengths", "spans")
"""Tensors of a batch that stay on the CPU, as work is planned by them: reading them from a GPU would wait for
all that it has to do before."""

TOKENS = ("ids", "segments", "base_starts")
"""Tensors of a batch that have a number for each token, (N, L)."""


def by_length(lengths: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Numbers of rows (n,) for micro-batches of these sizes, of like lengths (N,), the longest and largest
    first."""
    order = torch.argsort(lengths, descending=True, stable=True)
    return [order[first:end] for first, end in pairwise(accumulate(sizes, initial=0))]


def take_rows(batch: Batch, rows: Tensor) -> Batch:
    """Some rows of a batch whose tensors are all by row, without the padding that all of these have."""
    longest = int(batch["lengths"][rows].max())
    return {
        name: value[rows, :longest].contiguous() if name in TOKENS else value[rows]
        for name, value in batch.items()
    }


def pinned(batch: Batch, device: torch.device) -> Batch:
    """A batch where a GPU can fetch it by itself; for other devices the same batch."""
    if device.type != "cuda":
        return batch
    torch.cuda.set_device(device)  # of this thread, else memory is taken on the first GPU
    return {name: value.pin_memory() for name, value in batch.items()}


def on_device(batch: Batch, device: torch.device) -> Batch:
    """A batch on a device, but for what `HOST` names; the host doesn't wait for it."""
    return {
        name: value if name in HOST else value.to(device, non_blocking=True) for name, value in batch.items()
    }


class Epochs:
    """Indices of examples, epoch after epoch, each in an order of its own.

    `members` gives those of an epoch by its number, at least `size`; of more than that a part is left out.
    """

    def __init__(self, seed: int, size: int, members: Callable[[int], npt.NDArray[np.integer]]) -> None:
        self.size = size

        @lru_cache(maxsize=1)
        def order(number: int) -> npt.NDArray[np.integer]:
            return np.random.default_rng((seed, 2, number)).permutation(members(number))[:size]

        self._order = order

    def indices(self, first: int, count: int) -> list[int]:
        """Those at the places `first … first + count` of all epochs in a row."""
        places = (divmod(place, self.size) for place in range(first, first + count))
        return [int(self._order(epoch)[place]) for epoch, place in places]


def learning_rate(step: int, steps: int, config: OptimizerConfig) -> float:
    """Linear warm-up, cut to the training's length, then linear decay to zero; `step` counts from 0."""
    warmup = min(config.warmup_steps, steps)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    return config.learning_rate * (steps - step) / max(1, steps - warmup)


def make_optimizer(network: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW or Adafactor, with decay on matrices only: biases and LayerNorm weights have none, as in BERT.

    Adafactor (Shazeer and Stern 2018) keeps no first moment and of the second the means of rows and columns;
    its rates are relative to the size of the weights.
    """
    decayed = [p for p in network.parameters() if p.requires_grad and p.dim() >= 2]
    others = [p for p in network.parameters() if p.requires_grad and p.dim() < 2]
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    if config.method == "adafactor":
        return torch.optim.Adafactor(groups, lr=config.learning_rate)
    # One pass over each tensor: on a CPU an eighth of the time of the plain one.
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.999), eps=1e-8, fused=True)


def fresh_moments(optimizer: torch.optim.Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """What an optimiser keeps of a parameter, as it is before the first step; on the parameter's device."""
    step = torch.zeros((), device=parameter.device)
    if not isinstance(optimizer, torch.optim.Adafactor):
        first, second = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return {"step": step, "exp_avg": first, "exp_avg_sq": second}
    if parameter.dim() < 2:
        return {"step": step, "variance": torch.zeros_like(parameter)}
    rows, columns = parameter[..., :1], parameter[..., :1, :]
    return {"step": step, "row_var": torch.zeros_like(rows), "col_var": torch.zeros_like(columns)}
