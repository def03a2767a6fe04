"""Embeddings of input tokens, the global tokens before them, and initial weights.

What weights begin as: BERT's normal ones, and sinusoids for learnt positions.

Extra global tokens in front of a sequence (ETC): what they stand for, and what is made of them.

Axes: B batch, G extra globals, L tokens, D hidden width.

What an encoder's first layer reads: embeddings of tokens, positions and segments.

Shapes: B batch, L tokens, D hidden width, G extra globals.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.kernels import Dropout

BERT_HIDDEN, BERT_STANDARD_DEVIATION = 768, 0.02


def initialise_positions(weight: Tensor) -> None:
    """Start position embeddings (P, D) as sinusoids, of the standard deviation of the other weights.

    They are learnt like the rest. With random ones a small model spends most of its training on finding out
    which positions are neighbours; in sinusoids that is a linear map from the start.
    """
    positions, width = weight.shape
    angles = torch.arange(positions)[:, None] * position_rates(width)  # (P, ⌈D / 2⌉)
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
    with torch.no_grad():
        weight.copy_(waves * initial_deviation(width) * math.sqrt(2))


def initial_deviation(hidden: int) -> float:
    """Standard deviation of fresh weights: BERT's 0.02 at width 768, 0.02 √(768 / hidden) at others.

    That leaves the size of what a layer adds to its input the same: with 0.02 a narrow network begins next to
    the identity and learns slowly.
    """
    return BERT_STANDARD_DEVIATION * math.sqrt(BERT_HIDDEN / hidden)


def initialise(module: nn.Module, hidden: int) -> None:
    """BERT's initial weights, scaled to the width `hidden`: normal, biases zero."""
    deviation = initial_deviation(hidden)
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=deviation)
        if isinstance(part, nn.Linear):
            nn.init.zeros_(part.bias)


def position_rates(hidden: int) -> Tensor:
    """ω of the sinusoids that learnt positions begin as, by pair (⌈D / 2⌉,), radians a token."""
    return torch.exp(torch.arange(0, hidden, 2) * (-math.log(10_000) / hidden))


class Globals(NamedTuple):
    """What the extra globals of each sequence stand for; without it all sequences have the same ones.

    `content` (B, G, D) is added to their learnt vectors. `owners` (B, L) says which of them stands for a
    token, -1 for none; relative labels alone look at it.
    """

    content: Tensor
    owners: Tensor


class HiddenStates(NamedTuple):
    """Hidden states of the extra globals (B, G, D) and of the tokens (B, L, D)."""

    globals: Tensor
    tokens: Tensor


class Embeddings(nn.Module):
    """Sum of token, position and segment embeddings, normalised; rotary positions have no part in it."""

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

        `lengths` (B,) are the true lengths of padded rows; the convolution alone asks for them. `content`
        (B, G, D) is added to the vectors of the extra globals. `first` is the position of the first id, where
        those before it were embedded earlier. `added` (B, L, D) is added to the normalized embeddings of the
        ids, such as their `BasePositions`.
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

    A stem as those of convolutional DNA models, so that hidden tokens know their neighbours before any head
    has learnt to look. What lies beyond a row's ends counts as zero.
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
