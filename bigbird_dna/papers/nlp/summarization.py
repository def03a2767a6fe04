"""Summarization: training, prediction and metrics (App. E.5).

ROUGE is computed by the library `rouge-score`, Google's implementation (Lin 2004). Words are stemmed (Porter)
and in lower case, with letters and digits only, as in the papers. ROUGE-Lsum compares sentences: a text with
line breaks has one sentence per line, like the highlights of CNN/DailyMail; other texts are divided after
'.', '!' or '?' followed by white space.

Shapes: B documents, L tokens of a document, T tokens of a summary, V vocabulary.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.batching import pad
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.papers.nlp.config import (
    GeneratedConfig,
    SummariesTaskConfig,
    SummariesTrainingConfig,
    SummaryForm,
)
from bigbird_dna.papers.nlp.data import column, generate_facts
from bigbird_dna.papers.nlp.initialization import TextStart, encoder_changes
from bigbird_dna.papers.nlp.pegasus import is_pegasus, open_pegasus
from bigbird_dna.papers.nlp.records import Prediction, SummaryRecord
from bigbird_dna.papers.nlp.summarizer import (
    SummariesSettings,
    Summarizer,
    match_tokens,
)
from bigbird_dna.papers.nlp.task import Lines, Metrics, RecordsObjective, TextTask
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.initialization import FREE
from bigbird_dna.training.loop import Batch

IGNORED = -100
"""The label of padding, which torch's cross-entropy ignores."""
MEASURES = ("rouge1", "rouge2", "rougeL", "rougeLsum")


class SummaryReader(NamedTuple):
    """Converts documents and summaries to rows of ids, and back."""

    tokenizer: Tokenizer
    form: SummaryForm
    keep: Literal["first", "last"]  # part of a longer document that is kept

    def document(self, text: str, tokens: int) -> NDArray[np.int32]:
        """Return the ids of a document, at most `tokens`, with [CLS] (base form only) and [SEP]."""
        start = [self.tokenizer.cls_id] if self.form == "base" else []
        ids, room = self.tokenizer.encode(text), tokens - len(start) - 1
        if len(ids) > room:
            ids = ids[:room] if self.keep == "first" else ids[len(ids) - room :]
        row: list[Any] = [start, ids, [self.tokenizer.sep_id]]
        return np.concatenate(row).astype(np.int32)

    def summary(self, text: str, tokens: int) -> NDArray[np.int32]:
        """Return the ids of a summary with its [SEP], but without the [CLS]; at most `tokens` with both."""
        ids = self.tokenizer.encode(text)[: tokens - 2]
        return np.append(ids, self.tokenizer.sep_id).astype(np.int32)

    def text(self, ids: Iterable[int]) -> str:
        special = {*self.tokenizer.specials}
        return self.tokenizer.decode([i for i in ids if i not in special]).strip()


def decoder_input(labels: Tensor, tokenizer: Tokenizer) -> Tensor:
    """Return the decoder's input for `labels` (B, T): [CLS], and each token but the last."""
    inputs = labels.roll(1, 1)
    inputs = inputs.masked_fill(inputs == IGNORED, tokenizer.pad_id)
    inputs[:, 0] = tokenizer.cls_id
    return inputs


def rouge(true: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Return the mean F1 over summaries by measure, from 0 to 1.

    ROUGE-1 and -2 count common words and pairs of words; ROUGE-L uses the longest common subsequence of
    complete summaries. ROUGE-Lsum uses that of each true sentence with the union of the predicted sentences
    (the papers' "ROUGE-L" for summaries of several sentences).
    """
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(MEASURES, use_stemmer=True)
    scores = [
        scorer.score(split_sentences(truth), split_sentences(text))
        for truth, text in zip(true, predicted, strict=True)
    ]
    return {
        measure: sum(score[measure].fmeasure for score in scores) / len(scores)
        for measure in MEASURES
    }


def split_sentences(text: str) -> str:
    """Return a text with one sentence per line."""
    text = text.strip()
    lines = text.splitlines() if "\n" in text else re.split(r"(?<=[.!?])\s+", text)
    return "\n".join(line.strip() for line in lines if line.strip())


class SummariesObjective(RecordsObjective):
    """Cross-entropy of the summaries' tokens, as a mean over those of the global batch."""

    config: SummariesTrainingConfig

    def __init__(self, task: "Summarization", world: World) -> None:
        super().__init__(task, world)
        section = task.section
        self.reader = SummaryReader(self.tokenizer, section.form, section.keep)
        self.document_tokens = section.document_tokens
        self.summary_tokens = section.search.max_length

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Return records of a training step, in an order drawn per epoch."""
        tokens = self.config.tokens_at(step, self.document_tokens)
        return self.collate(self.examples(step, first, count), tokens)

    def collate(self, records: Sequence[SummaryRecord], tokens: int) -> Batch:
        documents, summaries = [], []
        for record in records:
            documents.append(self.reader.document(record.document, tokens))
            summary = self.reader.summary(str(record.summary), self.summary_tokens)
            summaries.append(summary)
        ids, lengths = pad(documents, self.tokenizer.pad_id)
        labels, _ = pad(summaries, IGNORED)
        return {"ids": ids, "lengths": lengths, "labels": labels}

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"tokens": float((batch["labels"] != IGNORED).sum())}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """Return the mean cross-entropy of the global batch's tokens, in nats."""
        loss, _ = self.predict(network, batch)
        return loss / totals["tokens"]

    def predict(self, network: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy, summed over tokens, and the number of tokens that are the likeliest."""
        labels = batch["labels"]
        inputs = decoder_input(labels, self.tokenizer)
        logits = network(batch["ids"], batch["lengths"], inputs).float()
        loss = F.cross_entropy(
            logits.flatten(0, 1),
            labels.flatten(),
            ignore_index=IGNORED,
            reduction="sum",
        )
        return loss, (logits.argmax(-1) == labels).sum()

    def metrics(self, network: nn.Module) -> dict[str, float]:
        """Return the cross-entropy of held-out summaries in nats per token, and the accuracy of their tokens.

        Each document is a separate call.
        """

        def evaluate(records: Sequence[SummaryRecord]) -> NDArray[np.float64]:
            sums = np.zeros((len(records), 3))
            for row, record in zip(sums, records, strict=True):
                batch = self.collate([record], self.document_tokens)
                moved = {
                    name: value if name == "lengths" else value.to(self.world.device)
                    for name, value in batch.items()
                }
                loss, right = self.predict(network, moved)
                row[:] = float(loss), float(right), self.counts(batch)["tokens"]
            return sums

        with torch.inference_mode():
            sums = self.world.divide(self.valid, evaluate).sum(0)
        loss, right, tokens = sums.tolist()
        return {"loss": loss / tokens, "token_accuracy": right / tokens}


class Summary(Prediction):
    """A line of a file of predictions."""

    summary: str


class Summarization(TextTask):
    """Predicts a summary of each document."""

    kind = "summaries"
    section: SummariesTaskConfig
    record_type = SummaryRecord
    prediction_type = Summary
    settings_type = SummariesSettings
    objective_type = SummariesObjective
    config: Any

    @cached_property
    def start(self) -> TextStart:
        """Initial encoder, tokenizer and weights; of the form pegasus, those of all parts of a model."""
        name, encoder = self.section.start.model, self.section.encoder
        if name is None or self.section.form == "base":
            return super().start
        directory = Path(name)
        model = self.open(directory)
        if model.settings != SummariesSettings(form="pegasus"):
            raise ConfigError(
                f"start.model: {directory} is not a model of the form pegasus"
            )
        free = FREE - {"max_length"} | {"compatibility"}
        changes = encoder_changes(encoder, model.config, free, directory)
        changes["compatibility"] = model.config.compatibility
        config = EncoderConfig(**model.config.model_dump() | changes)
        log(f"{directory}: used as initial weights")
        files = sorted([*directory.glob("*.safetensors"), *directory.glob("*.bin")])
        sha256 = model.sha256 or " ".join(checksum(path) for path in files)
        weights = model.network.state_dict()
        return TextStart(config, model.tokenizer, weights, sha256, str(directory))

    def open(self, directory: Path) -> LoadedModel:
        """Open a summarization model, or a checkpoint of BigBird-Pegasus."""
        if is_pegasus(directory):
            return open_pegasus(directory, self.section.encoder.compatibility)
        return super().open(directory)

    @property
    def settings(self) -> SummariesSettings:
        return SummariesSettings(form=self.section.form)

    def identity(self) -> dict[str, Any]:
        section = self.section
        return {
            **super().identity(),
            "document_tokens": section.document_tokens,
            "summary_tokens": section.search.max_length,
            "keep": section.keep,
            "form": section.form,
        }

    def check(self) -> None:
        super().check()
        self.check_positions(self.encoder.max_length)

    def check_positions(self, positions: int) -> None:
        """`ConfigError` if a model has too few positions for documents or summaries."""
        for key, tokens in (
            ("document_tokens", self.section.document_tokens),
            ("search.max_length", self.section.search.max_length),
        ):
            if tokens > positions:
                raise ConfigError(
                    f"{key} {tokens}: must be at most the model's {positions} positions"
                )

    def initialize(self, network: nn.Module) -> None:
        """Take the initial weights; new cross-attention may be initialized by `match_tokens`."""
        assert isinstance(network, Summarizer)
        is_new = not any("cross" in name for name in self.start.weights)
        if self.config.initial_cross == "matching" and is_new:
            match_tokens(network)
        super().initialize(network)

    def describe(self, network: nn.Module) -> str:
        return f"{len(self.records):,} documents with summaries"

    def convert(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Convert a row of arXiv, PubMed, BigPatent, XSum or CNN/DailyMail; None if a part is empty."""
        document = str(column(row, "document", "article", "description"))
        summary = str(column(row, "summary", "abstract", "highlights"))
        if not document.strip() or not summary.strip():
            return None
        return {"document": document, "summary": summary}

    def generate(self, generated: GeneratedConfig, split: str) -> Lines:
        return generate_facts(generated, split)

    def missing(self, record: SummaryRecord) -> str | None:
        return None if record.summary and record.summary.strip() else "summary"

    def predictions(
        self, model: Any, records: Any, source: Path, device: Any, batch_size: int
    ) -> Lines:
        from bigbird_dna.papers.nlp.generation import summarize

        section = self.section
        self.check_positions(model.config.max_length)
        reader = SummaryReader(model.tokenizer, model.settings.form, section.keep)
        documents = [
            reader.document(record.document, section.document_tokens)
            for record in records
        ]
        summaries = summarize(
            model.network,
            documents,
            section.search,
            model.tokenizer,
            device,
            batch_size,
        )
        for record, ids in zip(records, summaries, strict=True):
            yield {"id": record.id, "summary": reader.text(ids)}

    def metrics(
        self, records: Sequence[SummaryRecord], predictions: Sequence[Summary]
    ) -> Metrics:
        true = [str(record.summary) for record in records]
        return rouge(true, [line.summary for line in predictions])
