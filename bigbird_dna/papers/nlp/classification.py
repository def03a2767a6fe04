"""Classification of documents and sentence pairs from [CLS]: training, prediction, metrics (App. E.4).

Metrics follow the definitions of scikit-learn and SciPy, which GLUE uses.
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.errors import ConfigError, DataError, ModelError
from bigbird_dna.model.batching import pad, run_rows
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import ClassificationSettings
from bigbird_dna.papers.nlp.config import ClassificationTaskConfig, GeneratedConfig
from bigbird_dna.papers.nlp.data import column, generate_documents
from bigbird_dna.papers.nlp.records import ClassificationRecord, Prediction
from bigbird_dna.papers.nlp.task import Lines, Metrics, RecordsObjective, TextTask
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch


def class_metrics(true: Sequence[str], predicted: Sequence[str]) -> Metrics:
    """Return accuracy, micro-averaged F1 and Matthews' correlation; for two classes also the F1 of the last one
    by name, as for GLUE's "0" and "1". With a single class, Matthews' correlation is defined as 0."""
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    classes = sorted({*true, *predicted})
    metrics: dict[str, float | None] = {
        "accuracy": float(accuracy_score(true, predicted)),
        "micro_f1": float(f1_score(true, predicted, average="micro", zero_division=0)),
        "matthews": 0.0,
    }
    if len(classes) > 1:
        metrics["matthews"] = float(matthews_corrcoef(true, predicted))
    if len(classes) == 2:
        f1 = f1_score(true, predicted, pos_label=classes[-1], zero_division=0)
        metrics["f1"] = float(f1)
    return metrics


def score_metrics(true: Sequence[float], predicted: Sequence[float]) -> Metrics:
    """Return Pearson's and Spearman's correlations, with mean ranks for ties; None if a side is constant."""
    from scipy.stats import pearsonr, spearmanr

    if len({*true}) < 2 or len({*predicted}) < 2:
        return {"pearson": None, "spearman": None}
    metrics: dict[str, float | None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly constant values: visible in the metric
        for name, correlate in (("pearson", pearsonr), ("spearman", spearmanr)):
            value = float(correlate(true, predicted).statistic)
            metrics[name] = None if np.isnan(value) else value
    return metrics


class TextRows(NamedTuple):
    """Token ids of records, and the number of tokens of the first text in each row."""

    ids: list[NDArray[np.int32]]
    firsts: NDArray[np.int64]  # (N,)

    def segments(self, chosen: NDArray[np.integer], width: int) -> Tensor:
        """Return the segments of the chosen rows (n, width): 0 for the first text, 1 for the second."""
        firsts = torch.from_numpy(self.firsts[chosen])
        return (torch.arange(width) >= firsts[:, None]).long()


def text_rows(
    tokenizer: Tokenizer, records: Sequence[ClassificationRecord], length: int
) -> TextRows:
    """Return rows [CLS] text [SEP], or [CLS] text [SEP] pair [SEP], of at most `length` tokens.

    Longer texts are truncated at the end; of a pair, the longer text is truncated first.
    """
    rows, firsts = [], []
    cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
    for record in records:
        first = tokenizer.encode(record.text)
        if record.pair is None:
            first = first[: length - 2]
            row: list[Any] = [cls, first, sep]
        else:
            second, room = tokenizer.encode(record.pair), length - 3
            shorter = min(len(first), len(second))
            longest = max(room - shorter, room - room // 2)
            first = first[:longest]
            second = second[: min(longest, room - len(first))]
            row = [cls, first, sep, second, sep]
        rows.append(np.concatenate(row).astype(np.int32))
        firsts.append(len(first) + 2)
    return TextRows(rows, np.array(firsts, np.int64))


def predict_logits(
    network: nn.Module,
    rows: TextRows,
    tokenizer: Tokenizer,
    device: torch.device,
    batch_size: int,
) -> NDArray[np.float32]:
    """Return logits (N, T) of rows, which do not depend on batch composition."""

    def run(ids: Tensor, lengths: Tensor, chosen: NDArray[np.intp]) -> Tensor:
        segments = rows.segments(chosen, ids.shape[1]).to(ids.device)
        return network(ids, lengths, segments)  # type: ignore[no-any-return]

    return run_rows(
        network,
        rows.ids,
        run,
        pad_id=tokenizer.pad_id,
        batch_size=batch_size,
        device=device,
        empty=(1,),
    )


class ClassificationObjective(RecordsObjective):
    """Cross-entropy of classes, or squared error of scores, as means over the global batch."""

    def __init__(self, task: "TextClassification", world: World) -> None:
        super().__init__(task, world)
        self.labels, self.length = task.labels, task.section.length
        self.valid_rows = text_rows(self.tokenizer, self.valid, self.length)

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Return records of a training step, in an order drawn per epoch."""
        records = self.examples(step, first, count)
        rows = text_rows(self.tokenizer, records, self.length)
        ids, lengths = pad(rows.ids, self.tokenizer.pad_id)
        if self.labels:
            targets = torch.tensor([self.labels.index(r.label) for r in records])
        else:
            targets = torch.tensor([record.score for record in records])
        segments = rows.segments(np.arange(count), ids.shape[1])
        return {
            "ids": ids,
            "lengths": lengths,
            "segments": segments,
            "targets": targets,
        }

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"records": float(len(batch["targets"]))}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """Return the mean loss over the global batch; in nats for classes."""
        logits = network(batch["ids"], batch["lengths"], batch["segments"]).float()
        if self.labels:
            loss = F.cross_entropy(logits, batch["targets"], reduction="sum")
        else:
            loss = F.mse_loss(logits[:, 0], batch["targets"], reduction="sum")
        return loss / totals["records"]

    def metrics(self, network: nn.Module) -> Metrics:
        logits = predict_logits(
            network,
            self.valid_rows,
            self.tokenizer,
            self.world.device,
            self.config.batch_size,
        )
        if not self.labels:
            true = [record.score for record in self.valid]
            return score_metrics(true, logits[:, 0].tolist())
        predicted = [self.labels[index] for index in logits.argmax(1)]
        labels = [record.label for record in self.valid]
        return class_metrics(labels, predicted)


# Columns of the public data sets; pairs come first, because a column of a pair may be a text elsewhere.
_PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
)
_LABELS = ("label", "hyperpartisan")


class ClassPrediction(Prediction):
    """A predicted class, with the probabilities of all classes."""

    label: str
    probabilities: dict[str, float] | None = None


class ScorePrediction(Prediction):
    """A predicted score."""

    score: float


class TextClassification(TextTask):
    """Predicts a class, or a score, for each record."""

    kind = "classification"
    section: ClassificationTaskConfig
    record_type = ClassificationRecord
    settings_type = ClassificationSettings
    objective_type = ClassificationObjective

    @property
    def prediction_type(self) -> type[Prediction]:
        return ScorePrediction if self.section.regression else ClassPrediction

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Classes of the training records; empty for scores."""
        if self.section.regression:
            return ()
        labels = tuple(sorted({record.label for record in self.records}))
        if len(labels) == 1:
            raise DataError(
                f"{self.files['train']}: all records are of the class {labels[0]!r}"
            )
        return labels

    @property
    def settings(self) -> ClassificationSettings:
        labels = self.labels
        return ClassificationSettings(
            outputs=len(labels) or 1, labels=labels, pooling="cls", head="linear"
        )

    def identity(self) -> dict[str, Any]:
        return {
            **super().identity(),
            "settings": self.settings.as_json(),
            "length": self.section.length,
        }

    def describe(self, network: nn.Module) -> str:
        return f"{len(self.records):,} records of {len(self.labels) or 'no'} classes"

    def convert(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Convert a row of IMDb, Yelp-5, Hyperpartisan, arXiv, Patents or GLUE, by its columns."""
        for first, second in _PAIRS:
            if first in row and second in row:
                record = {"text": row[first], "pair": row[second]}
                break
        else:
            record = {"text": column(row, "text", "sentence")}
        label = next((row[name] for name in _LABELS if name in row), None)
        if label is None:
            return record
        if self.section.regression:
            return {**record, "score": float(label)}
        if isinstance(label, bool):
            return {**record, "label": str(label).lower()}
        # Test rows of GLUE have the label -1.
        if isinstance(label, int) and label < 0:
            return record
        return {**record, "label": str(label)}

    def generate(self, generated: GeneratedConfig, split: str) -> Lines:
        if self.section.regression:
            raise ConfigError(
                "regression: generated documents have classes, not scores"
            )
        return generate_documents(generated, split)

    def missing(self, record: ClassificationRecord) -> str | None:
        key = "score" if self.section.regression else "label"
        return key if getattr(record, key) is None else None

    def open(self, directory: Path) -> LoadedModel:
        """Open a classifier of ordinary text."""
        model = super().open(directory)
        if model.tokenizer.is_dna:
            raise ModelError(
                f"{directory}: needs a tokenizer of ordinary text, found a DNA tokenizer"
            )
        return model

    def predictions(
        self, model: Any, records: Any, source: Path, device: Any, batch_size: int
    ) -> Lines:
        """Yield each record's class with the probabilities of all classes, or its score."""
        labels = model.settings.labels
        length = min(self.section.length, model.config.max_length)
        rows = text_rows(model.tokenizer, records, length)
        logits = predict_logits(
            model.network, rows, model.tokenizer, device, batch_size
        ).astype(np.float64)
        for record, row in zip(records, logits, strict=True):
            if labels:
                probs = softmax(row)
                yield {
                    "id": record.id,
                    "label": labels[int(probs.argmax())],
                    "probabilities": dict(zip(labels, probs.tolist(), strict=True)),
                }
            else:
                yield {"id": record.id, "score": float(row[0])}

    def metrics(
        self, records: Sequence[ClassificationRecord], predictions: Sequence[Any]
    ) -> Metrics:
        """Return accuracy, micro F1, Matthews' correlation and F1; or Pearson and Spearman correlations."""
        if self.section.regression:
            scores = [record.score or 0.0 for record in records]
            return score_metrics(scores, [line.score for line in predictions])
        true = [str(record.label) for record in records]
        predicted = [line.label for line in predictions]
        return class_metrics(true, predicted)
