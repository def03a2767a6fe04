"""The matrix that an attention multiplies values by, of any mechanism, from what it gives."""

from collections.abc import Callable

import torch
from torch import Tensor

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def effective_matrix(attend: Attend, q: Tensor, k: Tensor) -> Tensor:
    """A with out = A v, (B, H, L, K) twice → (B, H, L, L), for an attention that is linear in v.

    `attend(q, k, v)` is called ⌈L / K⌉ times, with as many columns of the identity matrix as v has room for.
    For pictures and tests: it takes the room of all pairs.
    """
    tokens, width = q.shape[2:]
    columns = []
    for start in range(0, tokens, width):
        v = torch.zeros_like(q)
        count = min(width, tokens - start)
        v[:, :, torch.arange(start, start + count), torch.arange(count)] = 1
        columns.append(attend(q, k, v)[..., :count])
    return torch.cat(columns, -1)
