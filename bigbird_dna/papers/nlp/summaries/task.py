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
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.config import EncoderConfig
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.batching import pad
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.papers.nlp.config import (
    DecoderShape,
    GeneratedConfig,
    SpecialIds,
    SummariesTaskConfig,
    SummariesTrainingConfig,
    SummaryForm,
)
from bigbird_dna.papers.nlp.initialization import (
    TextStart,
    check_effect,
    free_changes,
    make_text_start,
)
from bigbird_dna.papers.nlp.loading import column, extra, generate_facts
from bigbird_dna.papers.nlp.records import Record, SummaryRecord
from bigbird_dna.papers.nlp.summaries.network import SummariesSettings, match_tokens
from bigbird_dna.papers.nlp.summaries.pegasus import (
    MODEL_TYPE,
    is_pegasus,
    open_pegasus,
    read_settings,
)
from bigbird_dna.papers.nlp.summaries.search import Ids, summarize
from bigbird_dna.papers.nlp.task import Lines, Metrics, RecordsObjective, TextTask
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.initialization import FREE
from bigbird_dna.training.loop import Batch

IGNORED = -100
"""The label of padding, which torch's cross-entropy ignores."""


class Reader(NamedTuple):
    """Converts documents and summaries to rows of ids."""

    tokenizer: Tokenizer
    special: SpecialIds
    form: SummaryForm
    keep: Literal["first", "last"]  # part of a longer document that is kept

    def document(self, text: str, tokens: int) -> Ids:
        """Return the ids of a document, at most `tokens`, with start (base form only) and end."""
        ids = self.tokenizer.encode(text)
        first = [self.special.start] if self.form == "base" else []
        room = tokens - len(first) - 1
        if len(ids) > room:
            ids = ids[:room] if self.keep == "first" else ids[len(ids) - room :]
        return np.concatenate([first, ids, [self.special.end]]).astype(np.int32)

    def summary(self, text: str, tokens: int) -> Ids:
        """Return the ids of a summary with its end, but without the start; at most `tokens` with both."""
        return np.append(
            self.tokenizer.encode(text)[: tokens - 2], self.special.end
        ).astype(np.int32)

    def text(self, ids: Iterable[int]) -> str:
        special = {
            self.special.start,
            self.special.end,
            self.special.pad,
            *self.tokenizer.specials,
        }
        return self.tokenizer.decode(
            index for index in ids if index not in special
        ).strip()


def decoder_input(labels: Tensor, special: SpecialIds) -> Tensor:
    """Return the decoder's input for `labels` (B, T): the start token, and each token but the last."""
    before = labels.roll(1, 1).masked_fill(labels.roll(1, 1) == IGNORED, special.pad)
    before[:, 0] = special.start
    return before


MEASURES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def rouge(true: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Return the mean F1 over summaries by measure, from 0 to 1; empty without summaries.

    ROUGE-1 and -2 count common words and pairs of words; ROUGE-L uses the longest common subsequence of
    complete summaries. ROUGE-Lsum uses that of each true sentence with the union of the predicted sentences
    (the papers' "ROUGE-L" for summaries of several sentences).
    """
    scorer = extra("rouge_score.rouge_scorer").RougeScorer(
        [*MEASURES], use_stemmer=True
    )
    sums = dict.fromkeys(MEASURES, 0.0)
    for one, other in zip(true, predicted, strict=True):
        scores: dict[str, Any] = scorer.score(sentences(one), sentences(other))
        for measure in MEASURES:
            sums[measure] += float(scores[measure].fmeasure)
    return (
        {measure: total / len(true) for measure, total in sums.items()} if true else {}
    )


def sentences(text: str) -> str:
    """Return a text with one sentence per line."""
    text = text.strip()
    lines = text.splitlines() if "\n" in text else _SENTENCE_END.split(text)
    return "\n".join(line.strip() for line in lines if line.strip())


class SummariesObjective(RecordsObjective["Summarization"]):
    """Cross-entropy of the summaries' tokens, as a mean over those of the global batch."""

    config: SummariesTrainingConfig

    def __init__(self, task: "Summarization", world: World) -> None:
        super().__init__(task, world)
        self.lengths = task.lengths
        self.reader = Reader(
            self.tokenizer, task.settings.special, task.section.form, task.section.keep
        )

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Return records of a training step, in an order drawn per epoch."""
        chosen = self.drawn(step, first, count)
        tokens = self.config.tokens_at(step, self.lengths["document"])
        return self._rows([self.train[index] for index in chosen], tokens)

    def _rows(self, records: Sequence[SummaryRecord], tokens: int) -> Batch:
        documents = [
            self.reader.document(record.document, tokens) for record in records
        ]
        ids, lengths = pad(documents, self.reader.special.pad)
        summaries = [
            self.reader.summary(str(record.summary), self.lengths["summary"])
            for record in records
        ]
        return {"ids": ids, "lengths": lengths, "labels": pad(summaries, IGNORED)[0]}

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"tokens": float((batch["labels"] != IGNORED).sum())}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """Return the mean cross-entropy of the global batch's tokens, in nats, with label smoothing."""
        return (
            self._loss(network, batch, self.config.label_smoothing)[0]
            / totals["tokens"]
        )

    def _loss(
        self, network: nn.Module, batch: Batch, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """Return the sum over tokens, and the number of tokens that are the likeliest."""
        wanted = batch["labels"]
        logits = network(
            batch["ids"], batch["lengths"], decoder_input(wanted, self.reader.special)
        ).float()
        loss = F.cross_entropy(
            logits.flatten(0, 1),
            wanted.flatten(),
            ignore_index=IGNORED,
            reduction="sum",
            label_smoothing=smoothing,
        )
        return loss, ((logits.argmax(-1) == wanted) & (wanted != IGNORED)).sum()

    def metrics(self, network: nn.Module) -> dict[str, float]:
        """Return the cross-entropy of held-out summaries in nats per token, and the accuracy of their tokens.

        Each document is a separate call.
        """
        device = self.world.device

        def evaluate_records(
            records: Sequence[SummaryRecord],
        ) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
            figures = np.zeros((len(records), 3))
            for row, record in zip(figures, records, strict=True):
                batch = self._rows([record], self.lengths["document"])
                moved = {name: value.to(device) for name, value in batch.items()}
                loss, right = self._loss(
                    network, {**moved, "lengths": batch["lengths"]}, 0.0
                )
                row[:] = float(loss), float(right), self.counts(batch)["tokens"]
            return figures

        with torch.inference_mode():
            loss, right, tokens = (
                self.world.divide(self.valid, evaluate_records).sum(0).tolist()
            )
        return {"loss": loss / tokens, "token_accuracy": right / tokens}


# Columns of the public data sets: XSum, arXiv and PubMed, BigPatent, CNN/DailyMail.
_DOCUMENTS = ("document", "article", "description")
_SUMMARIES = ("summary", "abstract", "highlights")


class Summary(Record):
    """A line of a file of predictions."""

    summary: str


class Summarization(TextTask[SummariesTaskConfig, SummaryRecord, Summary]):
    """Predicts a summary of each document."""

    kind = "summaries"
    record_type = SummaryRecord
    prediction_type = Summary
    predicted_key = "summary"
    predicted = "summaries"
    settings_type = SummariesSettings
    model_name = "a summarization model"
    objective_type = SummariesObjective
    config: SummariesTrainingConfig

    @cached_property
    def _begun(self) -> tuple[TextStart, SummariesSettings]:
        """Use all of a BigBird-Pegasus checkpoint or of a summarization model; of any other model, use the
        encoder, for the base form with newly initialized cross-attention.
        """
        section, name = self.section, self.section.start.model
        directory = None if name is None else Path(name)
        given = {} if directory is None else read_settings(directory / "config.json")
        if directory is not None and (
            given.get("model_type") == MODEL_TYPE
            or given.get("task") == SummariesSettings.task
        ):
            check_effect(section.start, ours=not is_pegasus(directory))
            model = self.open(directory)
            assert isinstance(model.settings, SummariesSettings)
            if section.form != model.settings.form:
                raise ConfigError(
                    f"form {section.form}: {directory} is of the form {model.settings.form}"
                )
            if section.decoder not in (None, model.settings.decoder):
                raise ConfigError(
                    f"decoder: must equal that of {directory}: {model.settings.decoder}"
                )
            changes = free_changes(
                model.config, section.encoder, FREE - {"max_length"}, directory
            )
            config = EncoderConfig(**{**model.config.model_dump(), **changes})
            log(f"{directory}: used as initial weights")
            files = sorted([*directory.glob("*.safetensors"), *directory.glob("*.bin")])
            sha256 = model.sha256 or " ".join(checksum(path) for path in files)
            start = TextStart(
                config,
                model.tokenizer,
                model.network.state_dict(),
                sha256,
                str(directory),
            )
            return start, SummariesSettings(
                decoder=model.settings.decoder, special=model.settings.special
            )
        if directory is not None and section.form == "pegasus":
            fault = f"{directory} is not a summarization model, which the form pegasus needs"
            raise ConfigError(f"start.model: {fault}")
        start, decoder = (
            make_text_start(section.start, section.encoder, self.texts),
            None,
        )
        own, pieces = start.config, start.tokenizer
        if section.form == "pegasus":
            inner = own.intermediate or 4 * own.hidden
            decoder = section.decoder or DecoderShape(
                layers=own.layers, heads=own.heads, intermediate=inner
            )
        special = SpecialIds(start=pieces.cls_id, end=pieces.sep_id, pad=pieces.pad_id)
        return start, SummariesSettings(decoder=decoder, special=special)

    @property
    def start(self) -> TextStart:
        return self._begun[0]

    @property
    def settings(self) -> SummariesSettings:
        """Settings of the initial summarization model, or those of the section."""
        return self._begun[1]

    @property
    def lengths(self) -> dict[str, int]:
        return _lengths(self.section, self.encoder.max_length)

    def identity(self) -> dict[str, Any]:
        own = {"settings": self.settings.as_json(), "lengths": self.lengths}
        return {**super().identity(), **own, "keep": self.section.keep}

    def initialize(self, network: nn.Module) -> None:
        """Take the initial weights; new cross-attention may be initialized by `match_tokens`."""
        fresh = not any("cross" in name for name in self.start.weights)
        if self.config.initial_cross == "matching" and fresh:
            match_tokens(network)
        super().initialize(network)

    def describe(self, network: nn.Module) -> str:
        return f"{len(self.records):,} documents with summaries"

    def record(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Convert a row of arXiv, PubMed, BigPatent, XSum or CNN/DailyMail; None if a part is empty."""
        found = {
            "document": str(column(row, *_DOCUMENTS)),
            "summary": str(column(row, *_SUMMARIES)),
        }
        return found if all(text.strip() for text in found.values()) else None

    def generate(self, generated: GeneratedConfig, split: str) -> Lines:
        return generate_facts(generated, split)

    def lacking(self, record: SummaryRecord) -> str | None:
        return None if record.summary and record.summary.strip() else "summary"

    def open(self, directory: Path) -> LoadedModel:
        """Open a summarization model, or a checkpoint of BigBird-Pegasus."""
        if is_pegasus(directory):
            return open_pegasus(
                directory,
                self.section.start.compatibility,
                self.section.start.tokenizer,
            )
        return super().open(directory)

    def predictions(
        self, model: Any, records: Any, source: Path, device: Any, batch_size: int
    ) -> Lines:
        settings, tokens = (
            model.settings,
            _lengths(self.section, model.config.max_length)["document"],
        )
        reader = Reader(
            model.tokenizer, settings.special, settings.form, self.section.keep
        )
        documents = [reader.document(record.document, tokens) for record in records]
        found = summarize(
            model.network,
            documents,
            self.section.search,
            settings.special,
            device,
            batch_size,
        )
        for record, ids in zip(records, found, strict=True):
            yield {"id": record.id, "summary": reader.text(ids)}

    def metrics(
        self, records: Sequence[SummaryRecord], predictions: Sequence[Summary]
    ) -> Metrics:
        return rouge(
            [str(record.summary) for record in records],
            [one.summary for one in predictions],
        )


def _lengths(section: SummariesTaskConfig, positions: int) -> dict[str, int]:
    """Return the tokens of documents and summaries; `ConfigError` if the model has too few positions."""
    found = {
        "document_tokens": section.document_tokens,
        "search.max_length": section.search.max_length,
    }
    for key, value in found.items():
        if value > positions:
            raise ConfigError(
                f"{key} {value}: must be at most the model's {positions} positions"
            )
    return dict(zip(("document", "summary"), found.values(), strict=True))


TASK = Summarization
