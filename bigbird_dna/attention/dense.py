"""The oracle: the full matrix of scores, a boolean mask and an explicit softmax, one sequence at a time.

Nothing here is fast. Every other route must agree with it in value and in gradient.
"""

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import pad

from bigbird_dna.attention.pattern import Pattern

# Axes: B batch, H heads, L tokens, K head width.


def dense_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern,
    lengths: tuple[int, ...],
    layer: int = 0,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(QKᵀ / √K) V over the pairs that `pattern` allows; (B, H, L, K) → (B, H, L, K).

    Each row of the batch is cut to its true length first, so that it can't depend on padding or on other
    rows; positions from its length on are zero. The softmax is taken in the precision of `q`.
    Dropout acts on the probabilities and draws from torch's global generator.
    """
    heads, tokens, width = q.shape[1:]
    rows = []
    for row, length in enumerate(lengths):
        query, key, value = (x[row, :, :length] for x in (q, k, v))
        allowed = torch.from_numpy(pattern.mask(length, heads, layer)).to(q.device)
        scores = query @ key.transpose(1, 2) * width**-0.5  # (H, L, L)
        scores = scores.masked_fill(~allowed, -torch.inf)
        weights = drop(torch.softmax(scores, dim=-1), p=dropout)
        rows.append(pad(weights.to(value.dtype) @ value, (0, 0, 0, tokens - length)))
    return torch.stack(rows)
