"""One vector of several: of all tokens of a span, of all but one, of all up to each.

Axes: S tokens, K components. `there` (…, S) is false where a span has no token; what stands there doesn't
matter as long as it is finite. The vector of no tokens is zero.
"""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

Pooling = Literal["max", "mean", "deepsets_max", "deepsets_mean"]


def pool(x: Tensor, there: Tensor, largest: bool) -> Tensor:
    """Maximum, or mean, of the tokens that are there, (…, S, K) → (…, K)."""
    if largest:
        return _filled(_hidden(x, there).amax(-2))
    return x.masked_fill(~there[..., None], 0).sum(-2) / there.sum(-1, keepdim=True).clamp(min=1)


def pool_others(x: Tensor, there: Tensor, largest: bool) -> Tensor:
    """For each token maximum, or mean, of the others that are there, (…, S, K) → (…, S, K)."""
    if not largest:
        x = x.masked_fill(~there[..., None], 0)
        others = there.sum(-1, keepdim=True) - there.long()
        return (x.sum(-2, keepdim=True) - x) / others.clamp(min=1)[..., None]
    x = _hidden(x, there)
    first, place = x.max(-2, keepdim=True)
    own = place == torch.arange(x.shape[-2], device=x.device)[:, None]
    second = x.masked_fill(own, -math.inf).amax(-2, keepdim=True)
    return _filled(torch.where(own, second, first))


def pool_up_to(x: Tensor, largest: bool) -> Tensor:
    """For each token maximum, or mean, of those up to itself, (…, S, K) → (…, S, K)."""
    if largest:
        return x.cummax(-2).values
    return x.cumsum(-2) / torch.arange(1, x.shape[-2] + 1, device=x.device)[:, None]


def shifted(x: Tensor) -> Tensor:
    """What the token before has; zero for the first, (…, S, K) → (…, S, K)."""
    return pad(x[..., :-1, :], (0, 0, 1, 0))


def _hidden(x: Tensor, there: Tensor) -> Tensor:
    return x.masked_fill(~there[..., None], -math.inf)


def _filled(x: Tensor) -> Tensor:
    """Zero where nothing was there."""
    return x.masked_fill(x == -math.inf, 0)
