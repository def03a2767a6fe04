"""The models of a study, as their directories say what they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bigbird_dna.config import STUDY_STARTS, StudyStart
from bigbird_dna.errors import DataError
from bigbird_dna.reporting.tables import number, read_object, whole_number
from bigbird_dna.reporting.training_log import Curve, TrainingCurves, read_training_log

PRETRAINED, RANDOM, LONGER = STUDY_STARTS
# Of `config.json`, and the section of the configuration that trained such a model.
_SECTIONS = {"promoter": "promoters", "chromatin": "chromatin"}
# What models of one study may differ in; all other keys must agree.
_FREE = ("model.initial", "training.examples", "training.seed", "training.steps")
_WATCHING = ("training.evaluate_every", "training.checkpoint_every")
_COMPUTING = ("training.attention_fallback", "training.compile_layers")


@dataclass(frozen=True)
class StudyModel:
    """A fine-tuned model of a study."""

    path: Path
    task: str  # promoters, chromatin
    start: StudyStart
    share: float  # of the training examples
    seed: int
    steps: int
    examples: int  # training promoters, or bins
    seconds: float  # of its training's steps
    valid: Curve  # AUROC on validation data over steps
    pretrained: str  # checksum of the weights it started from; "": random ones
    settings: Mapping[str, Any]  # other keys of its configuration, by dotted name


def read_models(paths: Sequence[Path]) -> dict[str, list[StudyModel]]:
    """The models of a study by task, promoters first; each by share, start and seed.

    A model of random weights that was trained for more steps than the pretrained ones is of the start
    `longer`.

    Raises
    ------
    DataError
        A directory is not a fine-tuned model, two are of the same start, share and seed, or models differ in
        more than these and can't be compared.
    """
    found = [read_model(path) for path in paths]
    tasks: dict[str, list[StudyModel]] = {}
    for task in _SECTIONS.values():
        models = [model for model in found if model.task == task]
        if models:
            _check_alike(models)
            tasks[task] = _sorted(_with_starts(models))
    return tasks


def training_seconds(curves: TrainingCurves, source: Path) -> float:
    """What the steps of a training took, by its log; measurements in between don't count."""
    if curves.loss.seconds is None or not len(curves.loss.seconds):
        raise DataError(f"{source}: doesn't say how long the training took")
    return float(curves.loss.seconds[-1])


def read_model(path: Path) -> StudyModel:
    """One fine-tuned model; `DataError` where the directory is another one or damaged."""
    path = Path(path)
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
    return StudyModel(
        path=path,
        task=section,
        start=RANDOM if started is None else PRETRAINED,
        share=number(training, "examples", where),
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


def _check_alike(models: Sequence[StudyModel]) -> None:
    """`DataError` where models differ in more than start, share, seed and steps."""
    first = models[0]
    for model in models[1:]:
        for key in sorted({*first.settings, *model.settings}):
            ours, theirs = first.settings.get(key), model.settings.get(key)
            if ours != theirs:
                raise DataError(
                    f"{model.path}: was trained with {key} {theirs!r:.60}, {first.path} with {ours!r:.60}: "
                    "they can't be compared"
                )
    started = {model.pretrained: model for model in models if model.pretrained}
    if len(started) > 1:
        one, other = list(started.values())[:2]
        raise DataError(f"{other.path}: started from other pretrained weights than {one.path}")


def _with_starts(models: Sequence[StudyModel]) -> list[StudyModel]:
    pretrained = {model.steps for model in models if model.start == PRETRAINED}
    usual = min(pretrained or {model.steps for model in models})
    found: dict[tuple[str, float, int], StudyModel] = {}
    longest: StudyModel | None = None
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
        key = (model.start, model.share, model.seed)
        if key in found:
            raise DataError(
                f"{model.path}: has the start ({model.start}), share ({model.share:g}) and seed "
                f"({model.seed}) of {found[key].path}"
            )
        found[key] = model
    return list(found.values())


def _sorted(models: Sequence[StudyModel]) -> list[StudyModel]:
    return sorted(models, key=lambda one: (one.share, STUDY_STARTS.index(one.start), one.seed))
