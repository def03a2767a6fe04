"""One key for each power of two: that of the own block's sibling, or the one so many tokens away.

Level l has blocks of 2^l tokens, and a query sees the other half of its own block of 2^(l + 1) by one key and
value that stand for it: a token (logsparse), or a summary (Combiner's). ⌈log2 L⌉ levels reach every token,
for L = 2^m + 1 as well. Axes: B batch, H heads, L tokens, N blocks of a level, S tokens of each, K head
width. Time and memory are L K log L.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from bigbird_dna.attention.joint import Problem, hide, recomputed, weigh

Level = tuple[Tensor, Tensor, Tensor]  # keys and values (B, H, N, K) of blocks, and which there are (B, 1, N)


def levels(tokens: int) -> int:
    """How many reach every token; sequences are filled up to two to this power."""
    return max(1, (tokens - 1).bit_length())


def sibling_attention(problem: Problem, of_levels: Callable[[Problem, int], Iterable[Level]]) -> Tensor:
    """Attention of a sequence, (B, H, L, K) → (B, H, L, K); `of_levels` gives so many levels, from 0 on."""
    tokens = problem.q.shape[2]
    count = levels(tokens)
    missing = (1 << count) - tokens
    if missing:
        problem = problem.map(lambda x: pad(x, (0, 0, 0, missing)))
        problem = problem._replace(there=pad(problem.there, (0, missing)))
    q = problem.q
    columns = [_products(q, problem.k / math.sqrt(q.shape[3]))]  # (B, H, L, 1) each: the own token
    values = [problem.v]  # (B, H, N, K)
    for key, value, there in of_levels(problem, count):
        blocks = key.shape[2]
        key, value = _siblings(key), _siblings(value)
        seen = _siblings(there[..., None])[..., 0]
        if problem.causal:
            seen = seen & (torch.arange(blocks, device=q.device) % 2 == 1)
        # Keys are scaled, of which there are fewer than queries: what is scaled is kept for the gradients.
        key = key[..., None, :] / math.sqrt(q.shape[3])
        column = _products(torch.unflatten(q, 2, (blocks, -1)), key)  # (B, H, N, S, 1)
        columns.append(hide(column, seen[..., None, None]).flatten(2, 3))
        values.append(value)
    return _summed(columns, values, problem.dropout)[:, :, :tokens]


def nearest_tokens(problem: Problem, count: int) -> Iterator[Level]:
    """For each block the token nearest to its sibling: the last of a left one, the first of a right one."""
    there = problem.there[..., None]
    first = last = [problem.k, problem.v, there]
    for _ in range(count):
        first, last = ([torch.unflatten(x, 2, (-1, 2)) for x in ends] for ends in (first, last))
        pairs = zip(first, last, strict=True)
        key, value, found = (torch.stack([y[:, :, :, 0], x[:, :, :, 1]], 3).flatten(2, 3) for x, y in pairs)
        yield key, value, found[..., 0]
        first, last = [x[:, :, :, 0] for x in first], [y[:, :, :, 1] for y in last]


def power_attention(problem: Problem) -> Tensor:
    """Attention to i and i ± 2^t, those before i if causal, (B, H, L, K) → (B, H, L, K)."""
    q, k, v = problem.q, problem.k / math.sqrt(problem.q.shape[3]), problem.v
    distances = [1 << t for t in range((q.shape[2] - 1).bit_length())]
    back = distances if problem.causal else [*distances, *(-distance for distance in distances)]
    columns = [_products(q, k)]
    for distance in back:
        seen = _moved(problem.there[..., None], distance)
        columns.append(hide(recomputed(_score_of_moved, q, k, distance), seen))
    weights = torch.split(weigh(torch.cat(columns, -1), problem.dropout), 1, -1)
    out = weights[0] * v
    for weight, distance in zip(weights[1:], back, strict=True):
        out = out + recomputed(_weighted_moved, weight, v, distance)
    return out


def _score_of_moved(q: Tensor, k: Tensor, distance: int) -> Tensor:
    return _products(q, _moved(k, distance))


def _weighted_moved(weight: Tensor, v: Tensor, distance: int) -> Tensor:
    return weight * _moved(v, distance)


def _products(q: Tensor, k: Tensor) -> Tensor:
    """q · k of each place, (…, 1); batches of so small matrix products take several times as long."""
    return (q * k).sum(-1, keepdim=True)


def _moved(x: Tensor, distance: int) -> Tensor:
    """What stands so many tokens before each token, (B, H, L, …); zero where nothing does."""
    if distance < 0:
        return pad(x[:, :, -distance:], (0, 0, 0, -distance))
    return pad(x[:, :, : x.shape[2] - distance], (0, 0, distance, 0))


def _summed(columns: Sequence[Tensor], values: Sequence[Tensor], dropout: float) -> Tensor:
    """Values (B, H, N, K) by the softmax of scores (B, H, L, 1); each stands for L / N tokens."""
    weights = weigh(torch.cat(list(columns), -1), dropout)
    out: Tensor | None = None
    for weight, value in zip(torch.split(weights, 1, -1), values, strict=True):
        part = (torch.unflatten(weight, 2, (value.shape[2], -1)) * value[..., None, :]).flatten(2, 3)
        out = part if out is None else out + part
    assert out is not None
    return out


def _siblings(x: Tensor) -> Tensor:
    """What the other block of each pair has, (B, H, N, …)."""
    return torch.unflatten(x, 2, (-1, 2)).flip(3).flatten(2, 3)
