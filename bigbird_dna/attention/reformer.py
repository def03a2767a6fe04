"""Reformer's attention as a module that a layer owns; see `config.mechanisms` and `hashing`."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bigbird_dna.attention.call import checked_call, real_positions
from bigbird_dna.attention.drawn import Redrawn
from bigbird_dna.attention.hashing import hashed, hashed_attention
from bigbird_dna.attention.joint import Part, by_parts
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.attention.selection import selected
from bigbird_dna.config import LayerShape


class Reformer(nn.Module):
    """Attention within buckets of tokens that hash alike, in several rounds.

    Parameters
    ----------
    buckets
        Of each round; even.
    chunk
        Tokens that are seen together.
    rounds
        The more, the nearer to attention to all.
    redraw
        Passes in training after which other rotations are drawn; 0: never.
    """

    def __init__(
        self, shape: LayerShape, buckets: int, chunk: int, rounds: int, redraw: int, seed: int
    ) -> None:
        super().__init__()
        self.buckets, self.chunk = buckets, chunk
        drawn = (shape.heads, rounds, shape.width, buckets // 2)
        self.rotations = Redrawn(drawn, seed, shape.layer, redraw)

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
        """Attention of q and v (B, H, L, K) → (B, H, L, K), zero at padding; as `config.mechanisms` says.

        `k`, which is q, and `hidden` are of no use here. `ValueError`: shapes, types, lengths or dropout are
        not as there.
        """
        call = checked_call(q, k, v, Pattern(), lengths, 0, dropout)
        if not call.lengths:
            return torch.zeros_like(call.v)
        cut = call.cut()
        tokens, width = cut.q.shape[2:]
        there = real_positions(call.lengths, tokens, q.device)[:, None]  # (B, 1, L)
        with torch.no_grad():
            buckets = selected(lambda: hashed(cut.q, self.rotations.drawn), self.buckets)

        def attend(part: Part, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return hashed_attention(query, value, buckets[part], there[part[0]], self.chunk, dropout)

        each = tokens * buckets.shape[2] * (10 * self.chunk + 6 * width)
        return call.uncut(by_parts(attend, (cut.q, cut.k, cut.v), each))
