"""Summarization: network, training, prediction and metrics (App. E.5).

ROUGE is computed by the library `rouge-score`, Google's implementation (Lin 2004). Words are stemmed (Porter)
and in lower case, with letters and digits only, as in the papers. ROUGE-Lsum compares sentences, which end at
a line break, or after '.', '!' or '?' followed by white space.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from rouge_score.rouge_scorer import RougeScorer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    BigBirdPegasusForConditionalGeneration,
    GenerationMixin,
    PreTrainedModel,
)
from transformers.loss.loss_utils import fixed_cross_entropy
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.models.encoder_decoder.modeling_encoder_decoder import (
    shift_tokens_right,
)

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.disk.atomic import checksum, reading
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.input_embeddings import initialize
from bigbird_dna.model.settings import OtherSettings, Task, register_settings
from bigbird_dna.papers.nlp.config import TRAIN, VALID, SummariesTaskConfig
from bigbird_dna.papers.nlp.data import generate_facts, write_splits
from bigbird_dna.papers.nlp.records import (
    SummaryRecord,
    read_labeled,
    read_predictions,
    read_records,
)
from bigbird_dna.papers.nlp.trainer import Start, begin_training, fit, open_trained

MEASURES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
IGNORED = -100
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
        if config.kmers:
            raise ConfigError("encoder: a decoder does not support kmers")

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


def prepare(section: SummariesTaskConfig, directory: Path) -> None:
    """Write the records of the three splits."""
    write_splits(section.data, directory, SummaryRecord, public_record, generate_facts)


def public_record(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Convert a row of arXiv, PubMed, BigPatent, XSum or CNN/DailyMail; None if a part is empty."""
    document = row.get("document", row.get("article", row.get("description", "")))
    summary = row.get("summary", row.get("abstract", row.get("highlights", "")))
    if not document.strip() or not summary.strip():
        return None
    return {"document": document, "summary": summary}


def open_pegasus(directory: Path) -> tuple[Any, Any]:
    """Return the network and the tokenizer of a checkpoint of BigBird-Pegasus."""
    with reading(directory, "cannot be loaded", Exception):
        network = BigBirdPegasusForConditionalGeneration.from_pretrained(
            directory, dtype=torch.float32
        )
        return network, AutoTokenizer.from_pretrained(directory)


def is_pegasus(directory: Path) -> bool:
    """Return whether a directory is a BigBirdPegasus checkpoint; `ModelError` if it has no `config.json`."""
    values = read_object(directory / "config.json")
    return values.get("model_type") == "bigbird_pegasus"


def first_token(network: Any, tokenizer: Any) -> int:
    """Return the id of the token that summaries begin with."""
    start: int | None = getattr(network.config, "decoder_start_token_id", None)
    return tokenizer.cls_token_id if start is None else start


def encode(texts: Sequence[str], tokenizer: Any, network: Any, length: int) -> Any:
    """Return the padded ids and mask of texts, truncated to `length` or the network's positions."""
    return tokenizer(
        texts,
        truncation=True,
        max_length=min(length, network.config.max_position_embeddings),
        padding=True,
        return_token_type_ids=False,
        return_tensors="pt",
    )


def train(section: SummariesTaskConfig, home: Path, **options: Any) -> None:
    """Train a summarizer and write its directory; `options` are those of `fit`.

    A start from BigBird-Pegasus gives a directory of transformers, other starts a model directory.
    """
    directory = Path(section.start.model or "")
    settings: SummariesSettings | None = None
    network: Any
    if section.start.model is not None and is_pegasus(directory):
        torch.manual_seed(section.seed)
        train = read_labeled(home / TRAIN, SummaryRecord, section)
        valid = read_labeled(home / VALID, SummaryRecord, section)
        network, tokenizer = open_pegasus(directory)
        weights = sorted(directory.glob("*.safetensors"))
        start = Start(section.encoder, tokenizer, {}, " ".join(map(checksum, weights)))
    else:
        train, valid, start, tokenizer = begin_training(section, home, SummaryRecord)
        settings, network = SummariesSettings(), Summarizer(start.config)

    start_id = first_token(network, tokenizer)

    def collate(examples: Sequence[Any]) -> dict[str, Tensor]:
        documents = [record.document for record, _ in examples]
        summaries = [record.summary for record, _ in examples]
        inputs = encode(documents, tokenizer, network, section.document_tokens)
        outputs = encode(summaries, tokenizer, network, section.summary_tokens)
        labels = outputs["input_ids"].masked_fill(
            outputs["attention_mask"] == 0, IGNORED
        )
        if (labels[:, 0] == start_id).all():
            labels = labels[:, 1:]
        shifted = shift_tokens_right(labels, tokenizer.pad_token_id, start_id)
        return {**inputs, "decoder_input_ids": shifted, "labels": labels}

    fit(network, section, home, start, settings, train, valid, collate, **options)


def predict(
    section: SummariesTaskConfig,
    directory: Path,
    path: Path,
    device: torch.device,
    batch_size: int,
) -> Iterator[dict[str, Any]]:
    """Yield the summary of each document by the search that `section.generation` configures.

    On a CPU, every document is summarized separately, so that no bit depends on other documents.
    """
    if is_pegasus(directory):
        network, tokenizer = open_pegasus(directory)
        network = network.to(device)
    else:
        _, network, tokenizer = open_trained(directory, SummariesSettings, device)

    records = [*read_records(path, SummaryRecord)]
    step = 1 if device.type == "cpu" else batch_size
    for first in range(0, len(records), step):
        batch = records[first : first + step]
        documents = [record.document for record in batch]
        inputs = encode(documents, tokenizer, network, section.document_tokens)
        with torch.inference_mode():
            rows = network.generate(
                **inputs.to(device),
                max_length=section.summary_tokens,
                decoder_start_token_id=first_token(network, tokenizer),
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
                **section.generation,
            )

        summaries = tokenizer.batch_decode(rows, skip_special_tokens=True)
        for record, summary in zip(batch, summaries, strict=True):
            yield {"id": record.id, "summary": summary.strip()}


def evaluate(
    section: SummariesTaskConfig, path: Path, predictions: Path
) -> dict[str, Any]:
    """Return the mean F1 of ROUGE by measure, from 0 to 1.

    ROUGE-1 and -2 count common words and pairs of words; ROUGE-L uses the longest common subsequence of
    complete summaries. ROUGE-Lsum uses that of each true sentence with the union of the predicted sentences
    (the papers' "ROUGE-L" for summaries of several sentences).
    """
    records = read_labeled(path, SummaryRecord, section)
    lines = read_predictions(predictions, "summary", records)
    scorer = RougeScorer(MEASURES, use_stemmer=True)
    metrics = dict.fromkeys(MEASURES, 0.0)
    for record, line in zip(records, lines, strict=True):
        true, predicted = split_sentences(str(record.summary)), line["summary"]
        scores = scorer.score(true, split_sentences(predicted))
        for measure in MEASURES:
            metrics[measure] += scores[measure].fmeasure / len(records)

    return {**metrics, "records": len(records)}


def split_sentences(text: str) -> str:
    """Return a text with one sentence per line."""
    return re.sub(r"(?<=[.!?])\s+|\s*\n\s*", "\n", text.strip())
