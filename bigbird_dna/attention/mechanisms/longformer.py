"""Longformer: a (dilated) window around each token, and global tokens.

Beltagy et al. 2020, arXiv 2004.05150, section 3. Token i attends to every j with |i - j| ≤ w D and i - j a
multiple of D, and to the first g tokens, in one softmax. These global tokens attend to every token, through
separate projections for queries, keys and values:

    o_i = Σ_j softmax_j(q'_i · k'_j / √K) v'_j,    q' = x W_q + b_q, k' = x W_k + b_k, v' = x W_v + b_v

computed from the layer's input x, without rotary positions. Keys and values of all tokens are never
materialized: q'_i · k'_j = (q'_i W_kᵀ) · x_j + q'_i · b_k, and o_i = (Σ_j a_ij x_j) W_v + (Σ_j a_ij) b_v.
This takes g products of a head with x instead of K. The term q'_i · b_k is the same for all keys and cancels.

A dilated window is a plain window on each of D interleaved sequences. These are cut into blocks; the queries
of a block attend to keys from `reach` before it to `reach` after it.

Axes: B batch, H heads, L tokens, D interleaved sequences or hidden width, N blocks, S tokens per block, W
keys per block, G global tokens, K head width. Time per head is L (W + G) K.
"""

import math
from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import dropout as drop
from torch.nn.functional import pad

from bigbird_dna.attention.call import effective_matrix
from bigbird_dna.attention.fast_paths import is_plain
from bigbird_dna.attention.mechanism import (
    Heads,
    HeadsLayer,
    hide,
    recomputed,
    scores,
    weigh,
)
from bigbird_dna.config.mechanisms import LayerShape, Mechanism
from bigbird_dna.config.section import Section

SMALLEST = 32
"""Minimum tokens per block; smaller blocks lead to slower matrix products."""
TOGETHER = 1024
"""Tokens of the blocks that are processed at once, and again in the backward pass."""


def window_attention(
    inputs: Heads, reach: int, dilation: int = 1, globals_: int = 0
) -> Tensor:
    """Window attention of a sequence, (B, H, L, K) → (B, H, L, K).

    A query attends to `reach` · `dilation` tokens on each side, every `dilation`-th one, and to the first
    `globals_` tokens, each counted once, in one softmax. Causal attention includes only those up to its own.
    """
    q, k, v, present = inputs.q, inputs.k, inputs.v, inputs.present
    tokens = q.shape[2]
    reach, dilation = within(tokens, reach, dilation)
    position = torch.arange(tokens, device=q.device)
    size = max(reach, SMALLEST)
    after = 0 if inputs.causal else reach
    front = slice(0, min(globals_, tokens))

    blocks = _blocks(q, dilation, size)  # (B, H, D, N, S, K)
    keys, values = (
        _around(x, dilation, size, reach, after) for x in (k, v)
    )  # (B, H, D, N, W, K)
    near_present = (present & (position >= globals_))[..., None]
    seen = _around(near_present, dilation, size, reach, after)[
        ..., 0
    ]  # (B, 1, D, N, W)
    key, query = (
        torch.arange(count, device=q.device) for count in (size + reach + after, size)
    )
    offset = key - query[:, None]
    band = (offset >= 0) & (offset <= reach + after)
    far = blocks[..., :0]  # scores of global tokens, (B, H, D, N, S, G)
    if globals_:
        seen_far = present[..., None, front]  # (B, 1, 1, G)
        if inputs.causal:
            seen_far = seen_far & (position[:, None] >= position[front])
        far = _blocks(hide(scores(q, k[:, :, front]), seen_far), dilation, size)

    def attend(
        blocks: Tensor, keys: Tensor, values: Tensor, seen: Tensor, far: Tensor
    ) -> Tensor:
        """Output of the windows, concatenated with the weights of global tokens."""
        near = hide(scores(blocks, keys), seen[..., None, :] & band)
        weights = weigh(torch.cat([near, far], -1), inputs.dropout)
        near, far = torch.split(weights, [near.shape[-1], far.shape[-1]], -1)
        return torch.cat([near @ values, far], -1)

    blocks_each = max(1, TOGETHER // size)
    groups = zip(
        *(torch.split(x, blocks_each, 3) for x in (blocks, keys, values, seen, far)),
        strict=True,
    )
    out = torch.cat(
        [recomputed(attend, *group) for group in groups], 3
    )  # (B, H, D, N, S, …)
    out = out.flatten(3, 4).transpose(2, 3).flatten(2, 3)[:, :, :tokens]
    out, far = torch.split(out, [v.shape[3], far.shape[-1]], -1)
    return out + far @ v[:, :, front] if globals_ else out


def within(tokens: int, reach: int, dilation: int) -> tuple[int, int]:
    """Reach and dilation of the same window, without positions beyond the ends of `tokens` tokens.

    If even the next key is out of range, the window is the token itself, and interleaving is unnecessary.
    """
    reach = min(reach, tokens // dilation)
    return reach, dilation if reach else 1


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


class Longformer(HeadsLayer):
    """A window, optionally dilated, and global tokens."""

    def __init__(self, shape: LayerShape, options: LongformerOptions) -> None:
        super().__init__(shape, options)
        self.globals = options.global_tokens

        def projection() -> nn.Linear | None:
            return nn.Linear(shape.hidden, shape.hidden) if self.globals else None

        self.query, self.key, self.value = projection(), projection(), projection()

    def size(self, tokens: int) -> tuple[int, int]:
        reach, dilation = within(tokens, self.options.window, self.options.dilation)
        size = max(reach, SMALLEST)
        padded = tokens + -tokens % (dilation * size)
        return padded, size + 2 * reach + min(self.globals, tokens)

    def attend(self, inputs: Heads) -> Tensor:
        options = self.options
        return window_attention(inputs, options.window, options.dilation, self.globals)

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
        if self.value is None or not len(out):
            return out
        assert hidden is not None
        front = min(self.globals, q.shape[2])
        weights = self.global_weights(hidden.to(out.dtype), lengths)
        weights = drop(weights, dropout) if dropout else weights
        if is_plain(self.value, nn.Linear):
            seen = torch.einsum("bhgl,bld->bhgd", weights, hidden.to(weights.dtype))
            by_head = torch.unflatten(
                self.value.weight.to(seen.dtype), 0, (self.shape.heads, -1)
            )  # (H, K, D)
            bias = torch.unflatten(
                self.value.bias.to(seen.dtype), 0, (self.shape.heads, 1, -1)
            )  # (H, 1, K)
            first = seen @ by_head.mT + weights.sum(-1, keepdim=True) * bias
        else:
            first = weights @ self._by_head(self.value(hidden)).to(weights.dtype)
        if lengths is not None:
            present = (
                torch.arange(front, device="cpu")
                < torch.as_tensor(lengths, device="cpu")[:, None]
            )
            first = first.masked_fill(~present[:, None, :, None].to(first.device), 0)
        out[:, :, :front] = first.to(out.dtype)
        return out

    def _by_head(self, x: Tensor) -> Tensor:
        return torch.unflatten(x, 2, (self.shape.heads, -1)).transpose(
            1, 2
        )  # (B, L, D) → (B, H, L, K)

    def global_weights(
        self, hidden: Tensor, lengths: Tensor | Sequence[int] | None
    ) -> Tensor:
        """Attention weights of the global tokens, from the layer's input (B, L, D): (B, H, G, L)."""
        assert self.query is not None and self.key is not None
        tokens, heads = hidden.shape[1], self.shape.heads
        front = min(self.globals, tokens)
        first = hidden[:, :front]
        if is_plain(self.query, nn.Linear):
            query = first @ self.query.weight.to(hidden.dtype).T + self.query.bias.to(
                hidden.dtype
            )
        else:
            query = self.query(first).to(hidden.dtype)
        query = self._by_head(query) / math.sqrt(self.shape.width)  # (B, H, G, K)
        if is_plain(self.key, nn.Linear):
            by_head = torch.unflatten(
                self.key.weight.to(hidden.dtype), 0, (heads, -1)
            )  # (H, K, D)
            score = torch.einsum("bhgd,bld->bhgl", query @ by_head, hidden)
        else:
            score = query @ self._by_head(self.key(hidden)).to(query.dtype).mT
        position = torch.arange(tokens, device=hidden.device)
        ends = [tokens] * len(hidden) if lengths is None else lengths
        seen = (position < torch.as_tensor(ends, device=position.device)[:, None])[
            :, None, None
        ]  # (B, 1, 1, L)
        if self.shape.causal:
            seen = seen & (position <= position[:front, None])
        return weigh(hide(score, seen))

    def matrix(self, q: Tensor, k: Tensor, hidden: Tensor) -> Tensor:
        """The effective matrix (B, H, L, L); rows of global tokens refer to their separate values."""
        local = effective_matrix(super().forward, q, k)
        if self.value is None:
            return local
        first = self.global_weights(hidden.to(q.dtype), None)
        return torch.cat([first, local[:, :, first.shape[2] :]], 2)


MECHANISMS = (
    Mechanism(
        "longformer", LongformerOptions, Longformer, "L · (K + window + global_tokens)"
    ),
)
