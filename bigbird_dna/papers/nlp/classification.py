"""Classification of documents and sentence pairs from [CLS]: training, prediction, metrics (App. E.4).

Metrics follow the definitions of scikit-learn and SciPy, which GLUE uses.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from torch import Tensor
from torch.nn import functional as F

from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.settings import ClassificationSettings
from bigbird_dna.papers.nlp.config import ClassificationTaskConfig
from bigbird_dna.papers.nlp.data import generate_documents, write_splits
from bigbird_dna.papers.nlp.records import (
    ClassificationRecord,
    read_labeled,
    read_predictions,
    read_records,
)
from bigbird_dna.papers.nlp.trainer import begin_training, fit, open_trained

PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
)
"""Columns of pairs in public data sets, which may also be columns of single texts in others."""


class TextClassifier(Classifier):
    """`Classifier` for transformers' `Trainer`."""

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
        labels: Tensor,
    ) -> dict[str, Tensor]:
        """Return logits (B, T) of ids (B, L), and the loss: in nats, or the squared error of scores."""
        logits = super().forward(input_ids, attention_mask.sum(1), token_type_ids)
        logits = logits.float()
        if labels.is_floating_point():
            return {"loss": F.mse_loss(logits[:, 0], labels), "logits": logits}
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def public_record(row: Mapping[str, Any], regression: bool) -> dict[str, Any]:
    """Convert a row of IMDb, Yelp-5, Hyperpartisan, arXiv, Patents or GLUE, by its columns.

    The label is text, or, with `regression`, a number. Rows of hidden test sets have none.
    """
    record = {}
    for first, second in PAIRS:
        if first in row and second in row:
            record = {"text": row[first], "pair": row[second]}

    if not record:
        record = {"text": row.get("text", row.get("sentence"))}

    label = row.get("label", row.get("hyperpartisan"))
    if label is None or (type(label) is int and label < 0):
        return record  # test rows of GLUE have the label -1

    if regression:
        return {**record, "score": float(label)}

    return {**record, "label": str(label).lower()}


def prepare(section: ClassificationTaskConfig, directory: Path) -> None:
    """Write the records of the three splits."""
    write_splits(
        section.data,
        directory,
        ClassificationRecord,
        lambda row: public_record(row, section.regression),
        generate_documents,
    )


def encode(tokenizer: Any, records: Sequence[ClassificationRecord], length: int) -> Any:
    """Return padded inputs of at most `length` tokens; of a pair, the longer text is truncated first."""
    rows = [
        tokenizer(
            record.text,
            record.pair,
            truncation="longest_first",
            max_length=length,
            return_token_type_ids=True,
        )
        for record in records
    ]
    return tokenizer.pad(rows, return_tensors="pt")


def train(section: ClassificationTaskConfig, home: Path, **options: Any) -> None:
    """Train a classifier and write a model directory; `options` are those of `fit`."""
    train, valid, start, tokenizer = begin_training(section, home, ClassificationRecord)

    labels: list[str] = []
    if not section.regression:
        labels = sorted({str(record.label) for record in train})
        valid = [record for record in valid if record.label in labels]

    def collate(examples: Sequence[Any]) -> dict[str, Tensor]:
        records = [record for record, _ in examples]
        targets = [record.score for record in records]
        if labels:
            targets = [labels.index(record.label) for record in records]

        inputs = encode(tokenizer, records, section.length)
        return {**inputs, "labels": torch.tensor(targets)}

    settings = ClassificationSettings(
        outputs=len(labels) or 1, labels=tuple(labels), pooling="cls", head="linear"
    )
    network = TextClassifier(start.config, settings.outputs, "cls", "linear")
    fit(network, section, home, start, settings, train, valid, collate, **options)


def predict(
    section: ClassificationTaskConfig,
    directory: Path,
    path: Path,
    device: torch.device,
    batch_size: int,
) -> Iterator[dict[str, Any]]:
    """Predict the classes of records.

    Parameters
    ----------
    section
        The task.
    directory
        Its model. `ModelError` if it is of another task.
    path
        Records. `DataError` names a line that is none.
    device
        Where to compute.
    batch_size
        Records that are computed together.

    Yields
    ------
    For each record its `id`, and its `label` with the `probabilities` of all labels, or its `score`.
    """
    model, network, tokenizer = open_trained(directory, ClassificationSettings, device)
    settings: Any = model.settings
    length = min(section.length, model.config.max_length)
    records = [*read_records(path, ClassificationRecord)]

    for first in range(0, len(records), batch_size):
        batch = records[first : first + batch_size]
        inputs = encode(tokenizer, batch, length)
        with torch.inference_mode():
            logits = network(
                inputs["input_ids"].to(device),
                inputs["attention_mask"].sum(1),
                inputs["token_type_ids"].to(device),
            ).double()

        for record, scores in zip(batch, logits, strict=True):
            if not settings.labels:
                yield {"id": record.id, "score": float(scores[0])}
                continue

            probs = scores.softmax(0).tolist()
            yield {
                "id": record.id,
                "label": settings.labels[int(scores.argmax())],
                "probabilities": dict(zip(settings.labels, probs, strict=True)),
            }


def evaluate(
    section: ClassificationTaskConfig, path: Path, predictions: Path
) -> dict[str, Any]:
    """Evaluate predictions of labeled records.

    `path` has the records, `predictions` the predictions of all of them. `DataError` names a file and what it
    lacks.

    Returns
    -------
    Accuracy, micro-averaged F1, Matthews' correlation, and for two classes F1 of the last one by name, as for
    GLUE's "0" and "1"; of scores, Pearson's and Spearman's correlations, None if a side is constant.
    """
    records = read_labeled(path, ClassificationRecord, section)
    key = "score" if section.regression else "label"
    lines = read_predictions(predictions, key, records)
    true = [getattr(record, key) for record in records]
    predicted = [line[key] for line in lines]

    metrics: dict[str, Any] = {"records": len(records)}
    if section.regression:
        columns = pd.DataFrame({"true": true, "predicted": predicted}, dtype=float)
        for name in ("pearson", "spearman"):
            value = float(columns.corr(name).to_numpy()[0, 1])
            metrics[name] = None if np.isnan(value) else value

        return metrics

    metrics["accuracy"] = metrics["micro_f1"] = float(accuracy_score(true, predicted))
    classes = sorted({*true, *predicted})
    metrics["matthews"] = 0.0
    if len(classes) > 1:
        metrics["matthews"] = float(matthews_corrcoef(true, predicted))

    if len(classes) == 2:
        f1 = f1_score(true, predicted, pos_label=classes[1], zero_division=0)
        metrics["f1"] = float(f1)

    return metrics
