"""The route for short sequences: torch's fused full attention under the pattern's boolean mask.

While a query sees about half of all blocks or more, computing every score costs no more than gathering
blocks. On a CPU the two meet at twice as many blocks as a query sees (measured with blocks of 16, 32 and
64 tokens, both directions); the limit on tokens keeps the masks small.
"""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from bigbird_dna.attention.call import Call, real_positions
from bigbird_dna.attention.pattern import Pattern

# Axes: B batch, H heads, L tokens as given, N tokens of the longest sequence, K head width.

LONGEST = 512  # tokens
MASK_ELEMENTS = 1 << 24  # of one call; the fused kernel turns them into floats


def is_short(pattern: Pattern, tokens: int) -> bool:
    """Whether this route is meant for a sequence of so many tokens; a function of its own length alone."""
    if pattern.huggingface:  # counts some keys several times
        return False
    seen = pattern.global_blocks + pattern.window_blocks + pattern.random_blocks
    return tokens <= LONGEST and pattern.blocks(tokens) < 2 * seen


def masked_attention(call: Call) -> Tensor:
    """Attention under a boolean mask, (B, H, L, K); time is quadratic in the longest length."""
    q, k, v, pattern, lengths, layer, dropout, _ = call.cut()
    if len(set(lengths)) == 1:
        mask = _mask(pattern, lengths[:1], q, layer)
        return call.uncut(scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout))
    some = max(1, MASK_ELEMENTS // (q.shape[1] * q.shape[2] ** 2))
    parts = []
    for row in range(0, len(lengths), some):
        rows = slice(row, row + some)
        mask = _mask(pattern, lengths[rows], q, layer)
        parts.append(
            scaled_dot_product_attention(q[rows], k[rows], v[rows], attn_mask=mask, dropout_p=dropout)
        )
    return call.uncut(torch.cat(parts))


def _mask(pattern: Pattern, lengths: tuple[int, ...], q: Tensor, layer: int) -> Tensor:
    """(rows, H, N, N), true where a query sees a key; a query past the end sees some true key."""
    heads, tokens = q.shape[1:3]
    extra = pattern.extra_globals
    width = pattern.blocks(tokens)
    blocks = [
        _block_mask(pattern, pattern.blocks(length), width, heads, layer, q.device) for length in lengths
    ]
    mask = torch.stack(blocks)
    mask = mask.repeat_interleave(pattern.block_size, 2).repeat_interleave(pattern.block_size, 3)
    mask = pad(mask[:, :, : tokens - extra, : tokens - extra], (extra, 0, extra, 0), value=True)
    if pattern.causal:
        mask = mask.tril()
    return mask & real_positions(lengths, tokens, q.device)[:, None, None, :]


@lru_cache(maxsize=1024)
@torch.inference_mode(False)  # what evaluation makes first must serve training as well
def _block_mask(
    pattern: Pattern, blocks: int, width: int, heads: int, layer: int, device: torch.device
) -> Tensor:
    """The pattern of `blocks` blocks in the corner of (H, width, width).

    Query blocks past the end see everything: some kernels give NaN for a query without any key, and NaN would
    reach the gradients of the others.
    """
    mask = torch.ones(heads, width, width, dtype=torch.bool)
    mask[:, :blocks, :blocks] = torch.from_numpy(pattern.block_mask(blocks, heads, layer))
    return mask.to(device, non_blocking=True)
