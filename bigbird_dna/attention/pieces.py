"""Tokens of a cluster side by side, in pieces of at most S tokens; a larger cluster has several.

Pieces are numbered by their first token, and a token's place in its piece by those before it, so that where a
token goes depends on none after it. Nothing is dropped. Axes: B batch, H heads, L tokens, P pieces, S tokens
of a piece, K head width; `most_pieces` says how many pieces there can be.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Pieces(NamedTuple):
    """Where tokens go."""

    number: Tensor  # (B, H, L) of each token's piece; P, which is none, for padding
    place: Tensor  # (B, H, L) in its piece
    before: Tensor  # (B, H, P), the piece of the same cluster before each; P, which is none, for a first one
    total: int  # P
    size: int  # S

    @property
    def slots(self) -> Tensor:
        """Place and piece as one number, (B, H, L, 1)."""
        return (self.number * self.size + self.place)[..., None]

    def used(self) -> "Pieces":
        """Without the pieces, and places, that no sequence or head has a token in; these depend on all."""
        none = self.number == self.total
        total, size = int(self.number.masked_fill(none, 0).max()) + 1, int(self.place.max()) + 1
        before = self.before[..., :total].clamp(max=total)
        return Pieces(self.number.masked_fill(none, total), self.place, before, total, size)

    def spread(self, x: Tensor) -> Tensor:
        """(B, H, L, K) → (B, H, P, S, K), zero where there is no token."""
        room = x.new_zeros(*x.shape[:2], self.total * self.size + 1, x.shape[3])
        spread = room.scatter(2, self.slots.expand_as(x), x)
        return torch.unflatten(spread[:, :, :-1], 2, (self.total, self.size))

    def collect(self, x: Tensor) -> Tensor:
        """The way back, (B, H, P, S, K) → (B, H, L, K); of padding some token's."""
        slots = self.slots.clamp(max=self.total * self.size - 1)
        return x.flatten(2, 3).gather(2, slots.expand(-1, -1, -1, x.shape[4]))


def most_pieces(tokens: int, count: int, size: int) -> tuple[int, int]:
    """P and S of `count` clusters: the most that so many tokens can take, whatever their clusters are.

    They go by the length alone, for what is causal must not see later tokens by them. Neither is above the
    length, which has room for all: what is asked for may be far more.
    """
    size = min(size, tokens)
    return min(count + tokens // size, tokens), size


def make_pieces(clusters: Tensor, there: Tensor, count: int, size: int) -> Pieces:
    """The pieces of tokens with the numbers `clusters` (B, H, L), below `count`, where `there` (B, 1, L)."""
    tokens = clusters.shape[2]
    pieces, size = most_pieces(tokens, count, size)
    clusters = clusters.masked_fill(~there, count)
    order = clusters.argsort(dim=2, stable=True)
    ordered = clusters.gather(2, order)
    everywhere = torch.arange(tokens, device=clusters.device).expand_as(clusters)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    begin = everywhere.masked_fill(~new, 0).cummax(2).values  # of the token's cluster, in order
    rank = everywhere - begin
    first = everywhere - rank % size  # in order, the token that begins the piece
    last = order.gather(2, (first - 1).clamp(min=0))  # the one that ends the piece before
    last = last.masked_fill(rank < size, -1)
    first = order.gather(2, first)
    rank, first, last = (torch.empty_like(x).scatter_(2, order, x) for x in (rank, first, last))
    begins = (first == everywhere) & there
    number = (begins.cumsum(2) - 1).gather(2, first)
    number, place = number.masked_fill(~there, pieces), (rank % size).masked_fill(~there, 0)
    previous = number.gather(2, last.clamp(min=0)).masked_fill(last < 0, pieces)
    before = number.new_full((*number.shape[:2], pieces + 1), pieces).scatter(2, number, previous)
    return Pieces(number, place, before[..., :pieces], pieces, size)
