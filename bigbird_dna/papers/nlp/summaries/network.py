"""Networks of both forms of a summarization model, and their settings.

Base form: the decoder uses the encoder's weights, except for its cross-attention. After Rothe et al. 2020
(arXiv 1907.12461), as in the paper's App. E.5 for the base size.

Pegasus form: LayerNorm before each part and after the last layer, and a separate decoder. The computation is
that of HuggingFace's BigBirdPegasus, so its checkpoints can be imported by renaming tensors.

Shapes as in `search`, P positions.
"""

import math
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.encoder import Encoder, Layer
from bigbird_dna.model.input_embeddings import Rotation, initialize, rotate, table_rows
from bigbird_dna.model.kernels import ACTIVATIONS, Dropout
from bigbird_dna.model.settings import OtherSettings, Task, register_settings
from bigbird_dna.papers.nlp.config import DecoderShape, SpecialIds, SummaryForm
from bigbird_dna.papers.nlp.summaries.search import (
    BeamDecoder,
    Cache,
    DecoderAttention,
    split,
)


class CrossAttention(nn.Module):
    """Attention to the document, followed by dropout, residual connection and LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.attention = DecoderAttention(
            config.hidden, config.heads, config.attention_dropout
        )
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, cache: Cache, layer: int) -> Tensor:
        context = self.attention.to_document(x, cache.memory[layer], cache.present)
        return self.norm(self.dropout(context, x))  # type: ignore[no-any-return]


class SharedSummarizer(BeamDecoder):
    """Encoder of documents and decoder of summaries with common weights.

    A layer of the decoder is the encoder layer of the same number, with full causal attention instead of
    sparse attention, and cross-attention between attention and feed-forward network. The embeddings are those
    of the encoder, and their transpose gives the logits.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        for key in ("reversible", "convolution", "kmers"):
            if getattr(config, key):
                raise ConfigError(
                    f"encoder.{key}: not supported by a decoder with the encoder's weights"
                )
        config.check_no_bases()
        self.config = config
        self.encoder = Encoder(config)
        self.cross = nn.ModuleList(
            [CrossAttention(config) for _ in range(config.layers)]
        )
        self.logits_bias = nn.Parameter(torch.zeros(config.vocabulary))
        initialize(self.cross, config.hidden)

    def encode(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.encoder(ids, lengths)  # type: ignore[no-any-return]

    def to_document(self) -> list[DecoderAttention]:
        return [part.attention for part in self.cross]  # type: ignore[misc]

    def decode(self, ids: Tensor, cache: Cache) -> Tensor:
        x = self._embed(ids, cache.tokens)
        turns = self.encoder.turns(cache.tokens + ids.shape[1], x.device)
        turns = turns and Rotation(*(part[cache.tokens :] for part in turns))
        for layer, cross in zip(self.encoder.layers, self.cross, strict=True):
            assert isinstance(layer, Layer)
            context = _to_past(layer, x, cache, layer.index, turns)
            x = layer.attention_norm(layer.dropout(layer.attention_output(context), x))
            x = cross(x, cache, layer.index)
            x = layer.output_norm(layer.dropout(layer.inner(x), x))
        cache.tokens += ids.shape[1]
        return F.linear(x, self.encoder.embeddings.token.weight, self.logits_bias)

    def _embed(self, ids: Tensor, before: int) -> Tensor:
        own = self.encoder.embeddings
        x = own.token(ids) * own.token_scale
        if own.position is not None:
            x = x + table_rows(own.position, before, before + ids.shape[1], x.device)
        return own.norm(own.dropout(x + table_rows(own.segment, 0, 1, x.device)))  # type: ignore[no-any-return]


def _to_past(
    part: Layer | DecoderAttention,
    x: Tensor,
    cache: Cache,
    index: int,
    turns: Rotation | None = None,
) -> Tensor:
    """Full causal attention with a layer's projections to all preceding tokens, including those in `cache`,
    (R, T, D) → (R, T, D)."""
    parts = (part.query, part.key or part.query, part.value)
    q, k, v = (split(one(x), part.heads) for one in parts)
    if turns is not None:
        q, k = rotate(q, turns), rotate(k, turns)
    return cache.attend(
        index, q, k, v, part.attention_dropout if part.training else 0.0
    )


class PegasusStack(nn.Module):
    """Embedded tokens (B, L, D), after `first` others, to hidden states; layers also receive `given`."""

    def __init__(self, config: EncoderConfig, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.position = nn.Embedding(config.max_length, config.hidden)
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, first: int, *given: Any) -> Tensor:
        x = self.dropout(
            x + table_rows(self.position, first, first + x.shape[1], x.device)
        )
        for layer in self.layers:
            x = layer(x, *given)
        return self.norm(x)  # type: ignore[no-any-return]


class PegasusDecoderLayer(nn.Module):
    """Attention to the summary so far, attention to the document, feed-forward network."""

    def __init__(self, config: EncoderConfig, shape: DecoderShape, index: int) -> None:
        super().__init__()
        hidden, epsilon, inner = (
            config.hidden,
            config.layer_norm_epsilon,
            shape.intermediate,
        )
        self.index, self.activation = index, config.activation
        self.attention = DecoderAttention(hidden, shape.heads, config.attention_dropout)
        self.attention_norm = nn.LayerNorm(hidden, eps=epsilon)
        self.cross = DecoderAttention(hidden, shape.heads, config.attention_dropout)
        self.cross_norm = nn.LayerNorm(hidden, eps=epsilon)
        self.intermediate = nn.Linear(hidden, inner)
        self.output = nn.Linear(inner, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        past = _to_past(self.attention, self.attention_norm(x), cache, self.index)
        x = self.dropout(self.attention.output(past), x)
        context = self.cross.to_document(
            self.cross_norm(x), cache.memory[self.index], cache.present
        )
        x = self.dropout(context, x)
        inner = ACTIVATIONS[self.activation](self.intermediate(self.output_norm(x)))
        return self.dropout(self.output(inner), x)  # type: ignore[no-any-return]


class PegasusSummarizer(BeamDecoder):
    """Encoder and decoder with common embeddings, whose transpose gives the logits.

    Positions are initialized to Pegasus' sinusoids, and are learned like other weights.
    """

    def __init__(self, config: EncoderConfig, shape: DecoderShape) -> None:
        super().__init__()
        for key in (
            "reversible",
            "convolution",
            "kmers",
            "num_global_tokens",
            "relative_max_distance",
        ):
            if getattr(config, key):
                raise ConfigError(f"encoder.{key}: not supported by the form pegasus")
        if config.position_encoding != "learned":
            raise ConfigError(
                f"encoder.position_encoding {config.position_encoding}: the form pegasus needs learned"
            )
        if config.hidden % shape.heads:
            raise ConfigError(
                f"decoder heads {shape.heads} must divide encoder.hidden {config.hidden}"
            )
        self.config = config
        self.token = nn.Embedding(config.vocabulary, config.hidden)
        self.token_scale = (
            math.sqrt(config.hidden) if config.rescale_embeddings else 1.0
        )
        config = config.model_copy(update={"norm": "pre"})
        layers = (Layer(config, index) for index in range(config.layers))
        own = (
            PegasusDecoderLayer(config, shape, index) for index in range(shape.layers)
        )
        self.encoder, self.decoder = (
            PegasusStack(config, layers),
            PegasusStack(config, own),
        )
        self.logits_bias = nn.Parameter(torch.zeros(config.vocabulary))
        initialize(self, config.hidden)
        with torch.no_grad():
            for part in (self.encoder, self.decoder):
                part.position.weight.copy_(
                    pegasus_positions(config.max_length, config.hidden)
                )

    def encode(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        if ids.shape[1] > self.config.max_length:
            limit = self.config.max_length
            raise ValueError(
                f"{ids.shape[1]} tokens exceed the encoder's {limit} positions"
            )
        lengths = None if lengths is None else lengths.cpu()
        return self.encoder(self.token(ids) * self.token_scale, 0, lengths)  # type: ignore[no-any-return]

    def to_document(self) -> list[DecoderAttention]:
        return [layer.cross for layer in self.decoder.layers]  # type: ignore[misc]

    def decode(self, ids: Tensor, cache: Cache) -> Tensor:
        x = self.decoder(self.token(ids) * self.token_scale, cache.tokens, cache)
        cache.tokens += ids.shape[1]
        return F.linear(x, self.token.weight, self.logits_bias)


def pegasus_positions(positions: int, hidden: int) -> Tensor:
    """Return sinusoids (P, D) in Pegasus' layout: all sines first, then all cosines (Zhang et al. 2020)."""
    half = -(-hidden // 2)
    rates = 10_000.0 ** (-2 * torch.arange(half, dtype=torch.float64) / hidden)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()[:, : hidden - half]], dim=1).float()


Summarizer = SharedSummarizer | PegasusSummarizer

MATCHING = 2.0
"""Factor of queries for cross-attention initialized to match tokens. Chosen on the generated task: with 1,
learning takes twice the steps."""


class SummariesSettings(OtherSettings):
    """Settings of a summarization model; without `decoder`, it is of the base form."""

    task: ClassVar[Task] = "summaries"
    decoder: DecoderShape | None = None
    special: SpecialIds

    @property
    def form(self) -> SummaryForm:
        return "base" if self.decoder is None else "pegasus"

    def build(self, config: EncoderConfig) -> Summarizer:
        if self.decoder is None:
            return SharedSummarizer(config)
        return PegasusSummarizer(config, self.decoder)

    def layers(self, config: EncoderConfig) -> int:
        """Return the number of encoder and decoder layers, as far as they have separate tensors."""
        return config.layers + (
            config.layers if self.decoder is None else self.decoder.layers
        )


register_settings(SummariesSettings)


def match_tokens(network: nn.Module) -> None:
    """Initialize new cross-attention to attend to document tokens equal to the summary's last token.

    Queries and keys are one random rotation of the states, so a head's scores increase with the similarity of
    part of them. Values and output are this rotation and its inverse, so attended states are unchanged.
    Encoder and decoder have the same embeddings: equal tokens have similar states. Information on a token's
    neighbors is available from the first step, and copying a passage only requires reading it.
    """
    for part in network.modules():
        for cross in part.to_document() if isinstance(part, BeamDecoder) else ():
            with torch.no_grad():
                turn = nn.init.orthogonal_(torch.empty_like(cross.query.weight))
                cross.query.weight.copy_(MATCHING * turn)
                cross.key.weight.copy_(turn)
                cross.value.weight.copy_(turn)
                cross.output.weight.copy_(turn.T)
