"""Commands that run the papers' experiments, and tasks on text."""

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bigbird_dna.cli.options import (
    RESULTS,
    BatchSize,
    Commands,
    Config,
    Device,
    Force,
    Overrides,
    Threads,
    output_option,
    read_run,
)
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError, check_at_least_one, one_of
from bigbird_dna.papers.experiments import EXPERIMENTS

if TYPE_CHECKING:
    from bigbird_dna.papers.nlp.config import AnyTask

    OpenedTask = tuple[Any, AnyTask, Path]

experiment = Commands(
    help="Run the papers' experiments: attention mechanisms, pretraining, long inputs."
)
nlp = Commands(
    help="Pretrain and fine-tune models on text (requires the optional dependencies nlp)."
)


@experiment.command(
    "run",
    epilog="Example: bigbird-dna experiment run table6 workflow/config/demo.yaml",
)
def run_experiment(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help=f"One of {', '.join(EXPERIMENTS)}.")
    ],
    config: Config,
    overrides: Overrides = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="TRAINING",
            help="Run only this training, without the comparison.",
            show_default="all trainings",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        output_option("DIR", "Directory for the tables.", RESULTS.report),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Run an experiment: train its models and baselines, and compare them in tables.

    Each training, with one seed, writes to RESULTS/experiments/NAME/TRAINING. Those that were run before with
    the same settings are not run again, and an interrupted one resumes. Values are means over seeds with 95 %
    intervals, differences are paired by seed and test data, and published values have columns of their own.
    NAME can also be a module with a function run(config, trainings, output).
    """
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.papers.experiments.shared import Trainings

    if only is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("several processes run one training: give --only")

    run, paths = read_run(config, overrides)
    packaged = name in EXPERIMENTS
    try:
        module = import_module(
            f"bigbird_dna.papers.experiments.{name}" if packaged else name
        )
        experiment_of = module.run
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"experiment {name!r}: {one_of(name, EXPERIMENTS)}, or a module with a function `run`: {error}"
        ) from None

    report = output or (paths.report / EXPERIMENTS.get(name, [name])[0]).parent
    trainings = Trainings(paths, name, device, only)
    with cpu_threads(threads):
        for line in experiment_of(run, trainings, report):
            log(line)


TextConfig = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG",
        help="Configuration of text tasks (YAML), such as workflow/config/nlp.yaml.",
    ),
]
TaskName = Annotated[
    str, typer.Option(metavar="NAME", help="Name of a task in CONFIG, such as imdb.")
]
Records = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Records (JSON lines).",
        show_default="the task's test records",
    ),
]
TextModel = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL_DIR",
        help="Model of the task.",
        show_default="RESULTS/NAME/model",
    ),
]


def open_task(config: Path, task: str, overrides: list[str] | None) -> "OpenedTask":
    """Return the module, the section and the directory of a task; `UsageError` without the extra `nlp`."""
    from bigbird_dna.papers.nlp.config import read_config

    for library in ("accelerate", "datasets", "rouge_score", "transformers"):
        if find_spec(library) is None:
            raise UsageError(
                f"the library {library} is not installed; tasks on text need the extra nlp: "
                "pip install 'bigbird-dna[nlp]'"
            )

    read = read_config(config, overrides or ())
    section = read.task(task)
    module: Any = import_module(f"bigbird_dna.papers.nlp.{section.kind}")
    return module, section, read.home(task)


@nlp.command(
    "prepare",
    epilog="Example: bigbird-dna nlp prepare workflow/config/nlp.yaml --task imdb",
)
def prepare(config: TextConfig, task: TaskName, overrides: Overrides = None) -> None:
    """Write the records of a task to RESULTS/NAME/data: train.jsonl, valid.jsonl and test.jsonl.

    Records come from files, from a public data set (requires network access), or are generated.
    """
    module, section, home = open_task(config, task, overrides)
    module.prepare(section, home / "data")


@nlp.command(
    "train",
    epilog="Example: bigbird-dna nlp train workflow/config/nlp.yaml --task imdb",
)
def train_task(
    config: TextConfig,
    task: TaskName,
    overrides: Overrides = None,
    device: Device = "auto",
    threads: Threads = None,
    force: Force = False,
) -> None:
    """Pretrain or fine-tune a model on the records of a task, RESULTS/NAME/model; resumes and stops like
    pretrain."""
    from bigbird_dna.disk.directories import check_directory
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.training.distributed import job_end

    module, section, home = open_task(config, task, overrides)
    check_directory(home / "model", [home / "data"])
    with cpu_threads(threads):
        module.train(section, home, device=device, end=job_end())


@nlp.command(
    "predict",
    epilog="Example: bigbird-dna nlp predict workflow/config/nlp.yaml --task imdb",
)
def predict(
    config: TextConfig,
    task: TaskName,
    overrides: Overrides = None,
    model: TextModel = None,
    records: Records = None,
    output: Annotated[
        Path | None,
        output_option(
            "FILE",
            "Predictions to write (JSON lines).",
            "RESULTS/NAME/predictions.jsonl",
        ),
    ] = None,
    batch_size: BatchSize = 8,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Predict records with the model of a task."""
    from bigbird_dna.disk.outputs import check_output
    from bigbird_dna.model.inference import choose_device, cpu_threads
    from bigbird_dna.papers.nlp.records import write_objects

    check_at_least_one({"--batch-size": batch_size})
    module, section, home = open_task(config, task, overrides)
    if section.kind == "pretraining":
        raise UsageError(
            "tasks of kind pretraining have no predictions: use `bigbird-dna nlp evaluate`"
        )

    model = model or home / "model"
    records = records or home / "data/test.jsonl"
    output = output or home / "predictions.jsonl"
    check_output(output, [model, records])
    with cpu_threads(threads):
        lines = module.predict(
            section, model, records, choose_device(device), batch_size
        )
        count = write_objects(output, lines)

    log(f"{output}: {count:,} predictions")


@nlp.command(
    "evaluate",
    epilog="Example: bigbird-dna nlp evaluate workflow/config/nlp.yaml --task imdb",
)
def evaluate(
    config: TextConfig,
    task: TaskName,
    overrides: Overrides = None,
    records: Records = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Predictions of the records.",
            show_default="RESULTS/NAME/predictions.jsonl",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        output_option(
            "FILE", "Metrics to write (JSON).", "RESULTS/NAME/evaluation.json"
        ),
    ] = None,
    threads: Threads = None,
) -> None:
    """Evaluate predictions with the official metrics of a task, or its pretrained model on held-out documents."""
    from bigbird_dna.disk.atomic import write_json
    from bigbird_dna.disk.outputs import check_output
    from bigbird_dna.model.inference import cpu_threads

    module, section, home = open_task(config, task, overrides)
    records = records or home / "data/test.jsonl"
    output = output or home / "evaluation.json"
    evaluated = predictions or home / "predictions.jsonl"
    if section.kind == "pretraining":
        evaluated = home / "model"

    check_output(output, [evaluated, records])
    with cpu_threads(threads):
        metrics = module.evaluate(section, records, evaluated)

    report = {
        "task": task,
        "kind": section.kind,
        "figures": metrics,
        "published": section.published,
    }
    write_json(output, report)
    log(f"{output}: {metrics}")
