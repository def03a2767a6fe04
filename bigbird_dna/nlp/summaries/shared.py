"""The base form: the decoder's weights are the encoder's, but for its attention to the document.

After Rothe et al. 2020 (arXiv 1907.12461, "share"), as the paper's App. E.5 has it for the base size. Shapes
as in `decoding`, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import EncoderConfig
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.encoder import Encoder, Layer
from bigbird_dna.model.input_embeddings import initialise
from bigbird_dna.model.kernels import Dropout
from bigbird_dna.model.rotary import Rotation, rotate, rotation
from bigbird_dna.nlp.summaries.decoding import Attention, Cache, presence, split


class CrossAttention(nn.Module):
    """Attention to the document with what stands around it: dropout, residual, LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.attention = Attention(config.hidden, config.heads, config.attention_dropout)
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, cache: Cache, layer: int) -> Tensor:
        """Summaries' states (R, T, D) → (R, T, D)."""
        context = self.attention.to_document(x, cache.memory[layer], cache.present)
        return self.norm(self.dropout(context, x))  # type: ignore[no-any-return]


class SharedSummariser(nn.Module):
    """Encoder of documents and decoder of summaries in one.

    A layer of the decoder is the encoder's of the same number, with full causal attention in place of the
    sparse one, and attention to the document between attention and feed-forward. The embeddings are the
    encoder's, and their transpose gives the logits.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        if config.reversible or config.convolution:
            key = "reversible" if config.reversible else "convolution"
            raise ConfigError(f"encoder.{key}: a decoder that shares the encoder's weights can't have it")
        self.config = config
        self.encoder = Encoder(config)
        self.cross = nn.ModuleList([CrossAttention(config) for _ in range(config.layers)])
        self.logits_bias = nn.Parameter(torch.zeros(config.vocabulary))
        initialise(self.cross, config.hidden)

    @property
    def positions(self) -> int:
        """The longest summary, in tokens."""
        return self.config.positions

    def encode(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Documents' ids (B, L), padded on the right, of these lengths (B,) → (B, L, D)."""
        return self.encoder(ids, lengths)  # type: ignore[no-any-return]

    def begin(self, hidden: Tensor, lengths: Tensor | None = None) -> Cache:
        """Get ready to decode, from what `encode` gave (B, L, D)."""
        memory = [part.attention.keys_values(hidden) for part in self.crosses()]
        return Cache(memory, presence(lengths, hidden))

    def decode(self, ids: Tensor, cache: Cache) -> Tensor:
        """Logits (R, T, V) of what follows each of the tokens ids (R, T), which follow those in `cache`."""
        x = self._embed(ids, cache.tokens)
        turns = self._turns(cache.tokens, ids.shape[1], x.device)
        for layer, cross in zip(self.encoder.layers, self.crosses(), strict=True):
            assert isinstance(layer, Layer)
            context = _to_past(layer, x, cache, turns)
            x = layer.attention_norm(layer.dropout(layer.attention_output(context), x))
            x = cross(x, cache, layer.index)
            x = layer.output_norm(layer.dropout(layer.inner(x), x))
        cache.tokens += ids.shape[1]
        return F.linear(x, self.encoder.embeddings.token.weight, self.logits_bias)

    def forward(self, ids: Tensor, lengths: Tensor | None, targets: Tensor) -> Tensor:
        """Logits (B, T, V) of what follows each token of the summaries' `targets` (B, T); for training."""
        return self.decode(targets, self.begin(self.encode(ids, lengths), lengths))

    def crosses(self) -> list[CrossAttention]:
        """The layers' attention to the document, the first one's first."""
        return list(self.cross)  # type: ignore[arg-type]

    def _embed(self, ids: Tensor, before: int) -> Tensor:
        own = self.encoder.embeddings
        x = own.token(ids) * own.token_scale
        if own.position is not None:
            x = x + own.position.weight[before : before + ids.shape[1]]
        return own.norm(own.dropout(x + own.segment.weight[0]))  # type: ignore[no-any-return]

    def _turns(self, before: int, tokens: int, device: torch.device) -> Rotation | None:
        config = self.config
        if config.position != "rotary":
            return None
        width = config.hidden // config.heads
        turns = rotation(before + tokens, width, config.rotary_base, config.rotary_scale, device)
        return Rotation(turns.cos[before:], turns.sin[before:])


def _to_past(layer: Layer, x: Tensor, cache: Cache, turns: Rotation | None) -> Tensor:
    """Full causal attention by the projections of an encoder's layer, (R, T, D) → (R, T, D)."""
    parts = (layer.query, layer.key or layer.query, layer.value)
    q, k, v = (split(part(x), layer.heads) for part in parts)
    if turns is not None:
        q, k = rotate(q, turns), rotate(k, turns)
    return cache.attend(layer.index, q, k, v, layer.attention_dropout if layer.training else 0.0)
