"""Reformer's attention: queries equal keys, and a token attends to tokens with the same hash.

Kitaev et al. 2020, arXiv 2001.04451, section 2 and App. A. In each of R rounds a token x is assigned to the
bucket argmax [x R; -x R] of random rotations R. Tokens are sorted by bucket, then by position, and cut into
chunks of m. P_i^r are the tokens of i's bucket in its chunk and the previous one. Keys are the queries,
scaled to the length √K. Token i attends to P_i = P_i^1 ∪ … ∪ P_i^R except itself; to itself only if it is
alone. With z_i^r the log-sum-exp of round r,

    o_i = Σ_r exp(z_i^r - z_i) Σ_{j ∈ P_i^r} exp(q_i · k_j / √K - ln N_ij - z_i^r) v_j

where z_i is the log-sum-exp over all rounds and N_ij the number of rounds in which i meets j. Each key thus
counts once, and o_i is softmax attention over P_i. It approaches full attention as rounds increase.

Chunk boundaries depend on how many tokens, later ones included, have lower hashes: no causal form exists.

Axes: B batch, H heads, R rounds, L tokens, N chunks, M tokens of a chunk, K head width. Time is R L M (K +
R), plus R L K buckets for the hashes.
"""

import math

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import normalize, pad

from bigbird_dna.attention.mechanism import AttentionLayer, Redrawn, hide, scores, take
from bigbird_dna.config.mechanisms import LayerShape, Mechanism
from bigbird_dna.config.section import Section

ITSELF = -1e5
"""Score of a token with itself: relevant only if it meets no other token."""
NOWHERE = -(1 << 40)
"""Code of empty slots: distant from the code of every token."""


def hashed_attention(
    q: Tensor, v: Tensor, buckets: Tensor, present: Tensor, size: int, dropout: float
) -> Tensor:
    """Attention of q and v (B, H, L, K) by buckets (B, H, R, L), `present` (B, 1, L): (B, H, L, K)."""
    tokens = q.shape[2]
    size = min(size, tokens)  # larger chunks than the sequence change nothing
    padding = ~present[:, :, None]
    buckets = buckets.masked_fill(padding, 1 << 20)  # sorts padding last
    order = buckets.argsort(dim=3, stable=True)  # (B, H, R, L)
    ranks = torch.arange(tokens, device=q.device).expand_as(order)
    position = torch.empty_like(order).scatter_(3, order, ranks)

    # Numbers that differ by 0 or 1 if two tokens have the same bucket and the key's chunk is the query's or
    # the previous one.
    codes = buckets * (tokens // size + 3) + position // size
    codes = pad(codes.masked_fill(padding, NOWHERE), (0, 1), value=NOWHERE)
    order = pad(order, (0, -tokens % size), value=tokens)
    keys = normalize(q, dim=-1) * math.sqrt(q.shape[-1])
    wide = torch.promote_types(q.dtype, torch.float32)

    outs = []
    totals = []
    for number, (flat, rank) in enumerate(
        zip(order.unbind(2), position.unbind(2), strict=True)
    ):
        members = torch.unflatten(flat, 2, (-1, size))  # (B, H, N, M)
        # Number of rounds in which a query meets a key, and whether in this round, (B, H, N, M, 2 M).
        met = []
        for code in codes.unbind(2):
            code = code.gather(2, flat).view_as(members)
            difference = code[..., None] - _with_before(code, NOWHERE)[..., None, :]
            met.append(difference >> 1 == 0)

        times = torch.zeros_like(met[0], dtype=torch.uint8)
        for in_round in met:
            times += in_round

        # (B, H, N, M, K)
        query, key, value = (take(pad(x, (0, 0, 0, 1)), members) for x in (q, keys, v))
        score = scores(query, _with_before(key, 0)).to(wide)
        itself = members[..., None] == _with_before(members, -1)[..., None, :]
        score = score.masked_fill(itself, ITSELF) - times.clamp(min=1).to(wide).log()
        score = hide(score, met[number])
        weights = score.softmax(-1)
        # The log-sum-exp without torch's function, whose exp is ten times slower on CPUs where it returns 0.
        total = score.amax(-1, keepdim=True) - weights.amax(-1, keepdim=True).log()
        weights = weights.to(v.dtype)
        weights = drop(weights, dropout) if dropout else weights
        out = (weights @ _with_before(value, 0)).flatten(2, 3)
        outs.append(take(out, rank))
        totals.append(take(total.flatten(2, 3), rank))  # (B, H, L, 1)

    weights_of_rounds = torch.stack(totals).softmax(0).to(v.dtype)
    return (torch.stack(outs) * weights_of_rounds).sum(0)


def _with_before(x: Tensor, nothing: int) -> Tensor:
    """Each chunk with the previous one in front, (B, H, N, M, …) → (B, H, N, 2 M, …)."""
    before = torch.cat([torch.full_like(x[:, :, :1], nothing), x[:, :, :-1]], 2)
    return torch.cat([before, x], 3)


class ReformerOptions(Section):
    """Options of the hashes."""

    buckets: int = Field(
        default=64, ge=2, multiple_of=2, description="number of hash buckets; even"
    )
    chunk: int = Field(
        default=64, ge=1, description="tokens per chunk; attention spans two chunks"
    )
    rounds: int = Field(default=2, ge=1, le=16, description="number of hash rounds")
    redraw: int = Field(
        default=1, ge=0, description="training passes between redraws; 0: never redraw"
    )
    seed: int = Field(default=0, ge=0, description="seed of the hashes")


class Reformer(AttentionLayer):
    """Attention within buckets of tokens with equal hashes; more rounds approximate full attention better."""

    def __init__(self, shape: LayerShape, options: ReformerOptions) -> None:
        super().__init__(shape, options)
        drawn = (shape.heads, options.rounds, shape.width, options.buckets // 2)
        self.rotations = Redrawn(drawn, options.seed, shape.layer, options.redraw)

    def compute(
        self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, dropout: float
    ) -> Tensor:
        """Attention of q and v by the current hashes; `k` equals q."""
        with torch.no_grad():
            rotated = q[:, :, None] @ self.rotations.drawn.to(q.dtype)
            buckets = torch.cat([rotated, -rotated], -1).argmax(-1)  # (B, H, R, L)
        return hashed_attention(q, v, buckets, present, self.options.chunk, dropout)


_COST = "L · rounds · (K + chunk · rounds + buckets)"
MECHANISMS = (
    Mechanism(
        "reformer", ReformerOptions, Reformer, _COST, causal=False, shares_keys=True
    ),
)
