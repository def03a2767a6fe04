"""Classification of documents and sentence pairs from [CLS]: training, prediction, metrics (App. E.4).

Metrics follow the definitions of scikit-learn and SciPy, which GLUE uses.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from torch import Tensor
from torch.nn import functional as F

from bigbird_dna.errors import DataError, ModelError
from bigbird_dna.model.batching import run_rows
from bigbird_dna.model.directory import load
from bigbird_dna.model.heads import Classifier
from bigbird_dna.model.settings import ClassificationSettings
from bigbird_dna.papers.nlp.config import ClassificationTaskConfig, TextPaths
from bigbird_dna.papers.nlp.data import column, generate_documents, write_splits
from bigbird_dna.papers.nlp.records import (
    ClassificationRecord,
    read_labeled,
    read_predictions,
    read_records,
)
from bigbird_dna.papers.nlp.start import check_positions, fast_tokenizer, make_start
from bigbird_dna.papers.nlp.trainer import fit

# Columns of the public data sets; pairs come first, because a column of a pair may be a text elsewhere.
_PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
)


class TextClassifier(Classifier):
    """`Classifier` for transformers' `Trainer`."""

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
        labels: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return logits (B, T) of ids (B, L), and the loss: in nats, or the squared error of scores."""
        logits = super().forward(input_ids, attention_mask.sum(1), token_type_ids)
        logits = logits.float()
        if labels is None:
            return {"logits": logits}
        if labels.is_floating_point():
            return {"loss": F.mse_loss(logits[:, 0], labels), "logits": logits}
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def public_record(row: Mapping[str, Any], regression: bool) -> dict[str, Any]:
    """Convert a row of IMDb, Yelp-5, Hyperpartisan, arXiv, Patents or GLUE, by its columns."""
    for first, second in _PAIRS:
        if first in row and second in row:
            record = {"text": row[first], "pair": row[second]}
            break
    else:
        record = {"text": column(row, "text", "sentence")}
    label = row.get("label", row.get("hyperpartisan"))
    if label is None or (type(label) is int and label < 0):
        return record  # test rows of GLUE have the label -1
    if regression:
        return {**record, "score": float(label)}
    return {
        **record,
        "label": str(label).lower() if type(label) is bool else str(label),
    }


def prepare(section: ClassificationTaskConfig, directory: Path) -> None:
    """Write the records of the three splits."""
    write_splits(
        section.data,
        directory,
        ClassificationRecord,
        lambda row: public_record(row, section.regression),
        generate_documents,
    )


def read_complete(
    section: ClassificationTaskConfig, path: Path
) -> list[ClassificationRecord]:
    """Return the records of a file; `DataError` if one has no label, or no score in a regression."""
    key = "score" if section.regression else "label"
    return read_labeled(
        path,
        ClassificationRecord,
        lambda record: key if getattr(record, key) is None else None,
    )


def encode(
    tokenizer: Any, records: Sequence[ClassificationRecord], length: int
) -> list[Any]:
    """Return inputs of at most `length` tokens; of a pair, the longer text is truncated first."""
    return [
        tokenizer(
            record.text,
            record.pair,
            truncation="longest_first",
            max_length=length,
            return_token_type_ids=True,
        )
        for record in records
    ]


def train(
    section: ClassificationTaskConfig, paths: TextPaths, output: Path, **options: Any
) -> None:
    """Train a classifier and write a model directory; `options` are those of `fit`."""
    files = [paths.split("train"), paths.split("valid")]
    train, valid = (read_complete(section, path) for path in files)
    labels: list[str] = []
    if not section.regression:
        labels = sorted({str(record.label) for record in train})
        if len(labels) == 1:
            raise DataError(f"{files[0]}: all records are of the class {labels[0]!r}")
        valid = [record for record in valid if record.label in labels]
    texts = (text for record in train for text in (record.text, record.pair) if text)
    start = make_start(section, texts)
    check_positions({"length": section.length}, start.config.max_length)
    tokenizer = fast_tokenizer(start.tokenizer)

    def collate(records: Sequence[ClassificationRecord]) -> dict[str, Tensor]:
        if labels:
            targets = torch.tensor([labels.index(str(r.label)) for r in records])
        else:
            targets = torch.tensor([r.score for r in records])
        inputs = encode(tokenizer, records, section.length)
        return {**tokenizer.pad(inputs, return_tensors="pt"), "labels": targets}

    settings = ClassificationSettings(
        outputs=len(labels) or 1, labels=tuple(labels), pooling="cls", head="linear"
    )
    network = TextClassifier(start.config, settings.outputs, "cls", "linear")
    start.initialize(network)
    fit(
        network,
        section,
        start,
        settings,
        files,
        train,
        valid,
        collate,
        output,
        **options,
    )


def predict(
    section: ClassificationTaskConfig,
    directory: Path,
    path: Path,
    device: torch.device,
    batch_size: int,
) -> Iterator[dict[str, Any]]:
    """Yield each record's class with the probabilities of all classes, or its score."""
    model = load(directory)
    settings = model.settings
    if not isinstance(settings, ClassificationSettings):
        raise ModelError(f"{directory}: needs a classification model")
    tokenizer = fast_tokenizer(model.tokenizer)
    network = model.network.to(device)
    length = min(section.length, model.config.max_length)
    records = [*read_records(path, ClassificationRecord)]
    inputs = encode(tokenizer, records, length)

    def run(ids: Tensor, lengths: Tensor, chosen: NDArray[np.intp]) -> Tensor:
        types = torch.zeros_like(ids)
        for row, number in enumerate(chosen):
            segments = inputs[number]["token_type_ids"]
            types[row, : len(segments)] = torch.tensor(segments)
        return network(ids, lengths, types)  # type: ignore[no-any-return]

    logits = run_rows(
        network,
        [np.array(row["input_ids"]) for row in inputs],
        run,
        pad_id=tokenizer.pad_token_id,
        batch_size=batch_size,
        device=device,
        empty=(1,),
    )
    for record, scores in zip(records, logits.astype(np.float64), strict=True):
        if settings.labels:
            probs = softmax(scores)
            yield {
                "id": record.id,
                "label": settings.labels[int(probs.argmax())],
                "probabilities": dict(
                    zip(settings.labels, probs.tolist(), strict=True)
                ),
            }
        else:
            yield {"id": record.id, "score": float(scores[0])}


def evaluate(
    section: ClassificationTaskConfig, paths: TextPaths, path: Path, predictions: Path
) -> dict[str, Any]:
    """Return accuracy, micro-averaged F1, Matthews' correlation, and for two classes F1 of the last one by name,
    as for GLUE's "0" and "1"; of scores, Pearson's and Spearman's correlations, None if a side is
    constant."""
    records = read_complete(section, path)
    key = "score" if section.regression else "label"
    lines = read_predictions(predictions, key, records)
    true = [getattr(record, key) for record in records]
    predicted = [line[key] for line in lines]
    metrics: dict[str, Any] = {"records": len(records)}
    if section.regression:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # constant values: visible in the metric
            for name, correlate in (("pearson", pearsonr), ("spearman", spearmanr)):
                value = np.nan
                if len(records) > 1:
                    value = float(correlate(true, predicted).statistic)
                metrics[name] = None if np.isnan(value) else value
        return metrics
    classes = sorted({*true, *predicted})
    metrics["accuracy"] = float(accuracy_score(true, predicted))
    metrics["micro_f1"] = float(f1_score(true, predicted, average="micro"))
    metrics["matthews"] = 0.0
    if len(classes) > 1:
        metrics["matthews"] = float(matthews_corrcoef(true, predicted))
    if len(classes) == 2:
        f1 = f1_score(true, predicted, pos_label=classes[1], zero_division=0)
        metrics["f1"] = float(f1)
    return metrics
