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
    from bigbird_dna.nlp.commands import prepare_task

    prepare_task(config, overrides or (), task, output)


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
    from bigbird_dna.nlp.commands import train_task

    train_task(
        config,
        overrides or (),
        task,
        output,
        checkpoints,
        pretraining=True,
        limit=time_limit,
        device=device,
        threads=threads,
    )


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
    from bigbird_dna.nlp.commands import train_task

    train_task(
        config,
        overrides or (),
        task,
        output,
        checkpoints,
        pretraining=False,
        limit=time_limit,
        device=device,
        threads=threads,
    )


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
    from bigbird_dna.nlp.commands import predict_task

    predict_task(config, overrides or (), task, model, records, output, batch_size, device, threads)


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
    from bigbird_dna.nlp.commands import evaluate_task

    evaluate_task(config, overrides or (), task, model, records, predictions, output, threads)


def report(
    evaluations: Annotated[list[Path], argument("What evaluate wrote, of one task each.", "EVALUATION...")],
    output: Annotated[Path, output("FILE", "Page to write (HTML).")],
) -> None:
    """Write one page of tasks: what was measured beside what was published."""
    from bigbird_dna.disk.outputs import check_output
    from bigbird_dna.nlp.report import report_tasks

    check_output(output, evaluations)
    report_tasks(evaluations, output)
