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
from torch import Tensor, nn
from torch.nn import functional as F

from bigbird_dna.errors import ConfigError, DataError, ModelError, one_of
from bigbird_dna.model.batching import pad, run_rows
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import ClassificationSettings
from bigbird_dna.papers.nlp.config import ClassificationTaskConfig, GeneratedConfig
from bigbird_dna.papers.nlp.loading import column, generate_documents
from bigbird_dna.papers.nlp.records import ClassificationRecord, Record
from bigbird_dna.papers.nlp.task import Lines, Metrics, RecordsObjective, TextTask
from bigbird_dna.tokens.interface import Tokenizer
from bigbird_dna.training.distributed import World
from bigbird_dna.training.loop import Batch


def class_metrics(
    true: Sequence[str], predicted: Sequence[str], positive: str | None
) -> Metrics:
    """Return accuracy, micro-averaged F1 and Matthews' correlation; for two classes also the F1 of one class.

    `positive` is the class of this F1; None: the last by name, as for GLUE's "0" and "1". With a single
    class, Matthews' correlation is defined as 0; F1 of a class that neither occurs nor is predicted is 0.
    """
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    classes = sorted({*true, *predicted})
    figures: dict[str, float | None] = {
        "accuracy": float(accuracy_score(true, predicted)),
        "micro_f1": float(f1_score(true, predicted, average="micro", zero_division=0)),
        "matthews": float(matthews_corrcoef(true, predicted))
        if len(classes) > 1
        else 0.0,
    }
    if positive is None and len(classes) == 2:
        positive = classes[-1]
    if positive is not None:
        mine = [[name == positive for name in names] for names in (true, predicted)]
        figures["f1"] = float(f1_score(*mine, zero_division=0))
    return figures


def score_metrics(true: Sequence[float], predicted: Sequence[float]) -> Metrics:
    """Return Pearson's and Spearman's correlations, with mean ranks for ties; None if a side is constant."""
    from scipy.stats import pearsonr, spearmanr

    if len(true) < 2 or min(len({*true}), len({*predicted})) < 2:
        return {"pearson": None, "spearman": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly constant values: visible in the metric
        found: list[Any] = [pearsonr(true, predicted), spearmanr(true, predicted)]
    values = [float(one.statistic) for one in found]
    return {
        name: value if value == value else None
        for name, value in zip(("pearson", "spearman"), values, strict=True)
    }


Ids = NDArray[np.int32]


class TextRows(NamedTuple):
    """Token ids of records, and the number of tokens of the first text in each row."""

    ids: list[Ids]
    firsts: NDArray[np.int64]  # (N,)

    def segments(self, chosen: NDArray[np.integer], width: int) -> Tensor:
        """Return the segments of the chosen rows (n, width): 0 for the first text, 1 for the second."""
        return (
            torch.arange(width)[None] >= torch.from_numpy(self.firsts[chosen])[:, None]
        ).long()


def text_rows(
    tokenizer: Tokenizer, records: Sequence[ClassificationRecord], length: int
) -> TextRows:
    """Return rows [CLS] text [SEP], or [CLS] text [SEP] pair [SEP], of at most `length` tokens.

    Longer texts are truncated at the end; of a pair, the longer text is truncated first.
    """
    rows, firsts = [], []
    specials = tokenizer.specials
    for record in records:
        parts = [
            tokenizer.encode(record.text)[: length - 2 if record.pair is None else None]
        ]
        if record.pair is not None:
            a, b = parts[0], tokenizer.encode(record.pair)
            short, room = min(len(a), len(b)), length - 3
            most = max(room - short, room - room // 2)  # limit of the longer text
            a = a[:most]
            parts = [a, b[: min(most, room - len(a))]]
        ends = [np.append(part, specials.sep) for part in parts]
        rows.append(np.concatenate([[specials.cls], *ends]).astype(np.int32))
        firsts.append(len(parts[0]) + 2)
    return TextRows(rows, np.array(firsts, np.int64))


def outputs_of(
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


class ClassificationObjective(RecordsObjective["TextClassification"]):
    """Cross-entropy of classes, or squared error of scores, as means over the global batch."""

    def __init__(self, task: "TextClassification", world: World) -> None:
        super().__init__(task, world)
        self.labels, self.length = task.labels, task.section.length
        self.targets = targets(self.train, self.labels)
        self.rows = text_rows(self.tokenizer, self.valid, self.length)

    def batch(self, step: int, first: int, count: int) -> Batch:
        """Return records of a training step, in an order drawn per epoch."""
        chosen = self.drawn(step, first, count)
        rows = text_rows(
            self.tokenizer, [self.train[index] for index in chosen], self.length
        )
        ids, lengths = pad(rows.ids, self.tokenizer.pad_id)
        segments = rows.segments(np.arange(len(chosen)), ids.shape[1])
        return {
            "ids": ids,
            "lengths": lengths,
            "segments": segments,
            "targets": torch.from_numpy(self.targets[chosen]),
        }

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"records": float(len(batch["targets"]))}

    def loss(
        self, network: nn.Module, batch: Batch, totals: dict[str, float]
    ) -> Tensor:
        """Return the mean loss over the global batch; in nats for classes."""
        outputs = network(batch["ids"], batch["lengths"], batch["segments"]).float()
        if self.labels:
            loss = F.cross_entropy(outputs, batch["targets"], reduction="sum")
        else:
            loss = F.mse_loss(outputs[:, 0], batch["targets"].float(), reduction="sum")
        return loss / totals["records"]

    def metrics(self, network: nn.Module) -> Metrics:
        outputs = outputs_of(
            network,
            self.rows,
            self.tokenizer,
            self.world.device,
            self.config.batch_size,
        )
        if not self.labels:
            return score_metrics(
                targets(self.valid, ()).tolist(), outputs[:, 0].tolist()
            )
        predicted = [self.labels[index] for index in outputs.argmax(1)]
        true = [str(record.label) for record in self.valid]
        return class_metrics(true, predicted, self.task.section.positive)


def targets(
    records: Sequence[ClassificationRecord], labels: Sequence[str]
) -> NDArray[np.generic]:
    """Return the numbers of the records' classes (N,), or their scores if there are no classes."""
    if not labels:
        return np.array([record.score for record in records], np.float64)
    numbers = {label: number for number, label in enumerate(labels)}
    return np.array([numbers[str(record.label)] for record in records], np.int64)


# Columns of the public data sets; pairs come first, because a column of a pair may be a text elsewhere.
_PAIRS = (
    *(("sentence1", "sentence2"), ("premise", "hypothesis")),
    *(("question1", "question2"), ("question", "sentence")),
)
_TEXTS = ("text", "sentence")
_LABELS = ("label", "hyperpartisan")


class ClassPrediction(Record):
    """A line of a file of predictions: a class, with the probabilities of all classes, or a score."""

    label: str | None = None
    score: float | None = None
    probabilities: dict[str, float] | None = None


class TextClassification(
    TextTask[ClassificationTaskConfig, ClassificationRecord, ClassPrediction]
):
    """Predicts a class, or a score, for each record."""

    kind = "classification"
    record_type = ClassificationRecord
    prediction_type = ClassPrediction
    settings_type = ClassificationSettings
    model_name = "a classification model"
    objective_type = ClassificationObjective

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Classes of the training records; empty for scores."""
        if self.section.regression:
            return ()
        labels = tuple(sorted({str(record.label) for record in self.records}))
        if len(labels) == 1:
            raise DataError(
                f"{self.files['train']}: all records are of the class {labels[0]!r}"
            )
        check_positive(self.section.positive, labels)
        return labels

    @property
    def settings(self) -> ClassificationSettings:
        labels, head = self.labels, self.section.head
        return ClassificationSettings(
            outputs=len(labels) or 1, labels=labels, pooling="cls", head=head
        )

    def identity(self) -> dict[str, Any]:
        own = {"settings": self.settings.as_json(), "length": self.section.length}
        return {**super().identity(), **own}

    def describe(self, network: nn.Module) -> str:
        return f"{len(self.records):,} records of {len(self.labels) or 'no'} classes"

    def provenance(self) -> dict[str, Any]:
        return {**super().provenance(), "length": self.section.length}

    def record(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """Convert a row of IMDb, Yelp-5, Hyperpartisan, arXiv, Patents or GLUE, by its columns."""
        found: dict[str, Any] = {}
        for first, second in _PAIRS:
            if first in row and second in row:
                found = {"text": row[first], "pair": row[second]}
                break
        else:
            found = {"text": column(row, *_TEXTS)}
        label = next((row[name] for name in _LABELS if name in row), None)
        if self.section.regression:
            return found if label is None else {**found, "score": float(label)}
        # Test rows of GLUE have the label -1.
        if label is None or (type(label) is int and label < 0):
            return found
        return {
            **found,
            "label": str(label).lower() if isinstance(label, bool) else str(label),
        }

    def generate(self, generated: GeneratedConfig, split: str) -> Lines:
        if self.section.regression:
            raise ConfigError(
                "regression: generated documents have classes, not scores"
            )
        return generate_documents(generated, split)

    @property
    def predicted_key(self) -> str:
        return "score" if self.section.regression else "label"

    def lacking(self, record: ClassificationRecord) -> str | None:
        return (
            self.predicted_key if getattr(record, self.predicted_key) is None else None
        )

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
        rows = text_rows(
            model.tokenizer, records, min(self.section.length, model.config.max_length)
        )
        outputs = outputs_of(
            model.network, rows, model.tokenizer, device, batch_size
        ).astype(np.float64)
        shares = np.exp(outputs - outputs.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        for record, row, share in zip(records, outputs, shares, strict=True):
            if labels:
                chances = dict(zip(labels, share.tolist(), strict=True))
                yield {
                    "id": record.id,
                    "label": labels[int(share.argmax())],
                    "probabilities": chances,
                }
            else:
                yield {"id": record.id, "score": float(row[0])}

    def metrics(
        self,
        records: Sequence[ClassificationRecord],
        predictions: Sequence[ClassPrediction],
    ) -> Metrics:
        """Return accuracy, micro F1, Matthews' correlation and F1; or Pearson and Spearman correlations."""
        if self.section.regression:
            scores = [float(record.score or 0.0) for record in records]
            return score_metrics(
                scores, [float(one.score or 0.0) for one in predictions]
            )
        names = [str(record.label) for record in records]
        found = {
            name
            for one in predictions
            for name in (str(one.label), *(one.probabilities or ()))
        }
        check_positive(self.section.positive, sorted({*names, *found}))
        return class_metrics(
            names, [str(one.label) for one in predictions], self.section.positive
        )


def check_positive(positive: str | None, labels: Sequence[str]) -> None:
    """Raise `ConfigError` if the class for F1 is not one of `labels`."""
    if positive is not None and positive not in labels:
        raise ConfigError(f"positive {positive!r}: {one_of(positive, labels)}")


TASK = TextClassification
