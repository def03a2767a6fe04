"""How long a training will take on a CPU, said before its first step."""

import time

import torch
from torch import nn

_SIDE = 512
_SECONDS = 0.1  # of measuring
# Of the rate of matrix products; the demo's training reaches a third, that of large networks two thirds.
_SHARE_REACHED = 0.5
_FLOPS = 6  # a weight and token: a product and a sum, forward once and backward twice

_UNITS = (("years", 365.25 * 86400), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))


def matrix_rate() -> float:
    """Floating-point operations a second of float32 matrix products, with torch's present threads."""
    left = torch.ones(_SIDE, _SIDE)
    right = torch.ones(_SIDE, _SIDE)
    left @ right
    count, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < _SECONDS:
        left @ right
        count += 1
    return 2.0 * _SIDE**3 * count / took


def training_seconds(network: nn.Module, tokens: int, steps: int, rate: float) -> float:
    """Seconds that `steps` steps of `tokens` tokens take, within a factor of about two.

    Counted are the products with weights that every token goes through; attention itself, and a projection to
    the vocabulary, come on top. A network that isn't read token by token says itself how many products a
    token takes, as `products_a_token`.
    """
    if (told := getattr(network, "products_a_token", None)) is not None:
        return _FLOPS * float(told) * tokens * steps / (rate * _SHARE_REACHED)
    looked_up = {id(part.weight) for part in network.modules() if isinstance(part, nn.Embedding)}
    weights = sum(p.numel() for p in network.parameters() if p.dim() > 1 and id(p) not in looked_up)
    return _FLOPS * weights * tokens * steps / (rate * _SHARE_REACHED)


def duration(seconds: float) -> str:
    """In the largest unit of which there are two, to one or two digits: 3 days, 41 years."""
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} seconds"
