"""How many products with weights a network makes of a window: what its training takes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


def count_products(network: nn.Module, example: Tensor) -> int:
    """Products with weights of convolutions, dense layers and LSTMs in a forward pass over `example`."""
    counted = 0

    def count(module: nn.Module, given: tuple[Tensor, ...], result: Any) -> None:
        nonlocal counted
        weights = sum(one.numel() for one in module.parameters(recurse=False) if one.dim() > 1)
        if isinstance(module, nn.Conv1d):
            counted += weights * result.shape[0] * result.shape[2]
        elif isinstance(module, nn.Linear):
            counted += weights * math.prod(result.shape[:-1])
        elif isinstance(module, nn.LSTM):
            counted += weights * given[0].shape[0] * given[0].shape[1]

    handles = [module.register_forward_hook(count) for module in network.modules()]
    training = network.training
    with torch.no_grad():
        network.eval()(example)
    network.train(training)
    for handle in handles:
        handle.remove()
    return counted
