"""Commands that run the papers' experiments, and tasks on text."""

import os
from collections.abc import Callable
from pathlib import Path

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output
from bigbird_dna.console import log
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.errors import UsageError, check_at_least_one
from bigbird_dna.papers.experiments import EXPERIMENTS


def run_experiment(
    experiment: str = argument(f"One of {', '.join(EXPERIMENTS)}.", "NAME"),
    config: Path = opt.CONFIG,
    overrides: list[str] | None = opt.OVERRIDES,
    list_arms: bool = option(
        False, None, "List the arms that would run, and end.", "", "--list"
    ),
    arm: str | None = option(
        None, "ARM", "Run only this arm, without the comparison.", "all arms", "--arm"
    ),
    compare: bool = option(
        False, None, "Compare arms that were run before, and run none.", "", "--compare"
    ),
    output: Path | None = output(
        None, "DIR", "Directory for the tables and plots.", opt.RESULTS.report
    ),
    time_limit: str | None = opt.TIME_LIMIT,
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Run an experiment: train its arms, then compare them in tables and plots.

    Each arm is a training, or a baseline, with one seed; it writes to RESULTS/experiments/NAME/ARM. Arms that
    were run before with the same settings are not run again, and an interrupted training resumes. Values are
    means over seeds with 95 % intervals, differences are paired by seed and test data, and published values
    have columns of their own.

    Example: bigbird-dna experiment run table6 workflow/config/demo.yaml
    """
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.experiments.arms import find_arm, find_experiment, run_arm
    from bigbird_dna.training.distributed import time_of_end, world

    if compare and arm is not None:
        raise UsageError("give at most one of --arm and --compare")
    if arm is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("several processes train one arm: give --arm")
    ends = time_of_end(time_limit)
    module = find_experiment(experiment)
    run, paths = opt.read_run(config, overrides)
    arms = module.arms(run)
    if list_arms:
        for one in arms:
            print(one.name, "finished" if one.is_finished else "", sep="\t")
        return
    with cpu_threads(threads):
        for one in arms if arm is None else [find_arm(arms, arm)]:
            if not compare:
                with world(device, ends) as here:
                    run_arm(module.train, one, here)
        if arm is None:
            report = output or (paths.report / module.FILES[0]).parent
            for line in module.compare(run, report, device):
                log(line)


TEXT_CONFIG = argument(
    "Configuration of text tasks (YAML), such as workflow/config/nlp.yaml.", "CONFIG"
)
TASK_NAME = option(..., "NAME", "Name of a task in CONFIG, such as imdb.", "", "--task")
RECORDS = option(
    None, "FILE", "Records (JSON lines).", "the task's test records", "--records"
)
TRAINED_MODEL = output(
    None, "MODEL_DIR", "Model directory to write.", "RESULTS/NAME/model"
)
TEXT_CHECKPOINTS = option(
    None,
    "DIR",
    "Directory for checkpoints.",
    "RESULTS/NAME/checkpoints",
    "--checkpoint-dir",
)
TEXT_MODEL = option(
    None, "MODEL_DIR", "Model of the task.", "RESULTS/NAME/model", "--model"
)


def prepare(
    config: Path = TEXT_CONFIG,
    task: str = TASK_NAME,
    overrides: list[str] | None = opt.OVERRIDES,
    output: Path | None = output(
        None, "DIR", "Directory for the records.", "RESULTS/NAME/data"
    ),
) -> None:
    """Write the records of a task: train.jsonl, valid.jsonl and test.jsonl.

    Records come from files, from a public data set (requires network access), or are generated.

    Example: bigbird-dna nlp prepare workflow/config/nlp.yaml --task imdb
    """
    from bigbird_dna.papers.nlp.task import open_task

    opened = open_task(config, overrides, task)
    opened.prepare(output or opened.paths.data)


def _trainer(name: str, other: str, example: str, purpose: str) -> Callable[..., None]:
    """Return the command `name` that trains a task; `UsageError` if the task needs the command `other`."""

    def command(
        config: Path = TEXT_CONFIG,
        task: str = TASK_NAME,
        overrides: list[str] | None = opt.OVERRIDES,
        output: Path | None = TRAINED_MODEL,
        checkpoints: Path | None = TEXT_CHECKPOINTS,
        time_limit: str | None = opt.TIME_LIMIT,
        device: str = opt.DEVICE,
        threads: int | None = opt.THREADS,
    ) -> None:
        from bigbird_dna.model.inference import cpu_threads
        from bigbird_dna.papers.nlp.task import open_task
        from bigbird_dna.training.distributed import time_of_end, world
        from bigbird_dna.training.task import train

        ends = time_of_end(time_limit)
        opened = open_task(config, overrides, task)
        if (opened.kind == "pretraining") != (name == "pretrain"):
            raise UsageError(
                f"--task {task!r} has kind {opened.kind}: use `bigbird-dna nlp {other}`"
            )
        with cpu_threads(threads), world(device, ends) as here:
            train(
                opened,
                output or opened.paths.model,
                checkpoints or opened.paths.checkpoints,
                here,
            )

    command.__name__ = name
    words = f"bigbird-dna nlp {name} workflow/config/nlp.yaml --task {example}"
    command.__doc__ = f"{purpose}; resumes and stops like pretrain.\n\nExample: {words}"
    return command


pretrain = _trainer(
    "pretrain", "finetune", "text", "Pretrain on the documents of a pretraining task"
)
finetune = _trainer(
    "finetune",
    "pretrain",
    "imdb",
    "Fine-tune on a task of kind classification, qa or summaries",
)


def predict(
    config: Path = TEXT_CONFIG,
    task: str = TASK_NAME,
    overrides: list[str] | None = opt.OVERRIDES,
    model: Path | None = TEXT_MODEL,
    records: Path | None = RECORDS,
    output: Path | None = output(
        None,
        "FILE",
        "Predictions to write (JSON lines).",
        "RESULTS/NAME/predictions.jsonl",
    ),
    batch_size: int = opt.batch_size(8),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Predict records with the model of a task.

    Example: bigbird-dna nlp predict workflow/config/nlp.yaml --task imdb
    """
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.nlp.task import open_task

    check_at_least_one({"--batch-size": batch_size})
    opened = open_task(config, overrides, task)
    model, records = model or opened.paths.model, records or opened.paths.split("test")
    output = output or opened.paths.predictions
    check_output(output, [model, records])
    with cpu_threads(threads):
        opened.predict(model, records, output, device, batch_size)


def evaluate(
    config: Path = TEXT_CONFIG,
    task: str = TASK_NAME,
    overrides: list[str] | None = opt.OVERRIDES,
    model: Path | None = TEXT_MODEL,
    records: Path | None = RECORDS,
    predictions: Path | None = option(
        None,
        "FILE",
        "Predictions of the records.",
        "RESULTS/NAME/predictions.jsonl",
        "--predictions",
    ),
    output: Path | None = output(
        None, "FILE", "Metrics to write (JSON).", "RESULTS/NAME/evaluation.json"
    ),
    threads: int | None = opt.THREADS,
) -> None:
    """Evaluate predictions with the official metrics of a task, or a pretrained model on held-out documents.

    Example: bigbird-dna nlp evaluate workflow/config/nlp.yaml --task imdb
    """
    from bigbird_dna.disk.atomic import write_json
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.nlp.task import open_task

    opened = open_task(config, overrides, task)
    records, output = (
        records or opened.paths.split("test"),
        output or opened.paths.evaluation,
    )
    evaluated = predictions or opened.paths.predictions
    if opened.kind == "pretraining":
        if predictions is not None:
            raise UsageError(
                "--predictions: a task of kind pretraining is evaluated with --model"
            )
        evaluated = model or opened.paths.model
    check_output(output, [evaluated, records])
    with cpu_threads(threads):
        metrics = opened.evaluate(records, evaluated)
    published = opened.section.published
    write_json(
        output,
        {"task": task, "kind": opened.kind, "figures": metrics, "published": published},
    )
    shown = ", ".join(
        f"{key} {value:.4g}"
        for key, value in metrics.items()
        if isinstance(value, float)
    )
    log(f"{output}: {shown}")
