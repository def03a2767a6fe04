"""Summarization networks, as encoder-decoder models of transformers: `Summarizer` and BigBird-Pegasus.

Shapes: B documents, L tokens of a document, T tokens of a summary, V vocabulary, D hidden width, H heads,
K head width.
"""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    BigBirdPegasusForConditionalGeneration,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.models.bigbird_pegasus.modeling_bigbird_pegasus import (
    BigBirdPegasusEncoder,
)
from transformers.utils import logging

from bigbird_dna.attention import Pattern, bigbird_attention
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import ConfigError, ModelError, error_text
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.input_embeddings import Rotation, initialize, rotate, table_rows
from bigbird_dna.model.kernels import Dropout
from bigbird_dna.model.settings import OtherSettings, Task, register_settings

IGNORED = -100
MATCHING = 2.0
"""Factor of queries for cross-attention initialized to match tokens. Chosen on the generated task: with 1,
learning takes twice the steps."""


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, L, D) → (B, H, L, K)."""
    return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)


class CrossAttention(nn.Module):
    """Projections of full attention to the document, dropout, residual connection and LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.query = nn.Linear(config.hidden, config.hidden)
        self.key = nn.Linear(config.hidden, config.hidden)
        self.value = nn.Linear(config.hidden, config.hidden)
        self.output = nn.Linear(config.hidden, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)


class DocumentEncoder(nn.Module):
    """An encoder with the interface of transformers."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, **_: Any
    ) -> BaseModelOutput:
        hidden = self.encoder(input_ids, attention_mask.sum(1))
        return BaseModelOutput(last_hidden_state=hidden)


class Summarizer(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """Encoder of documents and decoder of summaries with common weights.

    After Rothe et al. 2020 (arXiv 1907.12461), as in the paper's App. E.5 for the base size. A layer of the
    decoder is the encoder layer of the same number, with full causal attention instead of sparse attention,
    and cross-attention between attention and feed-forward network. The embeddings are those of the encoder,
    and their transpose gives the logits.
    """

    accepts_loss_kwargs = True

    def __init__(self, config: EncoderConfig) -> None:
        if config.kmers:
            raise ConfigError(
                f"encoder.kmers {config.kmers}: not supported by a decoder"
            )
        if config.norm == "pre":
            raise ConfigError("encoder.norm pre: not supported by a decoder")
        super().__init__(
            PreTrainedConfig(
                is_encoder_decoder=True,
                decoder_start_token_id=None,
                vocab_size=config.vocabulary,
                num_hidden_layers=config.layers,
            )
        )
        self.heads = config.heads
        self.attention_dropout = config.attention_dropout
        encoder: Any = Encoder(config)
        encoder.main_input_name = "input_ids"  # which `generate` looks up
        self.encoder = encoder
        self.cross = nn.ModuleList(CrossAttention(config) for _ in range(config.layers))
        self.logits_bias = nn.Parameter(torch.zeros(config.vocabulary))
        initialize(self.cross, config.hidden)

    def get_encoder(self, *_: Any, **__: Any) -> nn.Module:
        return DocumentEncoder(self.encoder)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        labels: Tensor | None = None,
        encoder_outputs: Any = None,
        past_key_values: Any = None,
        num_items_in_batch: Tensor | int | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput:
        """Return logits (B, T, V) of the token after each of `decoder_input_ids` (B, T), and the loss.

        `input_ids` (B, L) are documents, or `encoder_outputs` their hidden states. With `past_key_values`,
        the decoder's inputs are a single new token, and its keys and values are added.
        """
        assert attention_mask is not None and decoder_input_ids is not None
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(input_ids, attention_mask)
        logits = self.decode(
            decoder_input_ids, encoder_outputs[0], attention_mask, past_key_values
        )
        loss = None
        if labels is not None:
            loss = F.cross_entropy(
                logits.float().flatten(0, 1),
                labels.flatten(),
                ignore_index=IGNORED,
                reduction="sum",
            )
            loss = loss / (num_items_in_batch or (labels != IGNORED).sum())
        return Seq2SeqLMOutput(
            loss=loss, logits=logits, past_key_values=past_key_values
        )

    def decode(self, ids: Tensor, hidden: Tensor, mask: Tensor, past: Any) -> Tensor:
        """Return the logits of ids (B, T); arguments as in `forward`, `hidden` (B, L, D) of documents."""
        first = 0 if past is None else past.get_seq_length()
        embeddings, end = self.encoder.embeddings, first + ids.shape[1]
        x = embeddings.token(ids) * embeddings.token_scale
        if embeddings.position is not None:
            x = x + table_rows(embeddings.position, first, end, x.device)
        segment = table_rows(embeddings.segment, 0, 1, x.device)
        x = embeddings.norm(embeddings.dropout(x + segment))
        rotation = self.encoder.turns(end, x.device)
        if rotation is not None:
            rotation = Rotation(*(table[first:] for table in rotation))
        dropout = self.attention_dropout if self.training else 0.0
        visible = None if bool(mask.all()) else mask[:, None, None].bool()
        for index, layer in enumerate(self.encoder.layers):
            q = split_heads(layer.query(x), self.heads)
            k = split_heads((layer.key or layer.query)(x), self.heads)
            v = split_heads(layer.value(x), self.heads)
            if rotation is not None:
                q, k = rotate(q, rotation), rotate(k, rotation)
            if past is not None:
                k, v = past.self_attention_cache.update(k, v, index)
            context = F.scaled_dot_product_attention(
                q, k, v, dropout_p=dropout, is_causal=first == 0
            )
            context = layer.attention_output(context.transpose(1, 2).flatten(2))
            x = layer.attention_norm(layer.dropout(context, x))

            cross: Any = self.cross[index]
            q = split_heads(cross.query(x), self.heads)
            if past is not None and past.is_updated.get(index):
                cached = past.cross_attention_cache.layers[index]
                k, v = cached.keys, cached.values
            else:
                k = split_heads(cross.key(hidden), self.heads)
                v = split_heads(cross.value(hidden), self.heads)
                if past is not None:
                    k, v = past.cross_attention_cache.update(k, v, index)
                    past.is_updated[index] = True
            context = F.scaled_dot_product_attention(
                q, k, v, attn_mask=visible, dropout_p=dropout
            )
            context = cross.output(context.transpose(1, 2).flatten(2))
            x = cross.norm(cross.dropout(context, x))
            x = layer.output_norm(layer.dropout(layer.inner(x), x))
        return F.linear(x, embeddings.token.weight, self.logits_bias)

    def match_tokens(self) -> None:
        """Initialize cross-attention to attend to document tokens equal to the summary's last token.

        Queries and keys are one random rotation of the states, so a head's scores increase with the
        similarity of part of them. Values and output are this rotation and its inverse, so attended states
        are unchanged. Encoder and decoder have the same embeddings: equal tokens have similar states, and
        copying a passage only requires reading a token's neighbors.
        """
        for cross in self.cross:
            assert isinstance(cross, CrossAttention)
            with torch.no_grad():
                matrix = nn.init.orthogonal_(torch.empty_like(cross.query.weight))
                cross.query.weight.copy_(MATCHING * matrix)
                cross.key.weight.copy_(matrix)
                cross.value.weight.copy_(matrix)
                cross.output.weight.copy_(matrix.T)


class SummariesSettings(OtherSettings):
    """A summarization model; summaries begin with [CLS] and end with [SEP]."""

    task: ClassVar[Task] = "summaries"

    def build(self, config: EncoderConfig) -> Any:
        return Summarizer(config)


register_settings(SummariesSettings)


class PegasusEncoder(BigBirdPegasusEncoder):  # type: ignore[misc]
    """The encoder of BigBird-Pegasus with this package's attention, of the graph `pattern`."""

    pattern: Pattern

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> BaseModelOutput:
        lengths = None if attention_mask is None else attention_mask.sum(1).cpu()
        x = self.embed_tokens(input_ids)
        x = x + self.embed_positions(x.shape[:2]).to(x.device)
        x = F.dropout(x, self.dropout, self.training)
        for index, layer in enumerate(self.layers):
            projections = layer.self_attn.self
            states = layer.self_attn_layer_norm(x)
            q, k, v = (
                split_heads(project(states), projections.num_attention_heads)
                for project in (projections.query, projections.key, projections.value)
            )
            dropout = self.config.attention_dropout if self.training else 0.0
            context = bigbird_attention(
                q, k, v, self.pattern, lengths=lengths, layer=index, dropout=dropout
            )
            states = layer.self_attn.output(context.transpose(1, 2).flatten(2))
            x = x + F.dropout(states, self.dropout, self.training)
            inner = layer.activation_fn(layer.fc1(layer.final_layer_norm(x)))
            x = x + F.dropout(layer.fc2(inner), self.dropout, self.training)
        return BaseModelOutput(last_hidden_state=self.layernorm_embedding(x))


def open_pegasus(directory: Path, encoder: EncoderConfig) -> Any:
    """Return a HuggingFace checkpoint of BigBird-Pegasus with this package's attention in its encoder.

    With the compatibility `huggingface`, block-sparse attention is computed as in HuggingFace's evaluation
    mode, with equal logits; with `none`, it has the paper's pattern with random blocks. `ModelError` if the
    checkpoint is incomplete.
    """
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        network, report = BigBirdPegasusForConditionalGeneration.from_pretrained(
            directory,
            dtype=torch.float32,
            local_files_only=True,
            ignore_mismatched_sizes=True,  # they are in the report
            output_loading_info=True,
        )
    except Exception as error:  # any error of the library, for files that do not fit
        raise ModelError(
            f"{directory}: cannot be loaded: {error_text(error)}"
        ) from None
    for kind in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        if report[kind]:
            tensor = min(map(str, report[kind]))
            raise ModelError(f"{directory}: {kind.split('_')[0]} tensor {tensor}")
    config = network.config
    stack = network.model.encoder
    if config.attention_type == "block_sparse":
        stack.__class__ = PegasusEncoder
        stack.pattern = Pattern(
            block_size=config.block_size,
            global_blocks=2,
            window_blocks=3,
            random_blocks=config.num_random_blocks,
            seed=encoder.random_seed,
            huggingface=encoder.compatibility == "huggingface",
        )
    return network
