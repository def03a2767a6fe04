"""What an encoder's first layer reads: embeddings of tokens, positions and segments, and extra global tokens;
rotary positions, and how the first layer's weights begin by either kind of positions.

Extra global tokens (ETC) are in front of the sequence. Axes: B batch, G extra globals, L tokens, D hidden
width.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bigbird_dna.attention.native import pointwise
from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.kernels import Dropout

BERT_HIDDEN, BERT_STANDARD_DEVIATION = 768, 0.02


def initialize_positions(weight: Tensor) -> None:
    """Initialize position embeddings (P, D) as sinusoids, of the standard deviation of the other weights.

    With random ones a small model spends most of its training on finding out which positions are adjacent.
    """
    positions, width = weight.shape
    angles = torch.arange(positions)[:, None] * position_rates(width)  # (P, ⌈D / 2⌉)
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
    with torch.no_grad():
        weight.copy_(waves * initial_deviation(width) * math.sqrt(2))


def initial_deviation(hidden: int) -> float:
    """Standard deviation of initial weights: BERT's 0.02 at width 768, 0.02 √(768 / hidden) at others.

    With 0.02 a narrow network begins next to the identity and learns slowly.
    """
    return BERT_STANDARD_DEVIATION * math.sqrt(BERT_HIDDEN / hidden)


def initialize(module: nn.Module, hidden: int) -> None:
    """BERT's initial weights, scaled to the width `hidden`: normal, biases zero."""
    deviation = initial_deviation(hidden)
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=deviation)
        if isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)


def position_rates(hidden: int) -> Tensor:
    """ω of the sinusoids that learned positions begin as, by pair (⌈D / 2⌉,), radians a token."""
    return torch.exp(torch.arange(0, hidden, 2) * (-math.log(10_000) / hidden))


class Globals(NamedTuple):
    """What the extra globals of each sequence stand for; without it all sequences have the same ones.

    `content` (B, G, D) is added to their learned vectors. `owners` (B, L) says which of them stands for a
    token, -1 for none; relative labels alone look at it.
    """

    content: Tensor
    owners: Tensor


class HiddenStates(NamedTuple):
    """Hidden states of the extra globals (B, G, D) and of the tokens (B, L, D)."""

    globals: Tensor
    tokens: Tensor


class Embeddings(nn.Module):
    """Sum of token, position and segment embeddings, normalized; rotary positions have no part in it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.hidden)
        self.position = (
            nn.Embedding(config.max_length, config.hidden) if config.position_encoding == "learned" else None
        )
        self.segment = nn.Embedding(config.segments, config.hidden)
        self.extra = (
            nn.Embedding(config.num_global_tokens, config.hidden) if config.num_global_tokens else None
        )
        self.convolution = Convolution(config.hidden, config.convolution) if config.convolution else None
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.token_scale = math.sqrt(config.hidden) if config.rescale_embeddings else 1.0
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        ids: Tensor,
        segments: Tensor | None,
        lengths: Tensor | None = None,
        content: Tensor | None = None,
        first: int = 0,
        added: Tensor | None = None,
    ) -> Tensor:
        """Embed ids (B, L), behind the G extra globals if there are any: (B, G + L, D).

        Only the convolution needs `lengths` (B,), the true lengths of padded rows. `content` (B, G, D) is
        added to the vectors of the extra globals, `added` (B, L, D) to the normalized embeddings of the ids;
        `first` is the position of the first id.
        """
        x = self.token(ids)  # (B, L, D)
        if self.token_scale != 1:
            x = x * self.token_scale
        if self.position is not None:
            x = x + self.position.weight[first : first + ids.shape[1]]
        x = x + (self.segment.weight[0] if segments is None else self.segment(segments))
        if self.convolution is not None:
            x = x + self.convolution(x, lengths)
        if self.extra is not None:
            extra = self.extra.weight.expand(len(x), -1, -1)
            x = torch.cat([extra if content is None else extra + content, x], dim=1)
        x = self.norm(self.dropout(x))
        if added is not None:
            x = x + (added if self.extra is None else F.pad(added, (0, 0, self.extra.num_embeddings, 0)))
        return x  # type: ignore[no-any-return]


class Convolution(nn.Module):
    """Each component's weighted sum over the tokens around; not the paper's.

    A stem as those of convolutional DNA models, so that hidden tokens know their neighbors before any head
    has learned to look. What lies beyond a row's ends counts as zero.
    """

    def __init__(self, hidden: int, tokens: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(tokens, hidden).normal_(std=tokens**-0.5))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Embeddings (B, L, D) → (B, L, D); `lengths` (B,) are the true lengths of padded rows."""
        tokens, around = x.shape[1], len(self.weight) // 2
        if lengths is not None:
            there = torch.arange(tokens, device=x.device) < lengths.to(x.device, non_blocking=True)[:, None]
            x = x * there[..., None]
        wide = F.pad(x, (0, 0, around, around))
        total = wide[:, :tokens] * self.weight[0]
        for place in range(1, len(self.weight)):
            total = total + wide[:, place : place + tokens] * self.weight[place]
        return total


# Rotary positions (RoFormer, Su et al. 2021, arXiv 2104.09864, section 3.2): at position p the component pair
# f of a head's vectors turns by p · base^(-2f / K), so that q · k depends on the two positions by their
# distance alone. There is no table of positions to learn, and nothing that ends at some length.
# Axes: B batch, H heads, L tokens, K head width, F pairs of components that turn together.

_KEPT_TOKENS = 2048


class Rotation(NamedTuple):
    """Cosine and sine of every position's angles, float32."""

    cos: Tensor  # (L, K / 2)
    sin: Tensor  # (L, K / 2)


def rates(width: int, base: float, device: torch.device | None = None) -> Tensor:
    """What the pairs of heads of `width` components turn by, radians a token, (K / 2,) float64."""
    pairs = torch.arange(0, width, 2, device=device, dtype=torch.float64) / width
    return base**-pairs


def rotation(
    tokens: int, width: int, base: float, scale: float, device: torch.device | None = None
) -> Rotation:
    """The angles of positions 0 … L - 1 for heads of `width` components (even).

    Wavelengths run from 2π to almost 2π · base, in tokens; positions are divided by `scale`: position
    interpolation (Chen et al. 2023, arXiv 2306.15595). Angles are float64: at position 131,072 the nearest
    float32 is up to 0.004 rad off, and q · k would depend on the two absolute positions. Those of short
    inputs on CPUs are kept: making them costs as much as a layer of a small model.
    """
    cpu = device is None or device.type == "cpu"
    if cpu and tokens <= _KEPT_TOKENS and not torch.compiler.is_compiling():
        return _kept_rotation(tokens, width, base, scale)
    return _rotation(tokens, width, base, scale, device)


@lru_cache(maxsize=512)
@torch.inference_mode(False)  # what inference makes first must serve training as well
@torch.no_grad()
def _kept_rotation(tokens: int, width: int, base: float, scale: float) -> Rotation:
    return _rotation(tokens, width, base, scale, None)


def _rotation(tokens: int, width: int, base: float, scale: float, device: torch.device | None) -> Rotation:
    positions = torch.arange(tokens, device=device, dtype=torch.float64) / scale
    angles = positions[:, None] * rates(width, base, device)  # (L, K / 2)
    return Rotation(angles.cos().float(), angles.sin().float())


def rotate(x: Tensor, turns: Rotation) -> Tensor:
    """Turn queries or keys, (B, H, L, K) → (B, H, L, K), of the type of `x`; computed in float32 at least.

    Component f is paired with component f + K / 2 (the layout of GPT-NeoX and Llama), not with its neighbor
    as in RoFormer: the same up to the order of components, which the projections learn, and two plain halves.
    """
    first, second = x.chunk(2, dim=-1)
    cos, sin = turns
    # bfloat16 × float32 is float32.
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.to(x.dtype)


def split_heads(
    joined: Tensor, heads: int, turns: Rotation | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values that lie side by side, (B, L, 3D) → (B, H, L, K) each, of `dtype`.

    Queries and keys are turned by `turns`, if there are any, on their way. For CPUs: one pass over memory,
    and one back, which turns by the opposite angles. Where no gradient is asked for, `joined` may be
    overwritten.
    """
    if torch.is_grad_enabled():
        return _SplitHeads.apply(joined, heads, turns, dtype)  # type: ignore[no-any-return, no-untyped-call]
    q, k, v = _parts(joined, heads)
    if turns is not None:
        place = joined if joined.dtype == dtype else torch.empty_like(joined, dtype=dtype)
        q, k = (_turned(x, y, turns) for x, y in zip((q, k), _parts(place, heads), strict=False))
    return q.to(dtype), k.to(dtype), v.to(dtype)


class _SplitHeads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, joined: Tensor, heads: int, turns: Rotation | None, dtype: torch.dtype
    ) -> tuple[Tensor, ...]:
        ctx.shape, ctx.dtype, ctx.of = joined.shape, joined.dtype, (turns, turns, None)
        parts = _parts(joined, heads)
        # In the memory order (B, L, H, K), from which gradients and outputs are joined without a copy.
        room = joined.new_empty((3, *joined.shape[:2], heads, parts[0].shape[3]), dtype=dtype).transpose(2, 3)
        return tuple(_turned(x, out, own) for x, out, own in zip(parts, room, ctx.of, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *uppers: Tensor) -> tuple[Tensor | None, ...]:
        grad = torch.empty(ctx.shape, dtype=ctx.dtype)
        for upper, out, own in zip(uppers, _parts(grad, uppers[0].shape[1]), ctx.of, strict=True):
            _turned(upper, out, own, back=True)
        return grad, None, None, None


def _parts(joined: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Views (B, H, L, K) of queries, keys and values in (B, L, 3D)."""
    q, k, v = joined.view(*joined.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
    return q, k, v


def _turned(x: Tensor, out: Tensor, turns: Rotation | None, back: bool = False) -> Tensor:
    """`out` (B, H, L, K), which may be `x`, becomes `x` turned, or turned back."""
    kernel = pointwise(x, out)
    if kernel is not None:
        return kernel.turn(x if x.stride(3) == 1 else x.contiguous(), out, turns, back)
    if turns is None:
        return out.copy_(x)
    (first, second), (cos, sin) = x.chunk(2, dim=-1), turns
    sin = -sin if back else sin
    front, rear = out.chunk(2, dim=-1)
    turned = first * cos
    turned.addcmul_(second.to(turned.dtype), sin, value=-1)
    rear.copy_((second * cos).addcmul_(first.to(turned.dtype), sin))
    front.copy_(turned)
    return out


# Heads that begin by looking at neighboring tokens. Masked-token training from random weights stays for a
# long time at what the tokens' frequencies tell: no head looks at any token in particular, so none carries
# what stands beside a hidden one, and nothing is gained by looking. Heads that look at one offset each from
# the first step on leave that plateau at once. They are ordinary weights and biases, learned like the rest:
# the architecture stays the paper's. Mimetic initialization (Trockman & Kolter 2023, arXiv 2305.09828) starts
# attention from such structure too, there that of trained networks. A head's logits at the start are, up to
# the random weights' share, a sum of cosines of the distance from its offset: the gain of the weights follows
# from `MARGIN`.

MARGIN = 1.0
"""Of a head's logits, in nats: its offset above the places beside it. Chosen by bits per base on yeast, see
docs/results/initialization.md."""

PAIRS = 16
"""Sines and cosines of learned positions that heads look at, at most."""


def init_local_heads(
    config: EncoderConfig, query: nn.Linear, key: nn.Linear | None, token: nn.Embedding
) -> None:
    """Initialize the heads of an encoder's first layer to attend to adjacent tokens.

    The weights must be as `initialize` and `initialize_positions` leave them. An only layer is unchanged:
    heads that attend locally have nothing for [CLS], and there is no other layer that does. So are layers
    whose queries are the keys (no `key`): such a head attends to its own token first.
    """
    places = offsets(config.heads, config.causal)
    if token.weight.is_meta or config.layers == 1 or key is None:  # of meta tensors shapes alone matter
        return
    if config.position_encoding == "rotary":
        width = config.hidden // config.heads
        turn_rates = (rates(width, config.rotary_base) / config.rotary_scale).float()
        init_local_rotary(query, key, places, turn_rates)
    else:
        init_local_learned(query, key, token, places)


def offsets(heads: int, causal: bool = False) -> list[int]:
    """What the heads look at, in tokens from their own: -1, +1, -2, +2, and so on; causal: -1, -2, …"""
    if causal:
        return [-number - 1 for number in range(heads)]
    return [(number // 2 + 1) * (1 if number % 2 else -1) for number in range(heads)]


def init_local_rotary(query: nn.Linear, key: nn.Linear, places: Sequence[int], turn_rates: Tensor) -> None:
    """Set the biases of the first layer with rotary positions, for heads with offsets `places` in tokens.

    With q = g (cos ωδ, sin ωδ) and k = g (1, 0) for every pair of components, ω its rate in radians per token
    and δ the head's offset, the rotated q at p and k at j have the product g² Σ cos ω (p + δ - j), largest at
    j = p + δ.
    """
    width = 2 * len(turn_rates)
    gain = _gain(turn_rates, width)
    angles = torch.tensor([*places])[:, None] * turn_rates  # (H, K / 2)
    still = torch.cat([torch.ones(len(turn_rates)), torch.zeros(len(turn_rates))])
    with torch.no_grad():
        query.bias.copy_(gain * torch.cat([angles.cos(), angles.sin()], dim=1).flatten())
        key.bias.copy_(gain * still.repeat(len(places)))


def init_local_learned(query: nn.Linear, key: nn.Linear, token: nn.Embedding, places: Sequence[int]) -> None:
    """Set the first layer's weights where positions are learned and are initialized as sinusoids.

    Keys select some of the sines and cosines, queries the same ones rotated by the head's offset. What tokens
    have there would drown them: token embeddings begin at zero in those components. The sizes of the
    sinusoids after the embeddings' LayerNorm are those of its expected variance.
    """
    hidden = token.embedding_dim
    width = hidden // len(places)
    chosen = position_pairs(hidden, width)
    count = len(chosen)
    turn_rates = position_rates(hidden)[chosen]
    # Of a sine's variance σ² the token's and the segment's part are as much again, but for the cleared ones.
    variance = 3 - 2 * count / hidden
    gain = _gain(turn_rates, width) / math.sqrt(2 / variance)
    sines, cosines = 2 * chosen, 2 * chosen + 1
    with torch.no_grad():
        for weight, turned in ((query.weight, places), (key.weight, [0] * len(places))):
            for head, offset in enumerate(turned):
                rows = head * width + torch.arange(count)
                angles = turn_rates * offset
                weight[head * width : head * width + 2 * count] = 0
                # sin ω(p + δ) and cos ω(p + δ) from sin ωp and cos ωp
                weight[rows, sines], weight[rows, cosines] = gain * angles.cos(), gain * angles.sin()
                weight[rows + count, sines] = -gain * angles.sin()
                weight[rows + count, cosines] = gain * angles.cos()
        token.weight[:, torch.cat([sines, cosines])] = 0


def position_pairs(hidden: int, width: int) -> Tensor:
    """The pairs that heads look at: rates from 1 down to about 0.1, evenly spaced (F,).

    Slower ones don't tell neighbors apart; rates that lie close together would find the offset again a
    wavelength further on.
    """
    fast = max(1, hidden // 8)  # pairs above 0.1
    count = min(PAIRS, fast, width // 2)
    return torch.arange(count) * fast // max(count, 1)


def _gain(turn_rates: Tensor, width: int) -> float:
    """What makes the logits at an offset exceed those beside it by `MARGIN`."""
    beside = (1 - turn_rates.cos()).sum().item() / math.sqrt(width)
    return math.sqrt(MARGIN / max(beside, 1e-3))
