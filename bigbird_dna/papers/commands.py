"""Commands that plan, run and compare experiments, compute receptive fields, and run tasks on text."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs
from bigbird_dna.console import log
from bigbird_dna.disk.outputs import (
    check_output,
    named_output,
    open_text,
    text_destination,
)
from bigbird_dna.errors import UsageError, check_at_least_one, check_choice
from bigbird_dna.papers.experiments import EXPERIMENTS

Part = Literal["model", "predictions", "cost", "data"]
PARTS: tuple[Part, ...] = get_args(Part)
NAME = argument(
    f"One of {', '.join(EXPERIMENTS)}, or a custom experiment MODULE:CLASS.",
    "EXPERIMENT",
)


def plan_experiment(
    config: Path = opt.CONFIG,
    experiment: str = NAME,
    output: Path | None = opt.RESULT_FILE,
    overrides: list[str] | None = opt.OVERRIDES,
) -> None:
    """List the jobs of an experiment: each arm and seed, its files, and the keys that differ from CONFIG.

    An experiment that is incompatible with CONFIG is an error, as at the start of the workflow.

    Example: bigbird-dna experiment plan workflow/config/demo.yaml table6
    """
    import json

    from bigbird_dna.papers.experiments.experiment import find_experiment, plan

    destination = named_output(output)
    check_output(destination, [config])
    run, _ = opt.read_run(config, overrides)
    jobs = plan(find_experiment(experiment), run)
    with text_destination(destination) as target, open_text(target) as stream:
        stream.write("#" + "\t".join(PLAN) + "\n")
        for job in jobs:
            arm = job.arm
            cells = [
                arm.name,
                str(job.seed),
                arm.task,
                arm.predictor,
                str(job.directory),
            ]
            stream.write("\t".join([*cells, json.dumps(dict(arm.set))]) + "\n")


PLAN = ("arm", "seed", "task", "predictor", "directory", "set")
RECEPTIVE_FIELD = ("layers", "reached", "all")
"""Columns of the tables that the commands write."""


def run_experiment(
    config: Path = opt.CONFIG,
    experiment: str = NAME,
    arm: str = argument("Arm of the experiment, as listed by experiment plan.", "ARM"),
    seed: int | None = option(
        None, "N", "One of the arm's seeds.", "the arm's first", "--seed", least=0
    ),
    part: str = option(
        "model",
        "|".join(PARTS),
        "Result to compute: the trained model or a baseline's predictions; predictions of held-out data; "
        "time and memory of a training step; or a data set of the arm that differs from the run's.",
    ),
    output: Path | None = output(
        None,
        "PATH",
        "Directory or file to write.",
        opt.RESULTS.experiment("EXPERIMENT/ARM/SEED/model"),
    ),
    overrides: list[str] | None = opt.OVERRIDES,
    checkpoints: Path | None = opt.CHECKPOINTS,
    time_limit: str | None = opt.TIME_LIMIT,
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Run one arm of an experiment with one seed: train its model, or fit its baseline.

    Other parts are separate jobs: run --part data before, --part cost before trainings with matched compute
    time, and --part predictions after. An interrupted training resumes from its last checkpoint when started
    again, and stops like pretrain.

    Example: bigbird-dna experiment run workflow/config/demo.yaml table6 400-genomic-k-mers
    """
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.experiments import running
    from bigbird_dna.training.distributed import time_of_end, world

    check_choice("--part", part, PARTS)
    ends = time_of_end(time_limit)
    run, _ = opt.read_run(config, overrides)
    job = running.find_job(run, experiment, arm, seed)
    running.check_part(job, part)
    with cpu_threads(threads):
        if part == "model":
            with world(device, ends) as here:
                running.run_job(
                    job, output or job.model, checkpoints or job.checkpoints, here
                )
            return
        if part == "data":
            running.make_data(job, output or job.data)
            return
        target = output or (job.predictions if part == "predictions" else job.cost)
        if output is None:
            target.parent.mkdir(parents=True, exist_ok=True)
        check_output(target, [config, *job.inputs])
        (running.predict if part == "predictions" else running.measure_cost)(
            job, target, device
        )


def compare_experiment(
    config: Path = opt.CONFIG,
    experiment: str = NAME,
    output: Path | None = output(
        None, "DIR", "Directory for the tables and plots.", opt.RESULTS.report
    ),
    overrides: list[str] | None = opt.OVERRIDES,
    benchmarks: Path | None = option(
        None,
        "DIR",
        "Directory of Snakemake's benchmark files, for time and memory per job.",
        "not shown",
    ),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Compare the arms of an experiment in tables and plots, after all arms have been run.

    Values are means over seeds with 95 % intervals, differences are paired by seed and test data, and
    published values have separate columns.

    Example: bigbird-dna experiment compare workflow/config/demo.yaml table6
    """
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.experiments.experiment import find_experiment, plan
    from bigbird_dna.reporting.run_page import check_benchmarks

    check_benchmarks(benchmarks)
    run, paths = opt.read_run(config, overrides)
    found = find_experiment(experiment)
    jobs = plan(found, run)
    usual = (paths.report / found.files[0]).parent
    with cpu_threads(threads):
        for line in found.compare(
            run, jobs, output or usual, benchmarks=benchmarks, device=device
        ):
            log(line)


def show_reach(
    source: Path = argument(
        "Configuration (YAML) or model directory with the encoder.", "CONFIG|MODEL_DIR"
    ),
    output: Path | None = opt.RESULT_FILE,
    tokens: int | None = option(
        None,
        "N",
        "Input length in tokens.",
        "the encoder's maximum, at most 1024",
        "--seq-len",
        least=1,
    ),
    layers: int | None = option(
        None, "N", "Maximum number of layers.", "number of encoder layers", least=1
    ),
) -> None:
    """Compute the number of layers after which every token can depend on every other token.

    Writes a table of the fraction of token pairs that are connected after each number of layers, up to the
    first that connects all. For content-dependent mechanisms, random vectors are used.

    Example: bigbird-dna experiment receptive-field workflow/config/demo.yaml --seq-len 4096
    """
    from bigbird_dna.config import load_config
    from bigbird_dna.model.directory import read_encoder_config
    from bigbird_dna.papers.experiments.receptive_field import (
        MOST_TOKENS,
        receptive_field,
    )

    destination = named_output(output)
    check_output(destination, [source])
    encoder = (
        read_encoder_config(source) if source.is_dir() else load_config(source).encoder
    )
    length = tokens or min(encoder.max_length, MOST_TOKENS)
    with text_destination(destination) as target, open_text(target) as stream:
        stream.write("#" + "\t".join(RECEPTIVE_FIELD) + "\n")
        for one in receptive_field(encoder, length, layers):
            stream.write(
                f"{one.layers}\t{one.share:.6g}\t{'yes' if one.complete else 'no'}\n"
            )


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


@runs("papers.nlp.report.report_tasks", inputs=("evaluations",))
def report(
    evaluations: list[Path] = argument(
        "Files of nlp evaluate, one per task.", "EVALUATION..."
    ),
    output: Path = output(..., "FILE", "HTML file to write."),
) -> None:
    """Write an HTML report of tasks that compares measured with published results.

    Example: bigbird-dna nlp report imdb/evaluation.json -o report.html
    """
