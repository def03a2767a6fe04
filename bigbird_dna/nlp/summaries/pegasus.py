"""The Pegasus form: LayerNorm before each part and after the last layer, and a decoder of its own.

The arithmetic is that of HuggingFace's BigBirdPegasus, so that its checkpoints can be read by renaming
tensors. Shapes as in `decoding`, P positions, V vocabulary.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.encoder import Layer
from bigbird_dna.model.input_embeddings import initialise
from bigbird_dna.model.kernels import ACTIVATIONS, Dropout
from bigbird_dna.model.rotary import Rotation
from bigbird_dna.nlp.summaries.decoding import Attention, Cache, presence
from bigbird_dna.nlp.summaries.settings import DecoderShape


class PegasusLayer(Layer):
    """A layer of the encoder, with LayerNorm before its two parts."""

    def forward(
        self, x: Tensor, lengths: Tensor | None, turns: Rotation | None = None, owners: Tensor | None = None
    ) -> Tensor:
        """As `Layer.forward`."""
        context = self.attended(self.attention_norm(x), lengths, turns, owners)
        x = self.dropout(self.attention_output(context.transpose(1, 2).flatten(2)), x)
        return self.dropout(self.inner(self.output_norm(x)), x)  # type: ignore[no-any-return]


class PegasusEncoder(nn.Module):
    """Embeddings of documents (B, L, D) to hidden states."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.position = nn.Embedding(config.positions, config.hidden)
        self.layers = nn.ModuleList([PegasusLayer(config, index) for index in range(config.layers)])
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Hidden states (B, L, D) of embedded tokens; `lengths` (B,) are the true ones of padded rows."""
        if x.shape[1] > len(self.position.weight):
            limit = len(self.position.weight)
            raise ValueError(f"{x.shape[1]} tokens are more than the encoder's {limit} positions")
        lengths = None if lengths is None else lengths.cpu()
        x = self.dropout(x + self.position.weight[: x.shape[1]])
        for layer in self.layers:
            x = layer(x, lengths)
        return self.norm(x)  # type: ignore[no-any-return]


class PegasusDecoderLayer(nn.Module):
    """Attention to the summary so far, attention to the document, feed-forward."""

    def __init__(self, config: EncoderConfig, shape: DecoderShape, index: int) -> None:
        super().__init__()
        hidden, epsilon, inner = config.hidden, config.layer_norm_epsilon, shape.intermediate
        self.index, self.activation = index, config.activation
        self.attention = Attention(hidden, shape.heads, config.attention_dropout)
        self.attention_norm = nn.LayerNorm(hidden, eps=epsilon)
        self.cross = Attention(hidden, shape.heads, config.attention_dropout)
        self.cross_norm = nn.LayerNorm(hidden, eps=epsilon)
        self.intermediate = nn.Linear(hidden, inner)
        self.output = nn.Linear(inner, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        """Summaries' states (R, T, D) → (R, T, D)."""
        x = self.dropout(self.attention.to_past(self.attention_norm(x), cache, self.index), x)
        context = self.cross.to_document(self.cross_norm(x), cache.memory[self.index], cache.present)
        x = self.dropout(context, x)
        inner = ACTIVATIONS[self.activation](self.intermediate(self.output_norm(x)))
        return self.dropout(self.output(inner), x)  # type: ignore[no-any-return]


class PegasusDecoder(nn.Module):
    """Embeddings of summaries to hidden states."""

    def __init__(self, config: EncoderConfig, shape: DecoderShape) -> None:
        super().__init__()
        self.position = nn.Embedding(config.positions, config.hidden)
        layers = [PegasusDecoderLayer(config, shape, index) for index in range(shape.layers)]
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def parts(self) -> list[PegasusDecoderLayer]:
        """The layers, the first one first."""
        return list(self.layers)  # type: ignore[arg-type]

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        """Hidden states (R, T, D) of embedded tokens, which follow those in `cache`."""
        before = cache.tokens
        x = self.dropout(x + self.position.weight[before : before + x.shape[1]])
        for layer in self.layers:
            x = layer(x, cache)
        cache.tokens += x.shape[1]
        return self.norm(x)  # type: ignore[no-any-return]


class PegasusSummariser(nn.Module):
    """Encoder and decoder, which share nothing but the embeddings; their transpose gives the logits.

    Fresh positions are Pegasus' sinusoids; they are learnt like the rest.
    """

    def __init__(self, config: EncoderConfig, shape: DecoderShape) -> None:
        super().__init__()
        for key in ("reversible", "convolution", "extra_globals", "relative_radius"):
            if getattr(config, key):
                raise ConfigError(f"encoder.{key}: the Pegasus form of a summariser can't have it")
        if config.position != "learned":
            raise ConfigError(f"encoder.position {config.position}: the Pegasus form has learned ones only")
        if config.hidden % shape.heads:
            raise ConfigError(f"decoder heads {shape.heads} don't divide encoder.hidden {config.hidden}")
        self.config = config
        self.token = nn.Embedding(config.vocabulary, config.hidden)
        self.token_scale = math.sqrt(config.hidden) if config.rescale_embeddings else 1.0
        self.encoder = PegasusEncoder(config)
        self.decoder = PegasusDecoder(config, shape)
        self.logits_bias = nn.Parameter(torch.zeros(config.vocabulary))
        initialise(self, config.hidden)
        with torch.no_grad():
            for part in (self.encoder, self.decoder):
                part.position.weight.copy_(pegasus_positions(config.positions, config.hidden))

    @property
    def positions(self) -> int:
        """The longest summary, in tokens."""
        return self.config.positions

    def encode(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Documents' ids (B, L), padded on the right, of these lengths (B,) → (B, L, D)."""
        return self.encoder(self.token(ids) * self.token_scale, lengths)  # type: ignore[no-any-return]

    def begin(self, hidden: Tensor, lengths: Tensor | None = None) -> Cache:
        """Get ready to decode, from what `encode` gave (B, L, D)."""
        memory = [layer.cross.keys_values(hidden) for layer in self.decoder.parts()]
        return Cache(memory, presence(lengths, hidden))

    def decode(self, ids: Tensor, cache: Cache) -> Tensor:
        """Logits (R, T, V) of what follows each of the tokens ids (R, T), which follow those in `cache`."""
        x = self.decoder(self.token(ids) * self.token_scale, cache)
        return F.linear(x, self.token.weight, self.logits_bias)

    def forward(self, ids: Tensor, lengths: Tensor | None, targets: Tensor) -> Tensor:
        """Logits (B, T, V) of what follows each token of the summaries' `targets` (B, T); for training."""
        return self.decode(targets, self.begin(self.encode(ids, lengths), lengths))


def pegasus_positions(positions: int, hidden: int) -> Tensor:
    """Sinusoids (P, D) in Pegasus' layout: all sines first, then all cosines (Zhang et al. 2020)."""
    half = -(-hidden // 2)
    rates = 10_000.0 ** (-2 * torch.arange(half, dtype=torch.float64) / hidden)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()[:, : hidden - half]], dim=1).float()
