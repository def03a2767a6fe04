"""What an encoder's first layer reads: embeddings of tokens, positions and segments.

Shapes: B batch, L tokens, D hidden width, G extra globals.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import EncoderConfig
from bigbird_dna.model.dropout import Dropout


class Embeddings(nn.Module):
    """Sum of token, position and segment embeddings, normalised; rotary positions have no part in it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.hidden)
        self.position = (
            nn.Embedding(config.positions, config.hidden) if config.position == "learned" else None
        )
        self.segment = nn.Embedding(config.segments, config.hidden)
        self.extra = nn.Embedding(config.extra_globals, config.hidden) if config.extra_globals else None
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
