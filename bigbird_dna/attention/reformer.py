"""Reformer's attention as a module that a layer owns; see `config.mechanisms` and `hashing`."""

import torch
from torch import Tensor

from bigbird_dna.attention.drawn import Redrawn
from bigbird_dna.attention.hashing import hashed, hashed_attention
from bigbird_dna.attention.joint import Part, by_parts
from bigbird_dna.attention.layer import AttentionLayer
from bigbird_dna.attention.selection import selected
from bigbird_dna.config import LayerShape


class Reformer(AttentionLayer):
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

    def attended(self, q: Tensor, k: Tensor, v: Tensor, there: Tensor, dropout: float) -> Tensor:
        """Attention of q and v by the hashes of this time; `k` is q."""
        tokens, width = q.shape[2:]
        with torch.no_grad():
            buckets = selected(lambda: hashed(q, self.rotations.drawn), self.buckets)

        def attend(part: Part, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return hashed_attention(query, value, buckets[part], there[part[0]], self.chunk, dropout)

        each = tokens * buckets.shape[2] * (10 * self.chunk + 6 * width)
        return by_parts(attend, (q, k, v), each)
