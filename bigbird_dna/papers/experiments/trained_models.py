"""Trained models and comparators, as their directories say what they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigbird_dna.config import LONGER, PRETRAINED, RANDOM, STUDY_STARTS, StudyStart
from bigbird_dna.disk.tables import number, read_object, whole_number
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import Estimate, Floats
from bigbird_dna.papers.experiments.comparing import ModelComparison, by_arm, check_comparable
from bigbird_dna.reporting.training import LogCurve, TrainingCurves, read_training_log

PROBE = "probe"
PREDICTIONS = {"promoters": "predictions.parquet", "chromatin": "predictions.npy"}
"""Of test data, by task; those of a chromatin model lie beside its directory."""
FINE_TUNED, PROBED, FITTED = "fine-tuned", "probed", "fitted"

# Of `config.json`, and the section of the configuration that trained such a model.
_SECTIONS = {"promoter": "promoters", "chromatin": "chromatin"}
# What models of one study may differ in; all other keys must agree.
_FREE = ("model.initial", "training.train_fraction", "training.seed", "training.steps")
_WATCHING = ("training.evaluate_every", "training.checkpoint_every")
_COMPUTING = ("training.allow_slow_attention", "training.torch_compile")


@dataclass(frozen=True)
class FineTunedModel:
    """A fine-tuned model of a study."""

    path: Path
    task: str  # promoters, chromatin
    start: StudyStart
    share: float  # of the training examples
    seed: int
    steps: int
    examples: int  # training promoters, or bins
    seconds: float  # of its training's steps
    valid: LogCurve  # AUROC on validation data over steps
    pretrained: str  # checksum of the weights it started from; "": random ones
    settings: Mapping[str, Any]  # other keys of its configuration, by dotted name

    @property
    def arm(self) -> tuple[float, StudyStart]:
        """What models have in common that differ by their seed."""
        return self.share, self.start


@dataclass(frozen=True)
class StudyArm:
    """The models of one start and share, one a seed, and the gain of the pretrained ones over these."""

    task: str
    share: float
    start: StudyStart
    models: Sequence[FineTunedModel]
    compared: ModelComparison

    @property
    def aurocs(self) -> Floats:
        return np.array(list(self.compared.by_seed.values()))

    @property
    def auroc(self) -> float:
        return float(self.aurocs.mean())

    @property
    def gain(self) -> Estimate:
        """Of the pretrained models, on the seeds that both have."""
        return self.compared.difference

    @property
    def seconds(self) -> float:
        return float(np.mean([model.seconds for model in self.models]))

    @property
    def examples(self) -> int:
        return round(float(np.mean([model.examples for model in self.models])))


def mean_curve(curves: Sequence[LogCurve]) -> LogCurve:
    """The mean of curves at the steps that all have."""
    steps = sorted(set.intersection(*({*curve.steps.tolist()} for curve in curves)))
    values = [curve.values[np.isin(curve.steps, steps)] for curve in curves]
    return LogCurve(np.array(steps, np.int64), np.mean(values, axis=0))


def read_models(paths: Sequence[Path]) -> dict[str, list[FineTunedModel]]:
    """The models of a study by task, promoters first; each by share, start and seed. A model of random
    weights with more steps than the pretrained ones is of the start `longer`. `DataError` where models differ
    in more than these."""
    found = [read_model(path) for path in paths]
    tasks: dict[str, list[FineTunedModel]] = {}
    for task in _SECTIONS.values():
        models = [model for model in found if model.task == task]
        if models:
            check_comparable([(model.path, model.settings) for model in models])
            started = {model.pretrained: model for model in models if model.pretrained}
            for one, other in pairwise(started.values()):
                raise DataError(f"{other.path}: started from other pretrained weights than {one.path}")
            tasks[task] = sorted(
                _with_starts(models), key=lambda one: (one.share, STUDY_STARTS.index(one.start), one.seed)
            )
    return tasks


def training_seconds(curves: TrainingCurves, source: Path) -> float:
    """What the steps of a training took, by its log; measurements in between don't count."""
    if curves.loss.seconds is None or not len(curves.loss.seconds):
        raise DataError(f"{source}: doesn't say how long the training took")
    return float(curves.loss.seconds[-1])


def pretraining_seconds(model: Path) -> float:
    """What the steps of a pretraining took, by the log in its directory."""
    path = model / "training.jsonl"
    return training_seconds(read_training_log(path), path)


def read_model(path: Path) -> FineTunedModel:
    """One fine-tuned model; `DataError` where the directory is another one or damaged."""
    if not path.is_dir():
        raise DataError(f"{path}: no such model directory")
    description = read_object(path / "config.json")
    task = description.get("task")
    if task not in _SECTIONS:
        raise DataError(f"{path}: not a fine-tuned model of promoters or chromatin, but of task {task!r:.60}")
    provenance, metrics = read_object(path / "provenance.json"), read_object(path / "metrics.json")
    section = _SECTIONS[task]
    where = path / "provenance.json"
    own = _object(_object(provenance, "configuration", where), section, where)
    training = _object(own, "training", where)
    counts = _object(metrics, "training", path / "metrics.json")
    steps, examples = (whole_number(counts, key, path / "metrics.json") for key in ("steps", "examples"))
    curves = read_training_log(path / "training.jsonl")
    if "auroc" not in curves.evaluation:
        raise DataError(f"{path / 'training.jsonl'}: no AUROC on validation data in it")
    settings = dict(_leaves(provenance["configuration"]))
    for key in (*_FREE, *_WATCHING, *_COMPUTING):
        settings.pop(f"{section}.{key}", None)
    if section == "chromatin":  # the window may be another one than the configuration's
        shape = _object(description, "settings", path / "config.json")
        settings["chromatin.data.window"] = whole_number(shape, "window", path / "config.json")
    started = provenance.get("pretrained_sha256")
    return FineTunedModel(
        path=path,
        task=section,
        start=RANDOM if started is None else PRETRAINED,
        share=number(training, "train_fraction", where),
        seed=whole_number(training, "seed", where),
        steps=steps,
        examples=examples,
        seconds=training_seconds(curves, path / "training.jsonl"),
        valid=curves.evaluation["auroc"],
        pretrained="" if started is None else str(started),
        settings=settings,
    )


def _object(values: Mapping[str, Any], key: str, where: Path) -> Mapping[str, Any]:
    value = values.get(key)
    if not isinstance(value, Mapping):
        raise DataError(f"{where}: {key!r} is not an object but {value!r:.60}")
    return value


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _with_starts(models: Sequence[FineTunedModel]) -> list[FineTunedModel]:
    pretrained = {model.steps for model in models if model.start == PRETRAINED}
    usual = min(pretrained or {model.steps for model in models})
    found: list[FineTunedModel] = []
    longest: FineTunedModel | None = None
    for model in models:
        if model.steps != usual:
            if model.start == PRETRAINED or model.steps < usual:
                raise DataError(
                    f"{model.path}: was trained for {model.steps:,} steps, others for {usual:,}: they can't "
                    "be compared"
                )
            if longest is not None and longest.steps != model.steps:
                raise DataError(
                    f"{model.path}: was trained for {model.steps:,} steps, {longest.path} for "
                    f"{longest.steps:,}: they can't be compared"
                )
            model = longest = replace(model, start=LONGER)
        found.append(model)
    by_arm(((model.arm, model.seed) for model in found), [model.path for model in found])
    return found


class ArmKey(NamedTuple):
    """A row of a table: a predictor, whatever its seed."""

    name: str  # of the comparator; of a language model its attention
    weights: str  # of a language model: pretrained, random; "" of a comparator: always its own
    training: str  # fine-tuned, probed, fitted
    window: int | None  # bp around a bin that are looked at; None: of promoters, whose windows say it


@dataclass(frozen=True)
class TablePredictor:
    """A predictor of one seed: a fine-tuned language model, or a fitted comparator."""

    path: Path
    task: str  # promoters, chromatin
    arm: ArmKey
    seed: int

    @property
    def predictions(self) -> Path:
        """Those of the test data; of a chromatin model they lie beside its directory."""
        beside = self.task == "chromatin" and self.arm.training == FINE_TUNED
        return (self.path.parent if beside else self.path) / PREDICTIONS[self.task]


def read_predictors(paths: Sequence[Path], task: str) -> list[TablePredictor]:
    """The predictors of a table in the order of `paths`; `DataError` where a directory holds none of this
    task."""
    found = []
    for path in paths:
        description = path / "comparator.json"
        if description.is_file():
            predictor = _comparator(path, description)
        else:
            model = read_model(path)
            attention = str(model.settings.get("encoder.attention", "bigbird"))
            window = model.settings.get("chromatin.data.window") if model.task == "chromatin" else None
            arm = ArmKey(attention, model.start, FINE_TUNED, window)
            predictor = TablePredictor(path, model.task, arm, model.seed)
        found.append(predictor)
    for predictor in found:
        if predictor.task != task:
            raise DataError(f"{predictor.path}: is of {predictor.task}, the table is of {task}")
    return found


def _comparator(path: Path, description: Path) -> TablePredictor:
    content = read_object(description)
    settings, name, chosen = (content.get("settings"), content.get("comparator"), content.get("chosen", {}))
    if not isinstance(name, str) or not isinstance(settings, dict) or not isinstance(chosen, dict):
        raise DataError(f"{description}: is not a description of a comparator")
    promoters = (path / PREDICTIONS["promoters"]).is_file()
    task = "promoters" if promoters else "chromatin"
    window = None if promoters or "window" not in content else whole_number(content, "window", description)
    seed = whole_number(settings, "seed", description)
    if name != PROBE:
        return TablePredictor(path, task, ArmKey(name, "", FITTED, window), seed)
    for key in ("attention", "weights"):
        if not isinstance(chosen.get(key), str):
            raise DataError(f"{description}: is not a description of a probe: {key!r} is missing")
    attention, weights = chosen["attention"], chosen["weights"]
    return TablePredictor(path, task, ArmKey(attention, weights, PROBED, window), seed)
