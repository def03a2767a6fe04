"""Classification of text: training, prediction and figures (App. E.4)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.errors import ConfigError, DataError, ModelError
from bigbird_dna.model.directory import load
from bigbird_dna.model.inference import choose_device
from bigbird_dna.model.settings import ClassificationSettings
from bigbird_dna.nlp.classification.generated import generate_documents
from bigbird_dna.nlp.classification.metrics import Figures, class_figures, score_figures
from bigbird_dna.nlp.classification.objective import ClassificationObjective, outputs_of, text_rows
from bigbird_dna.nlp.classification.sections import ClassificationTask
from bigbird_dna.nlp.drawing import some_of
from bigbird_dna.nlp.predictions import read_predictions
from bigbird_dna.nlp.records import ClassificationRecord, Kind, Record, read_records, write_objects
from bigbird_dna.nlp.sections import GeneratedConfig
from bigbird_dna.nlp.starting import make_text_start
from bigbird_dna.nlp.vocabulary import texts_of
from bigbird_dna.tasks.run import Run
from bigbird_dna.training.distributed import World

# Columns of the public data sets: of pairs first, as one of them may be a single text's elsewhere.
_PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
)
_TEXTS = ("text", "sentence")
_LABELS = ("label", "hyperpartisan")


class Prediction(Record):
    """A line of a file of predictions: a class, with the probability of each, or a score."""

    label: str | None = None
    score: float | None = None
    probabilities: dict[str, float] | None = None


class _Classification:
    kind: Kind = "classification"

    def record(self, settings: ClassificationTask, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """A row of IMDb, Yelp-5, Hyperpartisan, arXiv, Patents or GLUE, by its columns."""
        found: dict[str, Any] = {}
        for first, second in _PAIRS:
            if first in row and second in row:
                found = {"text": row[first], "pair": row[second]}
                break
        else:
            name = next((name for name in _TEXTS if name in row), None)
            if name is None:
                raise DataError(f"the data set has none of the columns {', '.join(_TEXTS)}")
            found = {"text": row[name]}
        label = next((row[name] for name in _LABELS if name in row), None)
        if settings.regression:
            return found if label is None else {**found, "score": float(label)}
        # GLUE's test rows have the label -1.
        if label is None or (type(label) is int and label < 0):
            return found
        return {**found, "label": str(label).lower() if isinstance(label, bool) else str(label)}

    def generate(
        self, settings: ClassificationTask, generated: GeneratedConfig, split: str
    ) -> Iterator[dict[str, Any]]:
        """Documents whose class follows from two facts that are far apart."""
        if settings.regression:
            raise ConfigError("regression: generated documents have classes, no scores")
        return generate_documents(generated, split)

    def train(
        self,
        settings: ClassificationTask,
        train: Path,
        valid: Path,
        output: Path,
        checkpoints: Path,
        world: World,
    ) -> dict[str, Any]:
        """Train, or go on training, and publish a classifier; see `Task.train`."""
        check_directory(output, [train, valid, checkpoints])
        learnt, watched = (read_labelled(path, settings) for path in (train, valid))
        labels = () if settings.regression else tuple(sorted({str(record.label) for record in learnt}))
        if len(labels) == 1:
            raise DataError(f"{train}: all records are of the class {labels[0]!r}")
        if labels:
            _check_positive(settings, labels)
        start = make_text_start(settings.start, settings.encoder, lambda: texts_of(train, self.kind))
        if settings.length > start.config.positions:
            raise ConfigError(f"length {settings.length} is above encoder.positions {start.config.positions}")
        config = settings.training.for_records(len(learnt))
        task = ClassificationSettings(
            outputs=len(labels) or 1, labels=labels, pooling="cls", head=settings.head
        )
        data = {name: checksum(path) for name, path in (("train", train), ("valid", valid))}
        identity = {"data": data, "settings": task.as_json(), "length": settings.length, **start.identity()}
        run = Run.begin(start.config, start.tokenizer, task, config, identity, checkpoints, world)
        start.initialise(run.model.network)
        objective = ClassificationObjective(
            start.tokenizer,
            learnt,
            some_of(watched, config.evaluation_records),
            labels,
            settings.positive,
            settings.length,
            config,
            world,
        )
        progress = run.train(objective, f"{len(learnt):,} records of {len(labels) or 'no'} classes")
        with torch.inference_mode():
            figures = objective.figures(run.model.network)
        world.leave()
        if not world.is_first:
            return dict(figures)
        metrics = {**figures, "split": "valid", "steps": progress.step, "tokens_seen": progress.tokens}
        provenance = {
            "configuration": settings.model_dump(mode="json"),
            "data": data,
            "length": settings.length,
            **start.identity(),
        }
        run.publish(output, provenance, metrics)
        return metrics

    def predict(
        self,
        settings: ClassificationTask,
        model: Path,
        records: Path,
        output: Path,
        device: str,
        batch_size: int,
    ) -> None:
        """Write each record's class with the probability of every class, or its score."""
        loaded = load(model)
        task = loaded.settings
        if not isinstance(task, ClassificationSettings):
            raise ModelError(f"{model}: a classification model is needed, this is a {loaded.task} model")
        if loaded.tokenizer.is_dna:
            raise ModelError(f"{model}: its tokenizer is one of DNA, not of ordinary text")
        given = [*read_records(records, ClassificationRecord)]
        length = min(settings.length, loaded.config.positions)
        rows = text_rows(loaded.tokenizer, given, length)
        place = choose_device(device)
        network = loaded.network.to(place)
        outputs = outputs_of(network, rows, loaded.tokenizer, place, batch_size).astype(np.float64)
        write_objects(output, _said(given, outputs, task))
        log(f"{output}: {len(given):,} records")

    def evaluate(self, settings: ClassificationTask, records: Path, predictions: Path) -> dict[str, Any]:
        """Accuracy, micro F1, Matthews' correlation and F1; or Pearson's and Spearman's correlations."""
        true = {record.id: record for record in read_labelled(records, settings)}
        said = read_predictions(predictions, Prediction, "score" if settings.regression else "label", true)
        figures: Figures
        if settings.regression:
            scores = [float(one.score or 0.0) for one in true.values()]
            figures = score_figures(scores, [float(one.score or 0.0) for one in said.values()])
        else:
            names = [str(one.label) for one in true.values()]
            found = {name for one in said.values() for name in (str(one.label), *(one.probabilities or ()))}
            _check_positive(settings, sorted({*names, *found}))
            figures = class_figures(names, [str(one.label) for one in said.values()], settings.positive)
        return {**figures, "records": len(true)}


def _check_positive(settings: ClassificationTask, labels: Sequence[str]) -> None:
    if settings.positive is not None and settings.positive not in labels:
        raise ConfigError(f"positive {settings.positive!r} is not one of {', '.join(labels)}")


def read_labelled(path: Path, settings: ClassificationTask) -> list[ClassificationRecord]:
    """Records with their classes, or scores; `DataError` names the first that has none, or stands twice."""
    key = "score" if settings.regression else "label"
    found: dict[str, ClassificationRecord] = {}
    for record in read_records(path, ClassificationRecord):
        if getattr(record, key) is None:
            raise DataError(f"{path}: record {record.id!r} has no {key}")
        if record.id in found:
            raise DataError(f"{path}: record {record.id!r} stands twice")
        found[record.id] = record
    return [*found.values()]


def _said(
    given: list[ClassificationRecord],
    outputs: np.ndarray[Any, np.dtype[np.float64]],
    task: ClassificationSettings,
) -> Iterator[dict[str, Any]]:
    """Predictions as lines of a file have them."""
    if not task.labels:
        yield from (
            {"id": record.id, "score": float(row[0])} for record, row in zip(given, outputs, strict=True)
        )
        return
    shares = np.exp(outputs - outputs.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    for record, row in zip(given, shares, strict=True):
        chances = dict(zip(task.labels, row.tolist(), strict=True))
        yield {"id": record.id, "label": task.labels[int(row.argmax())], "probabilities": chances}


TASK = _Classification()
