"""Commands of the tasks on text: `bigbird-dna nlp …`, by the extra `nlp`."""

from pathlib import Path
from typing import Annotated

from bigbird_dna.cli.options import BatchSize, Device, Set, Threads, TimeLimit, argument, option, output

TextConfig = Annotated[
    Path, argument("Configuration of tasks on text (YAML), as workflow/config/nlp.yaml.", "CONFIG")
]
TaskName = Annotated[str, option("NAME", "Name of a task of CONFIG, as imdb.", "", "--task")]
Records = Annotated[
    Path | None, option("FILE", "Records (JSON lines).", "the task's test records", "--records")
]
TrainedModel = Annotated[Path | None, output("MODEL_DIR", "Model directory to write.", "RESULTS/NAME/model")]
TextCheckpoints = Annotated[
    Path | None, option("DIR", "Of the running training.", "RESULTS/NAME/checkpoints", "--checkpoint-dir")
]
TextModel = Annotated[Path | None, option("MODEL_DIR", "The task's model.", "RESULTS/NAME/model", "--model")]


def prepare(
    config: TextConfig,
    task: TaskName,
    overrides: Set = None,
    output: Annotated[Path | None, output("DIR", "Directory for the records.", "RESULTS/NAME/data")] = None,
) -> None:
    """Write a task's records: train.jsonl, valid.jsonl and test.jsonl.

    They come from files, from a public data set, which needs a network, or are made.
    """
    from bigbird_dna.papers.nlp.config import read_task
    from bigbird_dna.papers.nlp.task import find_task

    section, paths = read_task(config, overrides or (), task)
    find_task(section).prepare(output or paths.data)


def pretrain(
    config: TextConfig,
    task: TaskName,
    overrides: Set = None,
    output: TrainedModel = None,
    checkpoints: TextCheckpoints = None,
    time_limit: TimeLimit = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Pretrain on the documents of a task of kind pretraining; resumes and stops as pretrain does."""
    _train(True, config, task, overrides, output, checkpoints, time_limit, device, threads)


def finetune(
    config: TextConfig,
    task: TaskName,
    overrides: Set = None,
    output: TrainedModel = None,
    checkpoints: TextCheckpoints = None,
    time_limit: TimeLimit = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Fine-tune for a task of kind classification, qa or summaries; resumes and stops as pretrain does."""
    _train(False, config, task, overrides, output, checkpoints, time_limit, device, threads)


def _train(
    pretraining: bool,
    config: Path,
    task: str,
    overrides: list[str] | None,
    output: Path | None,
    checkpoints: Path | None,
    time_limit: str | None,
    device: str,
    threads: int | None,
) -> None:
    """Train a task's model; `UsageError` if the task is one for the other command."""
    from bigbird_dna.errors import UsageError
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.nlp.config import read_task
    from bigbird_dna.papers.nlp.task import find_task
    from bigbird_dna.training.distributed import world
    from bigbird_dna.training.stopping import time_of_end
    from bigbird_dna.training.task import train

    ends = time_of_end(time_limit)
    section, paths = read_task(config, overrides or (), task)
    if (section.kind == "pretraining") != pretraining:
        other = "finetune" if pretraining else "pretrain"
        raise UsageError(f"task {task!r} is of kind {section.kind}: use `bigbird-dna nlp {other}`")
    training = find_task(section).training(paths.split("train"), paths.split("valid"))
    with cpu_threads(threads), world(device, ends) as here:
        train(training, output or paths.model, checkpoints or paths.checkpoints, here)


def predict(
    config: TextConfig,
    task: TaskName,
    overrides: Set = None,
    model: TextModel = None,
    records: Records = None,
    output: Annotated[
        Path | None, output("FILE", "Predictions to write (JSON lines).", "RESULTS/NAME/predictions.jsonl")
    ] = None,
    batch_size: BatchSize = 8,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Predict records with a task's model."""
    from bigbird_dna.disk.outputs import check_output
    from bigbird_dna.errors import check_at_least_one
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.nlp.config import read_task
    from bigbird_dna.papers.nlp.task import find_task

    check_at_least_one({"batch-size": batch_size})
    section, paths = read_task(config, overrides or (), task)
    model, records = model or paths.model, records or paths.split("test")
    output = output or paths.predictions
    check_output(output, [model, records])
    with cpu_threads(threads):
        find_task(section).predict(model, records, output, device, batch_size)


def evaluate(
    config: TextConfig,
    task: TaskName,
    overrides: Set = None,
    model: TextModel = None,
    records: Records = None,
    predictions: Annotated[
        Path | None,
        option("FILE", "Predictions of these records.", "RESULTS/NAME/predictions.jsonl", "--predictions"),
    ] = None,
    output: Annotated[
        Path | None, output("FILE", "Figures to write (JSON).", "RESULTS/NAME/evaluation.json")
    ] = None,
    threads: Threads = None,
) -> None:
    """Judge predictions by the task's official measures, or a pretrained model on held-out documents."""
    from bigbird_dna.console import log
    from bigbird_dna.disk.atomic import write_json
    from bigbird_dna.disk.outputs import check_output
    from bigbird_dna.errors import UsageError
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.nlp.config import read_task
    from bigbird_dna.papers.nlp.task import find_task

    section, paths = read_task(config, overrides or (), task)
    records, output = records or paths.split("test"), output or paths.evaluation
    evaluated = predictions or paths.predictions
    if section.kind == "pretraining":
        if predictions is not None:
            raise UsageError("--predictions: a task of kind pretraining is judged by its model")
        evaluated = model or paths.model
    check_output(output, [evaluated, records])
    with cpu_threads(threads):
        metrics = find_task(section).evaluate(records, evaluated)
    write_json(
        output, {"task": task, "kind": section.kind, "figures": metrics, "published": section.published}
    )
    shown = ", ".join(f"{key} {value:.4g}" for key, value in metrics.items() if isinstance(value, float))
    log(f"{output}: {shown}")


def report(
    evaluations: Annotated[list[Path], argument("What evaluate wrote, of one task each.", "EVALUATION...")],
    output: Annotated[Path, output("FILE", "Page to write (HTML).")],
) -> None:
    """Write one page of tasks: what was measured beside what was published."""
    from bigbird_dna.disk.outputs import check_output
    from bigbird_dna.papers.nlp.report import report_tasks

    check_output(output, evaluations)
    report_tasks(evaluations, output)
