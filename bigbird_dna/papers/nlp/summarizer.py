"""Summarization networks, their settings, and the import of checkpoints of BigBird-Pegasus.

Base form: the decoder uses the encoder's weights, except for its cross-attention. After Rothe et al. 2020
(arXiv 1907.12461), as in the paper's App. E.5 for the base size.

Pegasus form: LayerNorm before each sublayer and after the last layer, and a separate decoder. The computation
is that of HuggingFace's BigBirdPegasus, so its checkpoints can be imported by renaming tensors.

Shapes: B documents, R rows of summaries (those of a document are adjacent), L tokens of a document, T new
tokens of a summary, V vocabulary, D hidden width, H heads, K head width.
"""

import math
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import ConfigError, ModelError, first_fault
from bigbird_dna.huggingface.configuration import Compatibility, encoder_config
from bigbird_dna.huggingface.tokenizer_files import special_names
from bigbird_dna.model.directory import make_model
from bigbird_dna.model.encoder import Encoder, Layer
from bigbird_dna.model.input_embeddings import Rotation, initialize, rotate, table_rows
from bigbird_dna.model.kernels import ACTIVATIONS, Dropout
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import OtherSettings, Task, register_settings
from bigbird_dna.model.weights import shapes_only
from bigbird_dna.papers.nlp.config import (
    DecoderShape,
    SpecialIds,
    SummaryForm,
)
from bigbird_dna.papers.nlp.initialization import load_checkpoint, open_tokenizer
from bigbird_dna.tokens.interface import Tokenizer

KeysValues = tuple[Tensor, Tensor]


class Memory(NamedTuple):
    """Keys and values of the documents in each decoder layer."""

    layers: list[KeysValues]  # (B, H, L, K) each
    mask: Tensor | None  # (B, 1, 1, L), false for padding; None without padding


class DecoderAttention(nn.Module):
    """Projections of full attention: of a decoder layer to the document, or to its preceding tokens."""

    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.attention_dropout = heads, dropout
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)

    def keys_values(self, states: Tensor) -> KeysValues:
        """Return keys and values of states, (B, L, D) → (B, H, L, K) each."""
        return (
            split_heads(self.key(states), self.heads),
            split_heads(self.value(states), self.heads),
        )

    def to_document(self, x: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        """Attend from rows x (R, T, D) to their documents.

        The beams of a document use the same keys and values: they are handled as additional queries.
        """
        documents = len(memory[0])
        beams = len(x) // documents
        q = split_heads(self.query(x), self.heads)  # (R, H, T, K)
        q = q.view(documents, beams, *q.shape[1:]).transpose(1, 2).flatten(2, 3)
        dropout = self.attention_dropout if self.training else 0.0
        out = F.scaled_dot_product_attention(
            q, *memory, attn_mask=mask, dropout_p=dropout
        )
        out = out.view(documents, self.heads, beams, x.shape[1], -1)
        return self.output(out.permute(0, 2, 3, 1, 4).reshape(x.shape))  # type: ignore[no-any-return]


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, L, D) → (B, H, L, K)."""
    return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)


def causal_attention(
    layer: Layer | DecoderAttention,
    x: Tensor,
    index: int,
    cache: Any,
    rotation: Rotation | None = None,
) -> Tensor:
    """Full causal attention of a layer to all preceding tokens, (R, T, D) → (R, T, D).

    `cache` is a `transformers.Cache` with the keys and values of earlier tokens, which is updated; the new
    tokens are then a single one. None: there are no earlier tokens.
    """
    q = split_heads(layer.query(x), layer.heads)
    k = split_heads((layer.key or layer.query)(x), layer.heads)
    v = split_heads(layer.value(x), layer.heads)
    if rotation is not None:
        q, k = rotate(q, rotation), rotate(k, rotation)
    if cache is not None:
        k, v = cache.update(k, v, index)
    dropout = layer.attention_dropout if layer.training else 0.0
    out = F.scaled_dot_product_attention(
        q, k, v, dropout_p=dropout, is_causal=cache is None
    )
    return out.transpose(1, 2).flatten(2)


class Summarizer(nn.Module):
    """An encoder of documents, and a decoder with logits of the next token."""

    config: EncoderConfig

    def encode(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Encode documents (B, L), padded on the right, with lengths (B,) → (B, L, D)."""
        raise NotImplementedError

    def cross_attention(self) -> list[DecoderAttention]:
        """Return the decoder layers' attention to the document, from the first layer on."""
        raise NotImplementedError

    def decode(self, ids: Tensor, memory: Memory, cache: Any = None) -> Tensor:
        """Return logits (R, T, V) of the token after each of ids (R, T); `cache` as in `causal_attention`."""
        raise NotImplementedError

    def memory(self, hidden: Tensor, lengths: Tensor | None = None) -> Memory:
        """Return what the decoder uses of documents, from the output of `encode` (B, L, D)."""
        tokens, mask = hidden.shape[1], None
        if lengths is not None and not bool((lengths == tokens).all()):
            positions = torch.arange(tokens, device=hidden.device)
            mask = (positions < lengths.to(hidden.device)[:, None])[:, None, None]
        return Memory(
            [cross.keys_values(hidden) for cross in self.cross_attention()], mask
        )

    def forward(self, ids: Tensor, lengths: Tensor | None, summaries: Tensor) -> Tensor:
        """Return logits (B, T, V) of the token after each token of the summaries (B, T) in training."""
        return self.decode(summaries, self.memory(self.encode(ids, lengths), lengths))


class CrossAttention(nn.Module):
    """Attention to the document, followed by dropout, residual connection and LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.attention = DecoderAttention(
            config.hidden, config.heads, config.attention_dropout
        )
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        context = self.attention.to_document(x, memory, mask)
        return self.norm(self.dropout(context, x))  # type: ignore[no-any-return]


class SharedSummarizer(Summarizer):
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
        self.encoder = Encoder(config)
        self.cross = nn.ModuleList(
            [CrossAttention(config) for _ in range(config.layers)]
        )
        self.logits_bias = nn.Parameter(torch.zeros(config.vocabulary))
        initialize(self.cross, config.hidden)

    def encode(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.encoder(ids, lengths)  # type: ignore[no-any-return]

    def cross_attention(self) -> list[DecoderAttention]:
        return [cross.attention for cross in self.cross]  # type: ignore[misc]

    def decode(self, ids: Tensor, memory: Memory, cache: Any = None) -> Tensor:
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
            context = causal_attention(layer, x, index, cache, rotation)
            x = layer.attention_norm(layer.dropout(layer.attention_output(context), x))
            x = cross(x, memory.layers[index], memory.mask)
            x = layer.output_norm(layer.dropout(layer.inner(x), x))
        return F.linear(x, embeddings.token.weight, self.logits_bias)


class PegasusStack(nn.Module):
    """The positions, layers and last LayerNorm of the encoder or the decoder."""

    def __init__(self, config: EncoderConfig, layers: list[nn.Module]) -> None:
        super().__init__()
        self.position = nn.Embedding(config.max_length, config.hidden)
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def embed(self, x: Tensor, first: int) -> Tensor:
        """Add the positions from `first` on to embedded tokens (B, L, D)."""
        end = first + x.shape[1]
        return self.dropout(x + table_rows(self.position, first, end, x.device))  # type: ignore[no-any-return]


class PegasusDecoderLayer(nn.Module):
    """Attention to the summary so far, attention to the document, feed-forward network."""

    def __init__(self, config: EncoderConfig, shape: DecoderShape) -> None:
        super().__init__()
        hidden, epsilon = config.hidden, config.layer_norm_epsilon
        self.activation = config.activation
        self.attention = DecoderAttention(hidden, shape.heads, config.attention_dropout)
        self.attention_norm = nn.LayerNorm(hidden, eps=epsilon)
        self.cross = DecoderAttention(hidden, shape.heads, config.attention_dropout)
        self.cross_norm = nn.LayerNorm(hidden, eps=epsilon)
        self.intermediate = nn.Linear(hidden, shape.intermediate)
        self.output = nn.Linear(shape.intermediate, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, index: int, memory: Memory, cache: Any) -> Tensor:
        past = causal_attention(self.attention, self.attention_norm(x), index, cache)
        x = self.dropout(self.attention.output(past), x)
        context = self.cross.to_document(
            self.cross_norm(x), memory.layers[index], memory.mask
        )
        x = self.dropout(context, x)
        inner = ACTIVATIONS[self.activation](self.intermediate(self.output_norm(x)))
        return self.dropout(self.output(inner), x)  # type: ignore[no-any-return]


class PegasusSummarizer(Summarizer):
    """Encoder and decoder with common embeddings, whose transpose gives the logits.

    Positions are initialized to Pegasus' sinusoids, and are learned like other weights.
    """

    def __init__(self, config: EncoderConfig, shape: DecoderShape) -> None:
        super().__init__()
        for key in (
            "reversible",
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
        self.encoder = PegasusStack(
            config, [Layer(config, index) for index in range(config.layers)]
        )
        self.decoder = PegasusStack(
            config, [PegasusDecoderLayer(config, shape) for _ in range(shape.layers)]
        )
        self.logits_bias = nn.Parameter(torch.zeros(config.vocabulary))
        initialize(self, config.hidden)
        sinusoids = pegasus_positions(config.max_length, config.hidden)
        with torch.no_grad():
            self.encoder.position.weight.copy_(sinusoids)
            self.decoder.position.weight.copy_(sinusoids)

    def encode(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        lengths = None if lengths is None else lengths.cpu()
        x = self.encoder.embed(self.token(ids) * self.token_scale, 0)
        for layer in self.encoder.layers:
            x = layer(x, lengths)
        return self.encoder.norm(x)  # type: ignore[no-any-return]

    def cross_attention(self) -> list[DecoderAttention]:
        return [layer.cross for layer in self.decoder.layers]  # type: ignore[misc]

    def decode(self, ids: Tensor, memory: Memory, cache: Any = None) -> Tensor:
        first = 0 if cache is None else cache.get_seq_length()
        x = self.decoder.embed(self.token(ids) * self.token_scale, first)
        for index, layer in enumerate(self.decoder.layers):
            x = layer(x, index, memory, cache)
        return F.linear(self.decoder.norm(x), self.token.weight, self.logits_bias)


def pegasus_positions(positions: int, hidden: int) -> Tensor:
    """Return sinusoids (P, D) in Pegasus' layout: all sines first, then all cosines (Zhang et al. 2020)."""
    half = -(-hidden // 2)
    rates = 10_000.0 ** (-2 * torch.arange(half, dtype=torch.float64) / hidden)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()[:, : hidden - half]], dim=1).float()


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
    for cross in network.cross_attention():
        with torch.no_grad():
            rotation = nn.init.orthogonal_(torch.empty_like(cross.query.weight))
            cross.query.weight.copy_(MATCHING * rotation)
            cross.key.weight.copy_(rotation)
            cross.value.weight.copy_(rotation)
            cross.output.weight.copy_(rotation.T)


MODEL_TYPE = "bigbird_pegasus"
LAYER_NORM_EPSILON = 1e-5  # not in config.json: default of the library
PEGASUS_OFFSET = 103
"""Default offset between the model's ids and those of its SentencePiece file."""

# Keys of BigBirdPegasus, and those of BigBird with the same meaning.
_KEYS = {
    "vocab_size": "vocab_size",
    "encoder_layers": "num_hidden_layers",
    "d_model": "hidden_size",
    "encoder_attention_heads": "num_attention_heads",
    "encoder_ffn_dim": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "activation_function": "hidden_act",
    "scale_embedding": "rescale_embeddings",
    "attention_type": "attention_type",
    "block_size": "block_size",
    "num_random_blocks": "num_random_blocks",
}
# Replaced in this order, names of a checkpoint's tensors become those of `PegasusSummarizer`.
_RENAMED = (
    ("model.shared", "token"),
    ("model.", ""),
    ("final_logits_bias", "logits_bias"),
    ("embed_positions", "position"),
    ("layernorm_embedding", "norm"),
    ("self_attn_layer_norm", "attention_norm"),
    ("encoder_attn_layer_norm", "cross_norm"),
    ("final_layer_norm", "output_norm"),
    ("self_attn.self.", ""),
    ("self_attn.output", "attention_output"),
    ("self_attn.", "attention."),
    ("encoder_attn.", "cross."),
    ("q_proj", "query"),
    ("k_proj", "key"),
    ("v_proj", "value"),
    ("out_proj", "output"),
    ("fc1", "intermediate"),
    ("fc2", "output"),
)
_TIED = ("lm_head.", "model.encoder.embed_tokens.", "model.decoder.embed_tokens.")


def is_pegasus(directory: Path) -> bool:
    """Return whether a directory is a BigBirdPegasus checkpoint; `ModelError` if it has no `config.json`."""
    return read_mapping(directory / "config.json").get("model_type") == MODEL_TYPE


def open_pegasus(
    directory: Path,
    compatibility: Compatibility = "huggingface",
    tokenizer: str | None = None,
) -> LoadedModel:
    """Open a checkpoint as a model; `tokenizer` is a file to use instead of its own.

    With the compatibility `huggingface`, block-sparse attention is computed as in HuggingFace's evaluation
    mode, with equal logits; with `none`, it has the paper's pattern with random blocks. `ModelError` if the
    checkpoint is incomplete, or if its configuration does not fit its weights or is not supported.
    """
    from transformers import BigBirdPegasusForConditionalGeneration

    loaded = load_checkpoint(BigBirdPegasusForConditionalGeneration, directory)
    if loaded.lm_head.weight is not loaded.model.shared.weight:
        raise ModelError(f"{directory}: weights of the logits are not the embeddings'")
    theirs = loaded.config
    values = {bigbird: getattr(theirs, key) for key, bigbird in _KEYS.items()}
    values |= {
        "model_type": "big_bird",
        "type_vocab_size": 1,
        "layer_norm_eps": LAYER_NORM_EPSILON,
    }
    config = encoder_config(values, compatibility, str(directory / "config.json"))
    shape = DecoderShape(
        layers=theirs.decoder_layers,
        heads=theirs.decoder_attention_heads,
        intermediate=theirs.decoder_ffn_dim,
    )
    special = _special_ids(loaded.generation_config, config.vocabulary, directory)
    with shapes_only():
        network = PegasusSummarizer(config, shape)
    # Biases of attention that a checkpoint lacks are zero.
    weights = {
        name: torch.zeros(tensor.shape) for name, tensor in network.state_dict().items()
    }
    for name, tensor in loaded.state_dict().items():
        if not name.startswith(_TIED):
            for old, new in _RENAMED:
                name = name.replace(old, new)
            weights[name] = tensor.reshape(weights[name].shape)
    network.load_state_dict(weights, assign=True)
    network.requires_grad_().eval()
    settings = SummariesSettings(decoder=shape, special=special)
    text_tokenizer = _open_tokenizer(directory, config.vocabulary, tokenizer)
    return make_model(network, text_tokenizer, config, settings)


def _special_ids(generation: Any, vocabulary: int, directory: Path) -> SpecialIds:
    """Return the ids of a `GenerationConfig`; `ModelError` if one is not in the vocabulary."""
    ids = {
        "start": generation.decoder_start_token_id,
        "end": generation.eos_token_id,
        "pad": generation.pad_token_id,
        "forced_first": generation.forced_bos_token_id,
        "forced_last": generation.forced_eos_token_id,
    }
    try:
        special = SpecialIds(**ids)
    except ValidationError as error:
        raise ModelError(f"{directory}: {first_fault(error).reason}") from None
    for name, value in ids.items():
        if value is not None and value >= vocabulary:
            raise ModelError(
                f"{directory}: {name} token {value}: the vocabulary has {vocabulary} ids"
            )
    return special


def _open_tokenizer(directory: Path, vocabulary: int, file: str | None) -> Tokenizer:
    """Open the tokenizer of a checkpoint: `file`, `tokenizer.json`, or a SentencePiece model without offset.

    Pegasus has no [CLS], [SEP] and [MASK]: if the files name none, its end and unknown tokens are used.
    """
    path = directory / "tokenizer_config.json"
    settings = read_mapping(path) if path.is_file() else {}
    end = settings.get("eos_token", "</s>")
    end = end["content"] if isinstance(end, dict) else end
    names = {"pad": "<pad>", "unk": "<unk>", "cls": end, "sep": end}
    names |= special_names(directory)
    names.setdefault("mask", names["unk"])
    path = Path(file) if file else directory / "tokenizer.json"
    if file is None and not path.is_file():
        path = directory / "spiece.model"
        if not path.is_file():
            raise ModelError(
                f"{directory}: no tokenizer: tokenizer.json and spiece.model are missing"
            )
        offset = settings.get("offset", PEGASUS_OFFSET)
        if offset != 0:
            raise ModelError(
                f"{path}: ids of Pegasus have the offset {offset}; a tokenizer.json is needed"
            )
    return open_tokenizer(path, vocabulary, names)
