"""Commands of the tasks on text: `bigbird-dna nlp …`, by the extra `nlp`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from bigbird_dna.cli.options import BatchSize, Device, Set, Threads, TimeLimit, argument, option, output, runs

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
    from bigbird_dna.papers.nlp.task import open_task

    opened = open_task(config, overrides, task)
    opened.prepare(output or opened.paths.data)


def _trainer(name: str, other: str, purpose: str) -> Callable[..., None]:
    """The command `name`, which trains a task's model; `UsageError` if the task is one for the `other`."""

    def command(
        config: TextConfig,
        task: TaskName,
        overrides: Set = None,
        output: TrainedModel = None,
        checkpoints: TextCheckpoints = None,
        time_limit: TimeLimit = None,
        device: Device = "auto",
        threads: Threads = None,
    ) -> None:
        from bigbird_dna.errors import UsageError
        from bigbird_dna.model.inference import cpu_threads
        from bigbird_dna.papers.nlp.task import open_task
        from bigbird_dna.training.distributed import time_of_end, world
        from bigbird_dna.training.task import train

        ends = time_of_end(time_limit)
        opened = open_task(config, overrides, task)
        if (opened.kind == "pretraining") != (name == "pretrain"):
            raise UsageError(f"task {task!r} is of kind {opened.kind}: use `bigbird-dna nlp {other}`")
        with cpu_threads(threads), world(device, ends) as here:
            train(opened, output or opened.paths.model, checkpoints or opened.paths.checkpoints, here)

    command.__name__ = name
    command.__doc__ = f"{purpose}; resumes and stops as pretrain does."
    return command


pretrain = _trainer("pretrain", "finetune", "Pretrain on the documents of a task of kind pretraining")
finetune = _trainer("finetune", "pretrain", "Fine-tune for a task of kind classification, qa or summaries")


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
    from bigbird_dna.papers.nlp.task import open_task

    check_at_least_one({"batch-size": batch_size})
    opened = open_task(config, overrides, task)
    model, records = model or opened.paths.model, records or opened.paths.split("test")
    output = output or opened.paths.predictions
    check_output(output, [model, records])
    with cpu_threads(threads):
        opened.predict(model, records, output, device, batch_size)


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
    from bigbird_dna.papers.nlp.task import open_task

    opened = open_task(config, overrides, task)
    records, output = records or opened.paths.split("test"), output or opened.paths.evaluation
    evaluated = predictions or opened.paths.predictions
    if opened.kind == "pretraining":
        if predictions is not None:
            raise UsageError("--predictions: a task of kind pretraining is judged by its model")
        evaluated = model or opened.paths.model
    check_output(output, [evaluated, records])
    with cpu_threads(threads):
        metrics = opened.evaluate(records, evaluated)
    published = opened.section.published
    write_json(output, {"task": task, "kind": opened.kind, "figures": metrics, "published": published})
    shown = ", ".join(f"{key} {value:.4g}" for key, value in metrics.items() if isinstance(value, float))
    log(f"{output}: {shown}")


@runs("papers.nlp.report.report_tasks", inputs=("evaluations",))
def report(
    evaluations: Annotated[list[Path], argument("What evaluate wrote, of one task each.", "EVALUATION...")],
    output: Annotated[Path, output("FILE", "Page to write (HTML).")],
) -> None:
    """Write one page of tasks: what was measured beside what was published."""
