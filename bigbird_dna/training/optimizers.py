"""The learning rate over the steps, and the optimisers, with what decays and what they keep."""

import torch
from torch import Tensor, nn

from bigbird_dna.config import OptimizerConfig


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
