"""What mechanisms have in common: the layer's call, scores and the joint softmax, work in parts."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, pad
from torch.utils.checkpoint import checkpoint

from bigbird_dna.attention.call import checked_call, real_positions
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.config import LayerShape

# Axes: B batch, H heads, L tokens, K head width, S tokens of a block, N blocks.

# Numbers that one part of the work holds at once, about: 16 MiB in float32 on a CPU, which stay in or near
# its cache. On other devices only a bound of memory.
ELEMENTS = {"cpu": 1 << 22}
ELEMENTS_ELSEWHERE = 1 << 28


class Heads(NamedTuple):
    """Attention of some sequences and heads; all but `present` are (B, H, L, K)."""

    q: Tensor
    k: Tensor
    v: Tensor
    pooled_q: Tensor  # what summaries are pooled of
    pooled_k: Tensor
    present: Tensor  # (B, 1, L): not padding
    largest: bool  # pooling by maximum, else by mean
    causal: bool
    dropout: float
    clusters: Tensor | None = None  # (B, H, L) numbers, where a plan goes by clusters

    def map(self, change: Callable[[Tensor], Tensor]) -> "Heads":
        """The same with its five tensors of vectors changed, one that stands twice only once."""
        changed = {id(x): change(x) for x in {id(x): x for x in self[:5]}.values()}
        q, k, v, pooled_q, pooled_k = (changed[id(x)] for x in self[:5])
        return self._replace(q=q, k=k, v=v, pooled_q=pooled_q, pooled_k=pooled_k)

    def in_blocks(self, size: int) -> "Heads":
        """Cut into blocks, (B, H, N, S, K) and `present` (B, 1, N, S), the last one filled up.

        S is at most L: one block that has all tokens is the same, however much room it has.
        """
        size = min(size, self.q.shape[2])
        return self.map(lambda x: in_blocks(x, size))._replace(
            present=in_blocks(self.present[..., None], size)[..., 0]
        )


def in_blocks(x: Tensor, size: int) -> Tensor:
    """(B, H, L, K) → (B, H, N, S, K), zero where there is no token."""
    missing = -x.shape[2] % size
    x = pad(x, (0, 0, 0, missing)) if missing else x
    return torch.unflatten(x, 2, (-1, size))


def blocks_of(tokens: int, size: int) -> tuple[int, int]:
    """N and S of so many tokens that are cut by `size`, see `Heads.in_blocks`."""
    size = min(size, tokens)
    return -(-tokens // size), size


def joined(out: Tensor, inputs: Heads) -> Tensor:
    """Blocks of the tokens one after the other, (B, H, N, S, K) → (B, H, L, K)."""
    return out.flatten(2, 3)[:, :, : inputs.q.shape[2]]


def scores(q: Tensor, k: Tensor) -> Tensor:
    """q · k / √K, (…, M, K) and (…, N, K) → (…, M, N)."""
    return (q / math.sqrt(q.shape[-1])) @ k.mT


def hide(scores: Tensor, seen: Tensor) -> Tensor:
    """Scores, changed in place, whose weight will be exactly 0 where not `seen`; any where a row sees
    nothing."""
    return scores.masked_fill_(~seen, torch.finfo(scores.dtype).min)


def weigh(scores: Tensor, probability: float = 0.0) -> Tensor:
    """Softmax over the last axis, in float32 at least, of which weights are dropped."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.softmax(-1, dtype=wide).to(scores.dtype)
    return dropout(weights, probability) if probability else weights


def attended(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """Plain attention under a mask: what summaries have as values, (…, M, K)."""
    return weigh(hide(scores(q, k), seen)) @ v


def triangle(size: int, like: Tensor, diagonal: int = 0) -> Tensor:
    """(S, S), true from the first column up to `diagonal` columns beside the own."""
    return torch.ones(size, size, dtype=torch.bool, device=like.device).tril(diagonal)


def others(size: int, like: Tensor) -> Tensor:
    """(S, S), true but on the diagonal."""
    return ~torch.eye(size, dtype=torch.bool, device=like.device)


def recomputed(attend: Callable[..., Any], *arguments: object) -> Any:
    """What a function gives, which is called again in the backward pass rather than its steps kept."""
    if torch.is_grad_enabled():
        return checkpoint(attend, *arguments, use_reentrant=False)
    return attend(*arguments)


HeadSlice = tuple[slice, slice]  # of batch and heads


def by_parts(attend: Callable[..., Tensor], vectors: Sequence[Tensor], each: int) -> Tensor:
    """What `attend(part, *vectors)` gives for parts of batch and heads, put together; vectors are (B, H, L,
    K), and `attend` holds about `each` numbers for one head of one sequence."""
    batch, heads, *_ = vectors[0].shape
    fit = max(1, ELEMENTS.get(vectors[0].device.type, ELEMENTS_ELSEWHERE) // each)
    if fit >= batch * heads:
        return attend((slice(0, batch), slice(0, heads)), *vectors)
    outs = []
    # Split rather than sliced: a slice's gradient is as large as what it was cut from.
    for rows, *of_rows in zip(*_split(vectors, max(1, fit // heads), 0), strict=True):
        parts = zip(*_split(of_rows, fit, 1), strict=True)
        outs.append(torch.cat([recomputed(attend, (rows, some), *part) for some, *part in parts], 1))
    return torch.cat(outs) if len(outs) > 1 else outs[0]


def _split(tensors: Sequence[Tensor], size: int, axis: int) -> Iterator[Iterable[Any]]:
    """Slices of an axis by `size`, and what each tensor has there."""
    count = tensors[0].shape[axis]
    yield [slice(start, min(start + size, count)) for start in range(0, count, size)]
    for x in tensors:
        yield torch.split(x, size, axis)


_TEMPORARIES = 8  # vectors of a place that a plan makes, about


class PlannedAttention(NamedTuple):
    """Which keys a query sees, directly or through summaries, and how that is computed."""

    attend: Callable[[Heads], Tensor]  # (B, H, L, K), of any content where there is padding
    scores: Callable[[int], int]  # that a query has, of L tokens
    places: Callable[[int], int] = int  # for L tokens, where blocks are filled up more than L


def plan_of_blocks(
    attend: Callable[[Heads], Tensor], size: int, scores: Callable[[int, int], int]
) -> PlannedAttention:
    """A plan of blocks of `size` tokens, which `attend` is given and gives, (B, H, N, S, K).

    `scores` that a query has are a function of how many blocks there are, and of how many tokens each.
    """

    def attend_in_blocks(inputs: Heads) -> Tensor:
        return joined(attend(inputs.in_blocks(size)), inputs)

    def places(tokens: int) -> int:
        blocks, own = blocks_of(tokens, size)
        return blocks * own

    return PlannedAttention(attend_in_blocks, lambda tokens: scores(*blocks_of(tokens, size)), places)


class AttentionLayer(nn.Module):
    """Checks a call and removes its padding; what remains is `attended`, which a subclass has."""

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
        """Attention of q, k, v (B, H, L, K) → (B, H, L, K), zero at padding; see `config.mechanisms`.

        `hidden` isn't used here. `ValueError`: shapes, types, lengths or dropout don't fit.
        """
        call = checked_call(q, k, v, Pattern(), lengths, 0, dropout)
        if not call.lengths:
            return torch.zeros_like(call.v)
        cut = call.cut()
        present = real_positions(call.lengths, cut.q.shape[2], q.device)[:, None]
        return call.uncut(self.attended(cut.q, cut.k, cut.v, present, dropout))

    def attended(self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, dropout: float) -> Tensor:
        """The same of valid arguments; `present` (B, 1, L): not padding, where any content is right."""
        raise NotImplementedError


class PlannedLayer(AttentionLayer):
    """Attention that its plan, a function of queries, keys and values, alone determines."""

    largest = False

    def __init__(self, shape: LayerShape, plan: PlannedAttention, centroids: nn.Module | None = None) -> None:
        super().__init__()
        self.shape, self.plan, self.centroids = shape, plan, centroids  # which number tokens' clusters

    def attended(self, q: Tensor, k: Tensor, v: Tensor, present: Tensor, dropout: float) -> Tensor:
        """Attention by the plan, a few heads at a time."""
        tokens, width = q.shape[2:]
        clusters = None if self.centroids is None else self.centroids(q, k, present)

        def attend(part: HeadSlice, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            own = None if clusters is None else clusters[part]
            vectors = (query, key, value, *self.pooled(query, key))
            rest = (present[part[0]], self.largest, self.shape.causal, dropout, own)
            return self.plan.attend(Heads(*vectors, *rest))

        each = self.plan.places(tokens) * (self.plan.scores(tokens) + _TEMPORARIES * width)
        return by_parts(attend, (q, k, v), each)

    def pooled(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """What summaries are pooled of, (B, H, L, K) each, where a plan has some."""
        return q, k
