"""Summarization networks.

Base form: the decoder uses the encoder's weights, except for its attention to the document. After Rothe et al.
2020 (arXiv 1907.12461), as in the paper's App. E.5 for the base size.

Pegasus form, of the paper's large size: LayerNorm before each sublayer and after the last layer, and a
decoder with separate weights. The computation is that of HuggingFace's BigBirdPegasus.

Shapes: B documents, R rows of summaries (those of a document are adjacent), L tokens of a document, T new
tokens of a summary, V vocabulary, D hidden width, H heads, K head width.
"""

import math
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.encoder import Encoder, Layer
from bigbird_dna.model.input_embeddings import Rotation, initialize, rotate, table_rows
from bigbird_dna.model.kernels import Dropout
from bigbird_dna.model.settings import OtherSettings, Task, register_settings
from bigbird_dna.papers.nlp.config import SummaryForm

KeysValues = tuple[Tensor, Tensor]


class Memory(NamedTuple):
    """Keys and values of the documents in each decoder layer."""

    layers: list[KeysValues]  # (B, H, L, K) each
    mask: Tensor | None  # (B, 1, 1, L), false for padding; None without padding


class CrossAttention(nn.Module):
    """Full attention to the document, dropout and residual connection, with LayerNorm after or before them."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden = config.hidden
        self.heads, self.attention_dropout = config.heads, config.attention_dropout
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)
        self.pre_norm = config.norm == "pre"
        self.norm = nn.LayerNorm(hidden, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        """Attend from rows x (R, T, D) to their documents.

        The beams of a document use the same keys and values: they are handled as additional queries.
        """
        documents = len(memory[0])
        beams = len(x) // documents
        states = self.norm(x) if self.pre_norm else x
        q = split_heads(self.query(states), self.heads)  # (R, H, T, K)
        q = q.view(documents, beams, *q.shape[1:]).transpose(1, 2).flatten(2, 3)
        dropout = self.attention_dropout if self.training else 0.0
        out = F.scaled_dot_product_attention(
            q, *memory, attn_mask=mask, dropout_p=dropout
        )
        out = out.view(documents, self.heads, beams, x.shape[1], -1)
        context = self.output(out.permute(0, 2, 3, 1, 4).reshape(x.shape))
        x = self.dropout(context, x)
        return x if self.pre_norm else self.norm(x)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, L, D) → (B, H, L, K)."""
    return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)


def causal_attention(
    layer: Layer, x: Tensor, cache: Any, index: int, rotation: Rotation | None = None
) -> Tensor:
    """Full attention of a layer to all preceding tokens, (R, T, D) → (R, T, D); `cache` as in `decode`."""
    q = split_heads(layer.query(x), layer.heads)
    k = split_heads((layer.key or layer.query)(x), layer.heads)
    v = split_heads(layer.value(x), layer.heads)
    if rotation is not None:
        q, k = rotate(q, rotation), rotate(k, rotation)
    if cache is not None:
        k, v = cache.update(k, v, index)
    dropout = layer.attention_dropout if layer.training else 0.0
    context = F.scaled_dot_product_attention(
        q, k, v, dropout_p=dropout, is_causal=cache is None
    )
    return layer.attention_output(context.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Summarizer(nn.Module):
    """Encoder of documents and decoder of summaries with common weights.

    A layer of the decoder is the encoder layer of the same number, with full causal attention instead of
    sparse attention, and cross-attention between attention and feed-forward network. The embeddings are those
    of the encoder, and their transpose gives the logits.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        for key in ("reversible", "kmers"):
            if getattr(config, key):
                raise ConfigError(
                    f"encoder.{key}: not supported by a decoder with the encoder's weights"
                )
        config.check_no_bases()
        self.config = config
        self.encoder: Any = Encoder(config)
        self.cross = nn.ModuleList(CrossAttention(config) for _ in range(config.layers))
        self.logits_bias = nn.Parameter(torch.zeros(config.vocabulary))
        initialize(self.cross, config.hidden)

    def memory(self, hidden: Tensor, lengths: Tensor | None = None) -> Memory:
        """Return what the decoder uses of documents, from the output of the encoder (B, L, D)."""
        tokens, mask, layers = hidden.shape[1], None, []
        if lengths is not None and not bool((lengths == tokens).all()):
            positions = torch.arange(tokens, device=hidden.device)
            mask = (positions < lengths.to(hidden.device)[:, None])[:, None, None]
        for cross in self.cross:
            key, value = cross.key(hidden), cross.value(hidden)  # type: ignore[operator]
            heads = self.config.heads
            layers.append((split_heads(key, heads), split_heads(value, heads)))
        return Memory(layers, mask)

    def forward(self, ids: Tensor, lengths: Tensor | None, summaries: Tensor) -> Tensor:
        """Return logits (B, T, V) of the token after each token of the summaries (B, T) in training."""
        return self.decode(summaries, self.memory(self.encoder(ids, lengths), lengths))

    def decode(self, ids: Tensor, memory: Memory, cache: Any = None) -> Tensor:
        """Return logits (R, T, V) of the token after each of ids (R, T).

        `cache` is a `transformers.Cache` with the keys and values of earlier tokens, which is updated; the new
        tokens are then a single one. None: there are no earlier tokens.
        """
        first = 0 if cache is None else cache.get_seq_length()
        embeddings, end = self.encoder.embeddings, first + ids.shape[1]
        x = embeddings.token(ids) * embeddings.token_scale
        if embeddings.position is not None:
            x = x + table_rows(embeddings.position, first, end, x.device)
        segment = table_rows(embeddings.segment, 0, 1, x.device)
        x = embeddings.norm(embeddings.dropout(x + segment))
        rotation = self.encoder.turns(end, x.device)
        if rotation is not None:
            rotation = Rotation(*(table[first:] for table in rotation))
        for index, (layer, cross) in enumerate(
            zip(self.encoder.layers, self.cross, strict=True)
        ):
            assert isinstance(layer, Layer)
            context = causal_attention(layer, x, cache, index, rotation)
            x = layer.attention_norm(layer.dropout(context, x))
            x = cross(x, memory.layers[index], memory.mask)
            x = layer.output_norm(layer.dropout(layer.inner(x), x))
        return F.linear(x, embeddings.token.weight, self.logits_bias)


class PegasusStack(nn.Module):
    """Positions, layers with LayerNorm before each sublayer, and the last LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.position = nn.Embedding(config.max_length, config.hidden)
        self.layers = nn.ModuleList(
            Layer(config, index) for index in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)
        initialize(self, config.hidden)
        with torch.no_grad():
            sinusoids = pegasus_positions(config.max_length, config.hidden)
            self.position.weight.copy_(sinusoids)

    def add_positions(self, x: Tensor, first: int) -> Tensor:
        """Add the positions from `first` on to embedded tokens (B, L, D)."""
        positions = table_rows(self.position, first, first + x.shape[1], x.device)
        return self.dropout(x + positions)  # type: ignore[no-any-return]


class PegasusEncoder(PegasusStack):
    """The encoder of documents, with the embeddings that the decoder uses, too."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.token = nn.Embedding(config.vocabulary, config.hidden)
        self.token_scale = (
            math.sqrt(config.hidden) if config.rescale_embeddings else 1.0
        )
        initialize(self.token, config.hidden)

    def forward(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Encode documents (B, L), padded on the right, with lengths (B,) → (B, L, D)."""
        lengths = None if lengths is None else lengths.cpu()
        x = self.add_positions(self.token(ids) * self.token_scale, 0)
        for layer in self.layers:
            x = layer(x, lengths)
        return self.norm(x)  # type: ignore[no-any-return]


class PegasusSummarizer(Summarizer):
    """Encoder and decoder of the same shape, with separate weights except for the embeddings, whose transpose
    gives the logits. Positions are initialized to sinusoids, and are learned like other weights.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        for key in ("num_global_tokens", "relative_max_distance"):
            if getattr(config, key):
                raise ConfigError(f"encoder.{key}: not supported by the form pegasus")
        if config.position_encoding != "learned":
            raise ConfigError(
                f"encoder.position_encoding {config.position_encoding}: the form pegasus needs learned"
            )
        # Not validated: `compatibility` refers to the attention, for which this norm makes no difference.
        pre = config.model_copy(update={"norm": "pre"})
        full = {"attention": "full", "compatibility": "none"}
        self.encoder = PegasusEncoder(pre)
        self.decoder = PegasusStack(pre.model_copy(update=full))
        self.cross = nn.ModuleList(CrossAttention(pre) for _ in range(config.layers))
        initialize(self.cross, config.hidden)

    def decode(self, ids: Tensor, memory: Memory, cache: Any = None) -> Tensor:
        first = 0 if cache is None else cache.get_seq_length()
        token = self.encoder.token
        x = self.decoder.add_positions(token(ids) * self.encoder.token_scale, first)
        for index, (layer, cross) in enumerate(
            zip(self.decoder.layers, self.cross, strict=True)
        ):
            assert isinstance(layer, Layer)
            context = causal_attention(layer, layer.attention_norm(x), cache, index)
            x = layer.dropout(context, x)
            x = cross(x, memory.layers[index], memory.mask)
            x = layer.dropout(layer.inner(layer.output_norm(x)), x)
        return F.linear(self.decoder.norm(x), token.weight, self.logits_bias)


def pegasus_positions(positions: int, hidden: int) -> Tensor:
    """Return sinusoids (P, D) in Pegasus' layout: all sines first, then all cosines (Zhang et al. 2020)."""
    half = -(-hidden // 2)
    rates = 10_000.0 ** (-2 * torch.arange(half, dtype=torch.float64) / hidden)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()[:, : hidden - half]], dim=1).float()


class SummariesSettings(OtherSettings):
    """A summarization model; summaries begin with [CLS] and end with [SEP]."""

    task: ClassVar[Task] = "summaries"
    form: SummaryForm = "base"

    def build(self, config: EncoderConfig) -> Summarizer:
        return (PegasusSummarizer if self.form == "pegasus" else Summarizer)(config)


register_settings(SummariesSettings)

MATCHING = 2.0
"""Factor of queries for cross-attention initialized to match tokens. Chosen on the generated task: with 1,
learning takes twice the steps."""


def match_tokens(network: Summarizer) -> None:
    """Initialize new cross-attention to attend to document tokens equal to the summary's last token.

    Queries and keys are one random rotation of the states, so a head's scores increase with the similarity of
    part of them. Values and output are this rotation and its inverse, so attended states are unchanged.
    Encoder and decoder have the same embeddings: equal tokens have similar states. Information on a token's
    neighbors is available from the first step, and copying a passage only requires reading it.
    """
    for cross in network.cross:
        assert isinstance(cross, CrossAttention)
        with torch.no_grad():
            rotation = nn.init.orthogonal_(torch.empty_like(cross.query.weight))
            cross.query.weight.copy_(MATCHING * rotation)
            cross.key.weight.copy_(rotation)
            cross.value.weight.copy_(rotation)
            cross.output.weight.copy_(rotation.T)
