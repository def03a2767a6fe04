"""Inputs of the first layer: embeddings of tokens, positions, segments and extra global tokens; rotary
positions; initialization of the first layer for either kind of positions.

Extra global tokens (ETC) are in front of the sequence. Axes: B batch, G extra global tokens, L tokens, D
hidden width.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.attention.fast_paths import check_first_derivative
from bigbird_dna.attention.native import pointwise
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.model.bases import TokenKmers
from bigbird_dna.model.kernels import Dropout

BERT_HIDDEN, BERT_STANDARD_DEVIATION = 768, 0.02


def initialize_positions(weight: Tensor) -> None:
    """Initialize position embeddings (P, D) as sinusoids, with the standard deviation of the other weights.

    With random ones, a small model spends most of its training learning which positions are adjacent.
    """
    positions, width = weight.shape
    angles = torch.arange(positions)[:, None] * position_rates(width)  # (P, ⌈D / 2⌉)
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
    with torch.no_grad():
        weight.copy_(waves * initial_deviation(width) * math.sqrt(2))


def initial_deviation(hidden: int) -> float:
    """Standard deviation of initial weights: BERT's 0.02 at width 768, 0.02 √(768 / hidden) at others.

    With 0.02, a narrow network is initially close to the identity and learns slowly.
    """
    return BERT_STANDARD_DEVIATION * math.sqrt(BERT_HIDDEN / hidden)


def initialize(module: nn.Module, hidden: int) -> None:
    """Initialize like BERT, scaled to the width `hidden`: normal weights, zero biases."""
    deviation = initial_deviation(hidden)
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=deviation)
        if isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)


def position_rates(hidden: int) -> Tensor:
    """Rates ω of the initial sinusoids of learned positions, per pair (⌈D / 2⌉,), in radians per token."""
    return torch.exp(torch.arange(0, hidden, 2) * (-math.log(10_000) / hidden))


class Globals(NamedTuple):
    """Content and owners of each sequence's extra global tokens; without it, all sequences have the same
    ones.

    `content` (B, G, D) is added to their learned vectors. `owners` (B, L) is the extra global token that owns
    each token, -1 for none; only relative labels use it.
    """

    content: Tensor
    owners: Tensor


class HiddenStates(NamedTuple):
    """Hidden states of the extra global tokens (B, G, D) and of the tokens (B, L, D) or (M, D)."""

    globals: Tensor
    tokens: Tensor


class Embeddings(nn.Module):
    """Normalized sum of token, position and segment embeddings; rotary positions are applied elsewhere."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.hidden)
        self.position = (
            nn.Embedding(config.max_length, config.hidden)
            if config.position_encoding == "learned"
            else None
        )
        self.segment = nn.Embedding(config.segments, config.hidden)
        self.extra = (
            nn.Embedding(config.num_global_tokens, config.hidden)
            if config.num_global_tokens
            else None
        )
        self.kmers = TokenKmers(config.kmers, config.hidden) if config.kmers else None
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        ids: Tensor,
        segments: Tensor | None,
        content: Tensor | None = None,
        added: Tensor | None = None,
    ) -> Tensor:
        """Embed ids (B, L), after the G extra global tokens if any: (B, G + L, D).

        `content` (B, G, D) is added to the vectors of the extra global tokens, `added` (B, L, D) to the
        normalized embeddings of the ids.
        """
        x = self.token(ids)  # (B, L, D)
        if self.position is not None:
            x = x + self.position(torch.arange(ids.shape[1], device=ids.device))

        x = x + self.segment(ids.new_zeros(1) if segments is None else segments)
        if self.extra is not None:
            number = torch.arange(self.extra.num_embeddings, device=ids.device)
            extra = self.extra(number).expand(len(x), -1, -1)
            x = torch.cat([extra if content is None else extra + content, x], dim=1)

        x = self.norm(self.dropout(x))

        if self.kmers is not None:
            kmers = self.kmers(ids)
            added = kmers if added is None else added + kmers

        if added is not None:
            if self.extra is not None:
                added = F.pad(added, (0, 0, self.extra.num_embeddings, 0))

            x = x + added

        return x  # type: ignore[no-any-return]


# Rotary positions (RoFormer, Su et al. 2021, arXiv 2104.09864, section 3.2): at position p the component pair
# f of a head's vectors is rotated by p · base^(-2f / K). q · k thus depends on positions only through their
# distance. No position table is learned, and no maximum length results.
# Axes: B batch, H heads, L tokens, K head width, F pairs of components that are rotated together.


class Rotation(NamedTuple):
    """Cosine and sine of every position's angles, float32."""

    cos: Tensor  # (L, K / 2)
    sin: Tensor  # (L, K / 2)


def rates(width: int, base: float, device: torch.device | None = None) -> Tensor:
    """Rotation rates of the component pairs of heads of `width`, radians per position, (K / 2,) float64."""
    pairs = torch.arange(0, width, 2, device=device, dtype=torch.float64) / width
    return base**-pairs


def rotation(
    tokens: int, width: int, base: float, device: torch.device | None = None
) -> Rotation:
    """The angles of positions 0 … L - 1 for heads of `width` components (even).

    Wavelengths range from 2π to almost 2π · base, in positions. Angles are float64: at position 131,072 the
    nearest float32 is off by up to 0.004 rad, and q · k would depend on the absolute positions. They are
    cached: computing them costs as much as a layer of a small model.
    """
    if torch.compiler.is_compiling():
        return _table(tokens, width, base, device)
    size = 1 << max(tokens - 1, 0).bit_length()
    cos, sin = _cached_table(size, width, base, device)
    return Rotation(cos[:tokens], sin[:tokens])


def _table(
    tokens: int, width: int, base: float, device: torch.device | None
) -> Rotation:
    positions = torch.arange(tokens, device=device, dtype=torch.float64)
    angles = positions[:, None] * rates(width, base, device)  # (L, K / 2)
    return Rotation(angles.cos().float(), angles.sin().float())


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # tables cached in inference must also work in training
@torch.no_grad()
def _cached_table(
    tokens: int, width: int, base: float, device: torch.device | None
) -> Rotation:
    return _table(tokens, width, base, device)


def rotate(x: Tensor, turns: Rotation) -> Tensor:
    """Rotate queries or keys, (B, H, L, K) → (B, H, L, K), in the type of `x`; computed in at least float32.

    Component f is paired with component f + K / 2 (as in GPT-NeoX and Llama), not with its neighbor as in
    RoFormer. This equals RoFormer's up to the order of components, which the projections learn, and uses two
    plain halves.
    """
    cos, sin = turns
    # Converted once, so that the gradient is rounded once as well.
    wide = x.to(torch.promote_types(x.dtype, cos.dtype))
    first, second = wide.chunk(2, dim=-1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(x.dtype)


def split_heads(
    joined: Tensor, heads: int, turns: Rotation | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Split concatenated queries, keys and values, (B, L, 3D) → (B, H, L, K) each, in `dtype`.

    Queries and keys are rotated by `turns`, if given.
    """
    if turns is not None and pointwise(joined) is not None:
        return _SplitHeads.apply(joined, heads, turns, dtype)  # type: ignore[no-any-return, no-untyped-call]
    q, k, v = _split(joined.to(dtype), heads)
    return (q, k, v) if turns is None else (rotate(q, turns), rotate(k, turns), v)


def _split(joined: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Views (B, H, L, K) of queries, keys and values in (B, L, 3D)."""
    parts = joined.view(*joined.shape[:2], 3, heads, -1)
    return parts.permute(2, 0, 3, 1, 4).unbind()


class _SplitHeads(torch.autograd.Function):
    """Split and rotate in one pass over memory, by the compiled kernel, and back in another.

    Training steps take 0.85 of the time that separate operations of torch take.
    """

    @staticmethod
    def forward(
        ctx: Any, joined: Tensor, heads: int, turns: Rotation, dtype: torch.dtype
    ) -> tuple[Tensor, ...]:
        kernel = pointwise(joined)
        assert kernel is not None
        ctx.shape, ctx.dtype = joined.shape, joined.dtype
        ctx.rotations = (turns, turns, None)
        # In the memory order (B, L, H, K), in which gradients and outputs are joined without a copy.
        batch, length, width = joined.shape
        out = joined.new_empty((3, batch, length, width // 3), dtype=dtype)
        out = out.view(3, batch, length, heads, -1).transpose(2, 3)
        parts = _split(joined, heads)
        for x, y, rotation in zip(parts, out, ctx.rotations, strict=True):
            kernel.turn(x, y, rotation)

        return out.unbind()

    @staticmethod
    def backward(ctx: Any, *uppers: Tensor) -> tuple[Tensor | None, ...]:
        check_first_derivative()
        kernel = pointwise(*uppers)
        assert kernel is not None
        grad = torch.empty(ctx.shape, dtype=ctx.dtype, device="cpu")
        parts = _split(grad, uppers[0].shape[1])
        for upper, out, rotation in zip(uppers, parts, ctx.rotations, strict=True):
            if upper.stride(3) != 1:
                upper = upper.contiguous()
            kernel.turn(upper, out, rotation, back=True)
        return grad, None, None, None


# Heads initialized to attend to adjacent tokens. From random weights, masked-token training stays for a long
# time at the entropy of token frequencies. No head attends to any token in particular, so no head carries the
# context of a masked token, and attention gives no gain. Heads that attend to one fixed offset each leave
# this plateau immediately. They are ordinary weights and biases, trained like all others: the architecture is
# still the paper's. Mimetic initialization (Trockman & Kolter 2023, arXiv 2305.09828) also begins with such
# structure, taken from trained networks. A head's initial logits are, up to the random weights' contribution,
# a sum of cosines of the distance from its offset; the gain of the weights follows from `MARGIN`.

MARGIN = 1.0
"""Logit margin of a head's offset over adjacent positions, in nats. Chosen by bits per base on yeast, see
docs/results.md."""

PAIRS = 16
"""Maximum number of sine and cosine pairs of learned positions that heads use."""


def init_local_heads(
    config: EncoderConfig, query: nn.Linear, key: nn.Linear | None, token: nn.Embedding
) -> None:
    """Initialize the heads of an encoder's first layer to attend to adjacent tokens.

    The weights must be as set by `initialize` and `initialize_positions`. A single layer is unchanged: local
    heads do not attend to [CLS], and no other layer would. Layers whose queries equal the keys (no `key`) are
    also unchanged: such a head attends mainly to its own token.

    With rotary positions, q = g (cos ωδ, sin ωδ) and k = g (1, 0) for every pair of components, ω its rate
    in radians per token and δ the head's offset. The rotated q at p and k at j have the product
    g² Σ cos ω (p + δ - j), largest at j = p + δ.

    With learned positions, which are initialized as sinusoids, keys select some sines and cosines, and
    queries the same ones rotated by the head's offset. Token embeddings are initialized to zero in these
    components, as they would dominate the sinusoids. The sinusoids' magnitudes after the embeddings'
    LayerNorm are computed from its expected variance.
    """
    if token.weight.is_meta or config.layers == 1 or key is None:
        return  # meta tensors have no values to set

    heads, hidden = config.heads, config.hidden
    width = hidden // heads
    head_offsets = torch.tensor(offsets(heads, config.causal))
    with torch.no_grad():
        if config.position_encoding == "rotary":
            turn_rates = rates(width, config.rotary_base).float()
            gain = _gain(turn_rates, width)
            angles = head_offsets[:, None] * turn_rates  # (H, K / 2)
            query.bias.copy_(
                gain * torch.cat([angles.cos(), angles.sin()], 1).flatten()
            )
            ones = torch.ones_like(angles)
            key.bias.copy_(gain * torch.cat([ones, 0 * ones], 1).flatten())
            return

        # Rates from 1 down to about 0.1, evenly spaced. Slower pairs do not distinguish adjacent positions;
        # similar rates would match the offset again one wavelength further.
        fast = max(1, hidden // 8)  # pairs above 0.1
        count = min(PAIRS, fast, width // 2)
        pairs = torch.arange(count) * fast // max(count, 1)
        turn_rates = position_rates(hidden)[pairs]
        # Token and segment embeddings each add the variance σ² of a sine, except in the zeroed components.
        variance = 3 - 2 * count / hidden
        gain = _gain(turn_rates, width) / math.sqrt(2 / variance)
        sines, cosines = 2 * pairs, 2 * pairs + 1
        token.weight[:, torch.cat([sines, cosines])] = 0
        for head, offset in enumerate(head_offsets):
            first = head * width
            rows = first + torch.arange(count)
            for weight, angles in (
                (query.weight, turn_rates * offset),
                (key.weight, 0 * turn_rates),
            ):
                weight[first : first + 2 * count] = 0
                # sin ω(p + δ) and cos ω(p + δ) from sin ωp and cos ωp
                weight[rows, sines] = gain * angles.cos()
                weight[rows, cosines] = gain * angles.sin()
                weight[rows + count, sines] = -gain * angles.sin()
                weight[rows + count, cosines] = gain * angles.cos()


def offsets(heads: int, causal: bool = False) -> list[int]:
    """Offsets of the heads, in tokens from their own: -1, +1, -2, +2, and so on; causal: -1, -2, …"""
    if causal:
        return [-number - 1 for number in range(heads)]
    return [(number // 2 + 1) * (1 if number % 2 else -1) for number in range(heads)]


def expected_bases(vocabulary: int) -> float:
    """Approximate mean length of tokens, bp: 0.85 of log4 V, which it would be if all were equally frequent.

    For 40, 256 and 32,000 tokens this is 2.3, 3.4 and 6.4; measured are 2.2, 3.5 and 6.0.
    """
    return max(1.0, 0.85 * math.log(vocabulary, 4))


def _gain(turn_rates: Tensor, width: int) -> float:
    """The gain for which logits at an offset exceed those of adjacent positions by `MARGIN`."""
    beside = (1 - turn_rates.cos()).sum().item() / math.sqrt(width)
    return math.sqrt(MARGIN / max(beside, 1e-3))
