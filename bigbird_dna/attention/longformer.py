"""Longformer's attention as a module that a layer owns; see `config.mechanisms`.

Beltagy et al. 2020, arXiv 2004.05150, section 3. A token sees a window around it and the first g tokens, in
one softmax. These, the global ones, see every token, by queries, keys and values of projections of their own:

    o_i = Σ_j softmax_j(q'_i · k'_j / √K) v'_j,    q' = x W_q + b_q, k' = x W_k + b_k, v' = x W_v + b_v

which are made from the layer's input x, without rotary positions. Keys and values of all tokens are never
made: q'_i · k'_j = (q'_i W_kᵀ) · x_j + q'_i · b_k, and o_i = (Σ_j a_ij x_j) W_v + (Σ_j a_ij) b_v, which takes
g products of a head with x, not K. What q'_i · b_k adds is the same for all keys, and cancels.

Axes: B batch, H heads, L tokens, G global tokens, K head width, D hidden width.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop

from bigbird_dna.attention.effective import effective_matrix
from bigbird_dna.attention.joint import Problem, hide, weigh
from bigbird_dna.attention.planned import Plan, Planned
from bigbird_dna.attention.sparse.window import SMALLEST, window_attention, within
from bigbird_dna.config import LayerShape


class Longformer(nn.Module):
    """A window, dilated or not, and global tokens.

    Parameters
    ----------
    window
        Tokens on each side.
    dilation
        The window has every `dilation`-th token.
    globals_
        The first tokens, which all see and which see all.
    """

    def __init__(self, shape: LayerShape, window: int, dilation: int, globals_: int) -> None:
        super().__init__()
        self.shape, self.globals = shape, globals_

        def attend(problem: Problem) -> Tensor:
            return window_attention(problem, window, dilation, globals_)

        def scores(tokens: int) -> int:
            reach, _ = within(tokens, window, dilation)
            return max(reach, SMALLEST) + 2 * reach + min(globals_, tokens)

        def places(tokens: int) -> int:
            reach, apart = within(tokens, window, dilation)
            return tokens + -tokens % (apart * max(reach, SMALLEST))

        self.local = Planned(shape, Plan(attend, scores, places))
        own = [nn.Linear(shape.hidden, shape.hidden) if globals_ else None for _ in range(3)]
        self.query, self.key, self.value = own

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        dropout: float = 0.0,
        hidden: Tensor,
    ) -> Tensor:
        """Attention of q, k, v (B, H, L, K) → (B, H, L, K), zero at padding; as `config.mechanisms` says."""
        out: Tensor = self.local(q, k, v, lengths=lengths, dropout=dropout)
        if self.value is None or not len(out):
            return out
        front = min(self.globals, q.shape[2])
        weights = self.global_weights(hidden.to(out.dtype), lengths)
        weights = drop(weights, dropout) if dropout else weights
        seen = torch.einsum("bhgl,bld->bhgd", weights, hidden.to(weights.dtype))
        by_head = torch.unflatten(self.value.weight.to(seen.dtype), 0, (self.shape.heads, -1))  # (H, K, D)
        bias = torch.unflatten(self.value.bias.to(seen.dtype), 0, (self.shape.heads, 1, -1))  # (H, 1, K)
        first = seen @ by_head.mT + weights.sum(-1, keepdim=True) * bias
        if lengths is not None:
            there = torch.arange(front) < torch.as_tensor(lengths).cpu()[:, None]
            first = first.masked_fill(~there[:, None, :, None].to(first.device), 0)
        out[:, :, :front] = first.to(out.dtype)
        return out

    def global_weights(self, hidden: Tensor, lengths: Tensor | Sequence[int] | None) -> Tensor:
        """Weights of the global tokens' rows by the layer's input (B, L, D): (B, H, G, L)."""
        assert self.query is not None and self.key is not None
        tokens, heads = hidden.shape[1], self.shape.heads
        front = min(self.globals, tokens)
        query = hidden[:, :front] @ self.query.weight.to(hidden.dtype).T + self.query.bias.to(hidden.dtype)
        query = torch.unflatten(query, 2, (heads, -1)).transpose(1, 2)  # (B, H, G, K)
        by_head = torch.unflatten(self.key.weight.to(hidden.dtype), 0, (heads, -1))  # (H, K, D)
        turned = (query / math.sqrt(self.shape.width)) @ by_head  # (B, H, G, D)
        score = torch.einsum("bhgd,bld->bhgl", turned, hidden)
        place = torch.arange(tokens, device=hidden.device)
        ends = [tokens] * len(hidden) if lengths is None else lengths
        seen = (place < torch.as_tensor(ends).to(place.device)[:, None])[:, None, None]  # (B, 1, 1, L)
        if self.shape.causal:
            seen = seen & (place <= place[:front, None])
        return weigh(hide(score, seen))

    def matrix(self, q: Tensor, k: Tensor, hidden: Tensor) -> Tensor:
        """The effective matrix (B, H, L, L); global tokens' rows are of values of their own."""
        local = effective_matrix(self.local, q, k)
        if self.value is None:
            return local
        first = self.global_weights(hidden.to(q.dtype), None)
        return torch.cat([first, local[:, :, first.shape[2] :]], 2)
