"""Directions that tokens are sorted by: online spherical k-means (Roy et al. 2021, arXiv 2003.05997).

A token's direction is that of its normalised query and key together, so that it has one cluster and sees
itself. Axes: B batch, H heads, L tokens, K head width, C clusters.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bigbird_dna.attention.joint import Part, by_parts
from bigbird_dna.attention.selection import selected
from bigbird_dna.config import LayerShape


class Centroids(nn.Module):
    """A token's cluster is that of the nearest of `clusters` directions for each head.

    The directions follow their tokens while training, `decay` of them staying at each pass. No gradient
    reaches them.
    """

    directions: Tensor  # (H, C, K)
    seen: Tensor  # (H, C, K): of the last pass in training, each cluster's tokens added up

    def __init__(self, shape: LayerShape, clusters: int, decay: float) -> None:
        super().__init__()
        self.decay = decay
        drawn = torch.empty(shape.heads, clusters, shape.width).normal_()
        self.register_buffer("directions", normalize(drawn, dim=-1))
        self.register_buffer("seen", torch.zeros_like(drawn))

    @torch.no_grad()
    def forward(self, q: Tensor, k: Tensor, there: Tensor) -> Tensor:
        """The number of the nearest direction, (B, H, L); notes the tokens of each while training."""
        token = normalize(q.detach(), dim=-1) + normalize(k.detach(), dim=-1)

        count = self.directions.shape[1]

        def choose(part: Part, some: Tensor) -> Tensor:
            return (some @ self.directions[part[1]].to(some.dtype).mT).argmax(-1)

        # Some heads at a time: there is a number for each direction on the way.
        nearest = selected(lambda: by_parts(choose, (token,), token.shape[2] * count), count)
        if self.training:
            token = token.masked_fill(~there[..., None], 0).to(self.seen.dtype)
            seen = torch.zeros_like(self.seen)
            index = nearest.transpose(0, 1).flatten(1)[..., None].expand(-1, -1, token.shape[3])
            seen.scatter_add_(1, index, token.transpose(0, 1).flatten(1, 2))
            self.seen.copy_(seen)
        return nearest

    @torch.no_grad()
    def begin_pass(self) -> None:
        """Let the directions follow the tokens of the last pass in training."""
        moved = self.decay * self.directions + (1 - self.decay) * normalize(self.seen, dim=-1)
        empty = (self.seen == 0).all(-1, keepdim=True)
        self.directions.copy_(torch.where(empty, self.directions, normalize(moved, dim=-1)))
        self.seen.zero_()
