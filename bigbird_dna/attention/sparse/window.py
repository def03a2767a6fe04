"""A window around each token, dilated or not, and the first tokens: what Longformer's local tokens see.

A dilated window is a plain one of each of D interleaved sequences. These are cut into blocks; a block's
queries see the keys from `reach` before it to `reach` after it. Axes: B batch, H heads, D interleaved
sequences, N blocks, S tokens of a block, W keys of a block, G global tokens, K head width. Time for a head is
L (W + G) K.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from bigbird_dna.attention.joint import Problem, hide, recomputed, scores, weigh

SMALLEST = 32
"""Tokens of a block; smaller ones make products that take longer."""
TOGETHER = 1024
"""Tokens of the blocks that are worked on at once, and again in the backward pass."""


def window_attention(problem: Problem, reach: int, dilation: int = 1, globals_: int = 0) -> Tensor:
    """Attention of a sequence, (B, H, L, K) → (B, H, L, K).

    A query sees `reach` · `dilation` tokens on each side, every `dilation`-th one, and the first `globals_`,
    once, in one softmax. Causal: of all these those up to its own.
    """
    q, k, v, there = problem.q, problem.k, problem.v, problem.there
    tokens = q.shape[2]
    reach, dilation = within(tokens, reach, dilation)
    place = torch.arange(tokens, device=q.device)
    size = max(reach, SMALLEST)
    after = 0 if problem.causal else reach
    front = slice(0, min(globals_, tokens))

    blocks = _blocks(q, dilation, size)  # (B, H, D, N, S, K)
    keys, values = (_around(x, dilation, size, reach, after) for x in (k, v))  # (B, H, D, N, W, K)
    near_there = (there & (place >= globals_))[..., None]
    seen = _around(near_there, dilation, size, reach, after)[..., 0]  # (B, 1, D, N, W)
    key, query = (torch.arange(count, device=q.device) for count in (size + reach + after, size))
    offset = key - query[:, None]
    band = (offset >= 0) & (offset <= reach + after)
    far = blocks[..., :0]  # scores of global tokens, (B, H, D, N, S, G)
    if globals_:
        seen_far = there[..., None, front]  # (B, 1, 1, G)
        if problem.causal:
            seen_far = seen_far & (place[:, None] >= place[front])
        far = _blocks(hide(scores(q, k[:, :, front]), seen_far), dilation, size)

    def attend(blocks: Tensor, keys: Tensor, values: Tensor, seen: Tensor, far: Tensor) -> Tensor:
        """What the windows give, and the weights of global tokens, side by side."""
        near = hide(scores(blocks, keys), seen[..., None, :] & band)
        weights = weigh(torch.cat([near, far], -1), problem.dropout)
        near, far = torch.split(weights, [near.shape[-1], far.shape[-1]], -1)
        return torch.cat([near @ values, far], -1)

    some = max(1, TOGETHER // size)
    groups = zip(*(torch.split(x, some, 3) for x in (blocks, keys, values, seen, far)), strict=True)
    out = _back(torch.cat([recomputed(attend, *group) for group in groups], 3), tokens)
    out, far = torch.split(out, [v.shape[3], far.shape[-1]], -1)
    return out + far @ v[:, :, front] if globals_ else out


def within(tokens: int, reach: int, dilation: int) -> tuple[int, int]:
    """The same window without what lies beyond the ends of so many tokens, reach and dilation.

    Where not even the next key is within, the own token is all of it, and nothing need be interleaved.
    """
    reach = min(reach, tokens // dilation)
    return reach, dilation if reach else 1


def _interleaved(x: Tensor, dilation: int, size: int) -> Tensor:
    """(B, H, L, …) → (B, H, D, N S, …): token i is the (i div D)-th of sequence i mod D."""
    x = pad(x, (0, 0, 0, -x.shape[2] % (dilation * size)))
    return torch.unflatten(x, 2, (-1, dilation)).transpose(2, 3)


def _blocks(x: Tensor, dilation: int, size: int) -> Tensor:
    return torch.unflatten(_interleaved(x, dilation, size), 3, (-1, size))


def _around(x: Tensor, dilation: int, size: int, before: int, after: int) -> Tensor:
    """What is in each block and beside it, (B, H, L, K) → (B, H, D, N, before + S + after, K)."""
    x = pad(_interleaved(x, dilation, size), (0, 0, before, after))
    return x.unfold(3, before + size + after, size).transpose(-1, -2)


def _back(x: Tensor, tokens: int) -> Tensor:
    """(B, H, D, N, S, …) → (B, H, L, …)."""
    return x.flatten(3, 4).transpose(2, 3).flatten(2, 3)[:, :, :tokens]
