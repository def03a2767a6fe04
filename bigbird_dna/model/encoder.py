"""The encoder: BERT with LayerNorm after each residual, and block-sparse attention (paper App. D and F).

Shapes: B batch, L tokens, D hidden width, H heads, K head width, V vocabulary, I intermediate width.

The arithmetic is HuggingFace BigBird's, part for part (dropout before the embeddings' LayerNorm, tanh GELU,
LayerNorm epsilon 1e-12), so that weights can be exchanged by renaming.
"""

import math
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from bigbird_dna.attention import ATTENTIONS
from bigbird_dna.attention.pattern import Pattern
from bigbird_dna.config import EncoderConfig

LAYER_NORM_EPSILON = 1e-12
BERT_HIDDEN, BERT_STANDARD_DEVIATION = 768, 0.02


def attention_pattern(config: EncoderConfig) -> Pattern:
    """The block pattern that `config` describes."""
    return Pattern(
        block_size=config.block_size,
        global_blocks=config.global_blocks,
        window_blocks=config.window_blocks,
        random_blocks=config.random_blocks,
        seed=config.random_seed,
    )


class Embeddings(nn.Module):
    """Sum of token, position and segment embeddings, normalised."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.hidden)
        self.position = nn.Embedding(config.positions, config.hidden)
        self.segment = nn.Embedding(2, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=LAYER_NORM_EPSILON)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor, segments: Tensor | None) -> Tensor:
        """Embed ids (B, L) → (B, L, D)."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.token(ids) + self.position(positions)  # (B, L, D)
        x = x + (self.segment.weight[0] if segments is None else self.segment(segments))
        return self.norm(self.dropout(x))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """Attention and feed-forward, each followed by dropout, residual and LayerNorm."""

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        hidden = config.hidden
        self.index = index
        self.heads = config.heads
        self.route = config.route
        self.attend = ATTENTIONS[config.attention]
        self.pattern = attention_pattern(config)
        self.attention_dropout = config.attention_dropout
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.attention_output = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden, eps=LAYER_NORM_EPSILON)
        self.intermediate = nn.Linear(hidden, config.intermediate or 4 * hidden)
        self.output = nn.Linear(config.intermediate or 4 * hidden, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=LAYER_NORM_EPSILON)
        self.dropout = nn.Dropout(config.dropout)

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)  # (B, L, D) → (B, H, L, K)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Hidden states (B, L, D) → (B, L, D); `lengths` (B,) are the true lengths of padded rows."""
        q, k, v = (self._split(part(x)) for part in (self.query, self.key, self.value))
        # The backward pass of torch's fused attention on CPUs is five times slower in bfloat16.
        widen = x.device.type == "cpu" and q.dtype == torch.bfloat16 and torch.is_grad_enabled()
        if widen:
            q, k, v = q.float(), k.float(), v.float()
        with torch.autocast("cpu", enabled=False) if widen else nullcontext():
            context = self.attend(
                q,
                k,
                v,
                self.pattern,
                lengths=lengths,
                layer=self.index,
                dropout=self.attention_dropout if self.training else 0.0,
                route=self.route,
            )
        context = context.transpose(1, 2).flatten(2)  # (B, H, L, K) → (B, L, D)
        x = self.attention_norm(x + self.dropout(self.attention_output(context)))
        inner = F.gelu(self.intermediate(x), approximate="tanh")  # (B, L, I)
        return self.output_norm(x + self.dropout(self.output(inner)))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """Token ids to hidden states.

    Parameters
    ----------
    config
        `vocabulary` must be set; all shapes follow from it.

    Examples
    --------
    >>> encoder = Encoder(EncoderConfig(vocabulary=32, layers=1, hidden=8, heads=2, positions=64))
    >>> encoder(torch.zeros(1, 10, dtype=torch.long)).shape
    torch.Size([1, 10, 8])
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        if config.vocabulary < 1:
            raise ValueError("EncoderConfig.vocabulary must be set to build an encoder")
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config.layers))
        initialise(self, config.hidden)
        initialise_positions(self.embeddings.position.weight)

    def forward(
        self, ids: Tensor, lengths: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """Encode a batch.

        Parameters
        ----------
        ids
            Token ids (B, L), padded on the right.
        lengths
            True lengths (B,); none: no padding. The result for a row doesn't depend on its padding.
        segments
            0 for sentence A, 1 for sentence B, (B, L); none: all A.

        Returns
        -------
        Hidden states (B, L, D); those of padding hold no meaning.
        """
        if ids.shape[1] > self.config.positions:
            raise ValueError(
                f"{ids.shape[1]} tokens are more than the encoder's {self.config.positions} positions"
            )
        # Attention plans its work by the lengths: read once here, a GPU isn't waited for in every layer.
        lengths = None if lengths is None else lengths.cpu()
        x = self.embeddings(ids, segments)
        for layer in self.layers:
            if self.config.gradient_checkpointing and self.training:
                x = checkpoint(layer, x, lengths, use_reentrant=False)
            else:
                x = layer(x, lengths)
        return x  # type: ignore[no-any-return]


def initialise_positions(weight: Tensor) -> None:
    """Start position embeddings (P, D) as sinusoids, of the standard deviation of the other weights.

    They are learnt like the rest. With random ones a small model spends most of its training on finding out
    which positions are neighbours; in sinusoids that is a linear map from the start.
    """
    positions, width = weight.shape
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))  # (⌈D / 2⌉,)
    angles = torch.arange(positions)[:, None] * rates  # (P, ⌈D / 2⌉)
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
