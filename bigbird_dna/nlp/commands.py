"""What the commands of the tasks on text do, on the files that a configuration names."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bigbird_dna.checks import check_at_least_one
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.errors import UsageError
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.nlp.answers.sections import AnswersTask
from bigbird_dna.nlp.config import AnyTask, read_config
from bigbird_dna.nlp.extra import check_extra
from bigbird_dna.nlp.loading import Read, write_splits
from bigbird_dna.nlp.sections import TextPaths
from bigbird_dna.nlp.task import find_task
from bigbird_dna.training.distributed import world
from bigbird_dna.training.stopping import time_of_end


def prepare_task(config: Path, overrides: Sequence[str], name: str, output: Path | None) -> None:
    """Write a task's records, in three splits."""
    settings, paths = _task(config, overrides, name)
    task = find_task(settings.kind)
    read: Read | None = None
    if isinstance(settings, AnswersTask) and settings.public:
        from bigbird_dna.nlp.answers.public import read_public

        read = partial(read_public, settings.form)
    write_splits(
        settings.data,
        task.kind,
        lambda row: task.record(settings, row),
        lambda generated, split: task.generate(settings, generated, split),
        output or paths.data,
        read,
    )


def train_task(
    config: Path,
    overrides: Sequence[str],
    name: str,
    output: Path | None,
    checkpoints: Path | None,
    *,
    pretraining: bool,
    limit: str | None,
    device: str,
    threads: int | None,
) -> None:
    """Train a task's model; `UsageError` if the task is one for the other command."""
    ends = time_of_end(limit)
    settings, paths = _task(config, overrides, name)
    if (settings.kind == "pretraining") != pretraining:
        other = "finetune" if pretraining else "pretrain"
        raise UsageError(f"task {name!r} is of kind {settings.kind}: use `bigbird-dna nlp {other}`")
    with cpu_threads(threads), world(device, ends) as here:
        find_task(settings.kind).train(
            settings,
            paths.split("train"),
            paths.split("valid"),
            output or paths.model,
            checkpoints or paths.checkpoints,
            here,
        )


def predict_task(
    config: Path,
    overrides: Sequence[str],
    name: str,
    model: Path | None,
    records: Path | None,
    output: Path | None,
    batch_size: int,
    device: str,
    threads: int | None,
) -> None:
    """Write what a task's model predicts for records."""
    check_at_least_one({"batch-size": batch_size})
    settings, paths = _task(config, overrides, name)
    model, records = model or paths.model, records or paths.split("test")
    output = output or paths.predictions
    check_output(output, [model, records])
    with cpu_threads(threads):
        find_task(settings.kind).predict(settings, model, records, output, device, batch_size)


def evaluate_task(
    config: Path,
    overrides: Sequence[str],
    name: str,
    model: Path | None,
    records: Path | None,
    predictions: Path | None,
    output: Path | None,
    threads: int | None,
) -> None:
    """Write a task's figures: of predictions, or for masked tokens of the model itself."""
    settings, paths = _task(config, overrides, name)
    records, output = records or paths.split("test"), output or paths.evaluation
    judged = predictions or paths.predictions
    if settings.kind == "pretraining":
        if predictions is not None:
            raise UsageError("--predictions: a task of kind pretraining is judged by its model")
        judged = model or paths.model
    check_output(output, [judged, records])
    with cpu_threads(threads):
        figures = find_task(settings.kind).evaluate(settings, records, judged)
    write_json(
        output, {"task": name, "kind": settings.kind, "figures": figures, "published": settings.published}
    )
    shown = ", ".join(f"{key} {value:.4g}" for key, value in figures.items() if isinstance(value, float))
    log(f"{output}: {shown}")


def _task(config: Path, overrides: Sequence[str], name: str) -> tuple[AnyTask, TextPaths]:
    check_extra()
    whole = read_config(config, overrides)
    return whole.task(name), whole.paths(name)
