"""Longformer: a (dilated) window around each token, and global tokens.

Beltagy et al. 2020, arXiv 2004.05150, section 3. Token i attends to every j with |i - j| ≤ w D and i - j a
multiple of D, and to the first g tokens, in one softmax. These global tokens attend to every token, through
separate projections for queries, keys and values:

    o_i = Σ_j softmax_j(q'_i · k'_j / √K) v'_j,    q' = x W_q + b_q, k' = x W_k + b_k, v' = x W_v + b_v

computed from the layer's input x, without rotary positions.

A dilated window is a plain window on each of D interleaved sequences. These are cut into blocks; the queries
of a block attend to keys from `reach` before it to `reach` after it.

Axes: B batch, H heads, L tokens, D interleaved sequences or hidden width, N blocks, S tokens per block, W
keys per block, G global tokens, K head width. Time per head is L (W + G) K.
"""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad

from bigbird_dna.attention.mechanism import (
    AttentionLayer,
    hide,
    scores,
    weigh,
    weigh_together,
)
from bigbird_dna.config.mechanisms import LayerShape, Mechanism
from bigbird_dna.config.section import Section

SMALLEST = 32
"""Minimum tokens per block; smaller blocks lead to slower matrix products."""


def _interleaved(x: Tensor, dilation: int, size: int) -> Tensor:
    """(B, H, L, …) → (B, H, D, N S, …): token i is number i div D of sequence i mod D."""
    x = pad(x, (0, 0, 0, -x.shape[2] % (dilation * size)))
    return torch.unflatten(x, 2, (-1, dilation)).transpose(2, 3)


def _blocks(x: Tensor, dilation: int, size: int) -> Tensor:
    return torch.unflatten(_interleaved(x, dilation, size), 3, (-1, size))


def _around(x: Tensor, dilation: int, size: int, before: int, after: int) -> Tensor:
    """Vectors in and around each block, (B, H, L, K) → (B, H, D, N, before + S + after, K)."""
    x = pad(_interleaved(x, dilation, size), (0, 0, before, after))
    return x.unfold(3, before + size + after, size).transpose(-1, -2)


class LongformerOptions(Section):
    """Options of the window and the global tokens."""

    window: int = Field(default=64, ge=1, description="tokens attended to on each side")
    dilation: int = Field(
        default=1, ge=1, description="distance between keys of the window, in tokens"
    )
    global_tokens: int = Field(
        default=1, ge=0, description="first tokens that attend to all and vice versa"
    )


class Longformer(AttentionLayer):
    """A window, optionally dilated, and global tokens."""

    def __init__(self, shape: LayerShape, options: LongformerOptions) -> None:
        super().__init__(shape, options)
        if options.global_tokens:
            self.query = nn.Linear(shape.hidden, shape.hidden)
            self.key = nn.Linear(shape.hidden, shape.hidden)
            self.value = nn.Linear(shape.hidden, shape.hidden)

    def compute(
        self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, dropout: float
    ) -> Tensor:
        tokens = q.shape[2]
        options = self.options
        causal = self.shape.causal
        globals_ = options.global_tokens
        # Positions beyond the ends of the sequence need no room; without any other, the window is the token
        # itself, and interleaving is unnecessary.
        reach = min(options.window, tokens // options.dilation)
        dilation = options.dilation if reach else 1
        position = torch.arange(tokens, device=q.device)
        size = max(reach, SMALLEST)
        after = 0 if causal else reach

        blocks = _blocks(q, dilation, size)  # (B, H, D, N, S, K)
        keys = _around(k, dilation, size, reach, after)  # (B, H, D, N, W, K)
        values = _around(v, dilation, size, reach, after)
        near_present = (present & (position >= globals_))[..., None]
        seen = _around(near_present, dilation, size, reach, after)[
            ..., 0
        ]  # (B, 1, D, N, W)
        key = torch.arange(size + reach + after, device=q.device)
        offset = key - torch.arange(size, device=q.device)[:, None]
        band = (offset >= 0) & (offset <= reach + after)
        near = hide(scores(blocks, keys), seen[..., None, :] & band)

        front = slice(0, min(globals_, tokens))
        far = blocks[..., :0]  # scores of global tokens, (B, H, D, N, S, G)
        if globals_:
            seen_far = present[..., None, front]  # (B, 1, 1, G)
            if causal:
                seen_far = seen_far & (position[:, None] >= position[front])

            far = _blocks(hide(scores(q, k[:, :, front]), seen_far), dilation, size)

        near, far = weigh_together([near, far], dropout)

        def joined(x: Tensor) -> Tensor:
            """(B, H, D, N, S, …) → (B, H, L, …)."""
            return x.flatten(3, 4).transpose(2, 3).flatten(2, 3)[:, :, :tokens]

        out = joined(near @ values)
        return out + joined(far) @ v[:, :, front] if globals_ else out

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        dropout: float = 0.0,
        hidden: Tensor | None = None,
    ) -> Tensor:
        """Attention of q, k, v (B, H, L, K) → (B, H, L, K), zero at padding; see `config.mechanisms`."""
        out = super().forward(q, k, v, lengths=lengths, dropout=dropout)
        tokens = q.shape[2]
        front = min(self.options.global_tokens, tokens)
        if not front or not len(out):
            return out

        assert hidden is not None
        position = torch.arange(tokens, device=q.device)
        ends = [tokens] * len(q) if lengths is None else lengths
        present = position < torch.as_tensor(ends, device=q.device)[:, None]
        seen = present[:, None, None]  # (B, 1, 1, L)
        if self.shape.causal:
            seen = seen & (position <= position[:front, None])

        def project(projection: nn.Linear, x: Tensor) -> Tensor:
            """(B, L, D) → (B, H, L, K)."""
            # Outside autocast, a projection needs inputs of the type of its weights.
            x = projection(x.to(projection.weight.dtype))
            return torch.unflatten(x, 2, (self.shape.heads, -1)).transpose(1, 2)

        query = project(self.query, hidden[:, :front])
        score = scores(query, project(self.key, hidden))
        weights = weigh(hide(score, seen), dropout).to(out.dtype)
        first = weights @ project(self.value, hidden).to(out.dtype)
        hidden_rows = ~present[:, None, :front, None]
        out[:, :, :front] = first.masked_fill(hidden_rows, 0).to(out.dtype)

        return out


MECHANISMS = (
    Mechanism(
        "longformer", LongformerOptions, Longformer, "L · (K + window + global_tokens)"
    ),
)
