"""Reformer's attention as a module that a layer owns; see `config.mechanisms` and `hashing`."""

import torch
from torch import Tensor

from bigbird_dna.attention.drawn import Redrawn
from bigbird_dna.attention.hashing import hashed, hashed_attention
from bigbird_dna.attention.joint import Part, blocks_of, by_parts
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
            buckets = selected(lambda: self._hashed(q), self.buckets)

        def attend(part: Part, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return hashed_attention(query, value, buckets[part], there[part[0]], self.chunk, dropout)

        chunks, size = blocks_of(tokens, self.chunk)
        each = chunks * size * buckets.shape[2] * (10 * size + 6 * width)
        return by_parts(attend, (q, k, v), each)

    def _hashed(self, q: Tensor) -> Tensor:
        """Buckets (B, H, R, L), some heads at a time: there is a number for each bucket on the way."""
        rotations = self.rotations.drawn

        def choose(part: Part, query: Tensor) -> Tensor:
            return hashed(query, rotations[part[1]])

        return by_parts(choose, (q,), 2 * q.shape[2] * rotations.shape[1] * self.buckets)
