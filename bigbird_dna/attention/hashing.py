"""Reformer's attention: queries are the keys, and a token sees those that hash like it.

Kitaev et al. 2020, arXiv 2001.04451, section 2 and App. A. In each of R rounds a token x falls into the
bucket argmax [x R; -x R] of random rotations R; tokens are sorted by bucket, those of a bucket by position,
and cut into chunks of m. P_i^r are the tokens of i's bucket in its chunk and the one before. Keys are the
queries, scaled to the length √K, and i sees all of P_i = P_i^1 ∪ … ∪ P_i^R but itself; itself only where it
is alone. With z_i^r the log-sum-exp of round r,

    o_i = Σ_r exp(z_i^r - z_i) Σ_{j ∈ P_i^r} exp(q_i · k_j / √K - ln N_ij - z_i^r) v_j

where z_i is that of all rounds and N_ij the number of rounds in which i sees j: so each counts once, and o_i
is softmax attention over P_i. It nears that over all tokens as rounds grow.

Where a chunk ends depends on how many tokens hash below it, later ones included. So there is no causal form.

Axes: B batch, H heads, R rounds, L tokens, N chunks, M tokens of a chunk, K head width. Time is R L M (K +
R).
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop
from torch.nn.functional import normalize, pad

from bigbird_dna.attention.joint import hide

ITSELF = -1e5
"""A token's score of itself: it counts where there is nothing else."""
NOWHERE = -(1 << 40)
"""Code of what is no token: far from that of every token."""


def shared_keys(q: Tensor) -> Tensor:
    """Keys of queries (B, H, L, K): of the same directions, and the length √K."""
    return normalize(q, dim=-1) * math.sqrt(q.shape[-1])


def hashed(q: Tensor, rotations: Tensor) -> Tensor:
    """Buckets (B, H, R, L) of tokens (B, H, L, K) by rotations (H, R, K, buckets / 2)."""
    turned = q[:, :, None] @ rotations.to(q.dtype)
    return torch.cat([turned, -turned], -1).argmax(-1)


def hashed_attention(
    q: Tensor, v: Tensor, buckets: Tensor, there: Tensor, size: int, dropout: float
) -> Tensor:
    """Attention of q and v (B, H, L, K) by buckets (B, H, R, L), `there` (B, 1, L): (B, H, L, K)."""
    tokens = q.shape[2]
    buckets = buckets.masked_fill(~there[:, :, None], 1 << 20)  # padding comes last
    order = buckets.argsort(dim=3, stable=True)  # (B, H, R, L)
    ranks = torch.arange(tokens, device=q.device).expand_as(order)
    place = torch.empty_like(order).scatter_(3, order, ranks)
    chunk = place // size
    codes = (buckets * (tokens // size + 3) + chunk).masked_fill(~there[:, :, None], NOWHERE)
    codes = pad(codes, (0, 1), value=NOWHERE)
    own = torch.unflatten(pad(order, (0, -tokens % size), value=tokens), 3, (-1, size))  # (B, H, R, N, M)
    times, here = _meetings(codes, own)

    row_q, row_k, row_v = (_chunked(x, own) for x in (q, shared_keys(q), v))  # (B, H, R, N, M, K)
    wide = torch.promote_types(q.dtype, torch.float32)
    score = ((row_q / math.sqrt(q.shape[-1])) @ _with_before(row_k, 0).mT).to(wide)
    itself = own[..., None] == _with_before(own, -1)[..., None, :]
    score = hide(score.masked_fill(itself, ITSELF) - times.clamp(min=1).to(wide).log(), here)
    total = score.logsumexp(-1, keepdim=True)  # (B, H, R, N, M, 1)
    weights = (score - total).exp().to(v.dtype)
    weights = drop(weights, dropout) if dropout else weights
    out = weights @ _with_before(row_v, 0)

    place = place[..., None]
    total = total.flatten(3, 4).gather(3, place)  # (B, H, R, L, 1)
    out = out.flatten(3, 4).gather(3, place.expand(*place.shape[:-1], v.shape[3]))
    return (out * total.softmax(2).to(v.dtype)).sum(2)


def _meetings(codes: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """In how many rounds a query sees a key, and whether in this one, (B, H, R, N, M, 2 M) each.

    `codes` (B, H, R, L + 1) are numbers whose difference is 0 or 1 where two tokens have the same bucket and
    the key's chunk is the query's or the one before; `own` (B, H, R, N, M) are the tokens of chunks.
    """
    times: Tensor | None = None
    here = []
    for number, code in enumerate(codes.unbind(2)):
        code = code.gather(2, own.flatten(2)).view_as(own)
        met = (code[..., None] - _with_before(code, NOWHERE)[..., None, :]) >> 1 == 0
        here.append(met[:, :, number])
        times = met.to(torch.uint8) if times is None else times + met
    assert times is not None
    return times, torch.stack(here, 2)


def _chunked(x: Tensor, own: Tensor) -> Tensor:
    """Tokens (B, H, L, K) as in chunks of each round, (B, H, R, N, M, K)."""
    index = own.flatten(2)[..., None].expand(-1, -1, -1, x.shape[3])
    return torch.unflatten(pad(x, (0, 0, 0, 1)).gather(2, index), 2, tuple(own.shape[2:]))


def _with_before(x: Tensor, nothing: int) -> Tensor:
    """What is in the chunk before, and in each, (B, H, R, N, M, …) → (B, H, R, N, 2 M, …)."""
    before = torch.cat([torch.full_like(x[:, :, :, :1], nothing), x[:, :, :, :-1]], 3)
    return torch.cat([before, x], 4)
