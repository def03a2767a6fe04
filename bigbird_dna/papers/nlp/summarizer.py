"""The summarization network: this package's encoder and transformers' BERT as its decoder."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertModel,
    GenerationMixin,
    PreTrainedModel,
)
from transformers.loss.loss_utils import fixed_cross_entropy
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.input_embeddings import initialize
from bigbird_dna.model.settings import OtherSettings, Task, register_settings

ACTIVATIONS = {"gelu_tanh": "gelu_pytorch_tanh", "gelu": "gelu", "relu": "relu"}
"""transformers' names of activations."""


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
    """Encoder of documents, and transformers' BERT as the decoder of summaries, with common weights.

    After Rothe et al. 2020 (arXiv 1907.12461), as in the paper's App. E.5 for the base size. A layer of the
    decoder is the encoder layer of the same number, with full causal attention instead of sparse attention,
    and cross-attention between attention and feed-forward network. The embeddings are those of the encoder,
    and their transpose gives the logits. With rotary positions, the decoder has a table of its own.
    """

    accepts_loss_kwargs = True

    def __init__(self, config: EncoderConfig) -> None:
        for key, value in {
            "kmers": 0,
            "rescale_embeddings": False,
            "norm": "post",
            "feed_forward": "plain",
        }.items():
            if getattr(config, key) != value:
                raise ConfigError(f"encoder.{key}: a decoder needs {value}")
        decoder = BertConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.hidden,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.intermediate or 4 * config.hidden,
            hidden_act=ACTIVATIONS[config.activation],
            hidden_dropout_prob=config.dropout,
            attention_probs_dropout_prob=config.attention_dropout,
            max_position_embeddings=config.max_length,
            type_vocab_size=config.segments,
            layer_norm_eps=config.layer_norm_epsilon,
            is_decoder=True,
            is_encoder_decoder=True,
            add_cross_attention=True,
        )
        super().__init__(decoder)
        encoder: Any = Encoder(config)
        encoder.main_input_name = "input_ids"  # which `generate` looks up
        self.encoder = encoder
        with torch.device("cpu"):  # BERT's tables of numbers need values
            bert: Any = BertModel(decoder, add_pooling_layer=False)
        initialize(bert, config.hidden)
        self.decoder = bert
        self.logits_bias = nn.Parameter(torch.zeros(config.vocabulary))

        bert.embeddings.word_embeddings = encoder.embeddings.token
        bert.embeddings.token_type_embeddings = encoder.embeddings.segment
        bert.embeddings.LayerNorm = encoder.embeddings.norm
        if encoder.embeddings.position is not None:
            bert.embeddings.position_embeddings = encoder.embeddings.position
        for ours, theirs in zip(encoder.layers, bert.encoder.layer, strict=True):
            theirs.attention.self.query = ours.query
            theirs.attention.self.key = ours.key or ours.query
            theirs.attention.self.value = ours.value
            theirs.attention.output.dense = ours.attention_output
            theirs.attention.output.LayerNorm = ours.attention_norm
            theirs.intermediate.dense = ours.intermediate
            theirs.output.dense = ours.output
            theirs.output.LayerNorm = ours.output_norm

    def get_encoder(self, *_: Any, **__: Any) -> nn.Module:
        return DocumentEncoder(self.encoder)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the weights by name, without those of the decoder that are the encoder's."""
        common = {*map(id, self.encoder.parameters())}
        state = super().state_dict(*args, **kwargs)
        for name, parameter in self.decoder.named_parameters(prefix="decoder"):
            if id(parameter) in common:
                del state[name]
        return state

    def load_state_dict(
        self, state_dict: Any, strict: bool = True, assign: bool = False
    ) -> Any:
        """Load the result of `state_dict`."""
        return super().load_state_dict(state_dict, strict=False, assign=assign)

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
        """Return logits (B, T, V) of the token after each of `decoder_input_ids` (B, T), and the loss in nats.

        `input_ids` (B, L) are documents, or `encoder_outputs` their hidden states. With `past_key_values`,
        the decoder's inputs are a single new token, and its keys and values are added.
        """
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(input_ids, attention_mask)
        decoded = self.decoder(
            decoder_input_ids,
            encoder_hidden_states=encoder_outputs[0],
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            use_cache=past_key_values is not None,
        )
        logits = F.linear(
            decoded.last_hidden_state,
            self.encoder.embeddings.token.weight,
            self.logits_bias,
        )
        loss = None
        if labels is not None:
            loss = fixed_cross_entropy(
                logits.float().flatten(0, 1), labels.flatten(), num_items_in_batch
            )
        return Seq2SeqLMOutput(
            loss=loss, logits=logits, past_key_values=past_key_values
        )


class SummariesSettings(OtherSettings):
    """A summarization model; summaries begin with [CLS] and end with [SEP]."""

    task: ClassVar[Task] = "summaries"

    def build(self, config: EncoderConfig) -> Any:
        return Summarizer(config)


register_settings(SummariesSettings)
