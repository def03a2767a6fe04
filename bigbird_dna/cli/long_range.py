"""Commands of Long-Range Arena's generated tasks: data, classifiers, and their table."""

from pathlib import Path
from typing import Annotated

from bigbird_dna.cli.options import (
    RESULTS,
    Checkpoints,
    Config,
    Device,
    Directory,
    Set,
    Threads,
    TimeLimit,
    argument,
    option,
    output,
    read_run,
)
from bigbird_dna.console import log

TASKS = "listops or pathfinder."


def make_long_range(
    config: Config,
    task: Annotated[str, argument(TASKS, "TASK")],
    output: Annotated[
        Path | None, output("DIR", "Directory for the sequences.", RESULTS.long_range_data("TASK"))
    ] = None,
    overrides: Set = None,
) -> None:
    """Generate ListOps' expressions, or draw Pathfinder's images, as `long_range` in CONFIG says.

    The same configuration makes the same files; no expression of ListOps stands twice.
    """
    from bigbird_dna.checks import check_choice
    from bigbird_dna.config import LONG_RANGE_TASKS, LongRangeConfig
    from bigbird_dna.disk.directories import atomic_directory
    from bigbird_dna.tasks.long_range.listops import write_listops
    from bigbird_dna.tasks.long_range.pathfinder import write_pathfinder

    check_choice("task", task, LONG_RANGE_TASKS)
    run, paths = read_run(config, overrides)
    settings = run.long_range or LongRangeConfig()
    with atomic_directory(output or paths.long_range_data(task)) as directory:
        if task == "listops":
            write_listops(directory, settings.listops, settings.data_seed)
        else:
            write_pathfinder(directory, settings.pathfinder, settings.data_seed)


def train_long_range(
    config: Config,
    task: Annotated[str, argument(TASKS, "TASK")],
    attention: Annotated[str, argument("A name in long_range.attentions.", "ATTENTION")],
    output: Annotated[
        Path | None,
        output("DIR", "Directory for the result.", RESULTS.long_range_model("TASK", "ATTENTION", "SEED")),
    ] = None,
    overrides: Set = None,
    data: Annotated[
        Path | None,
        option("DIR", "What experiment lra-data wrote.", RESULTS.long_range_data("TASK"), "--data"),
    ] = None,
    seed: Annotated[
        int | None, option("N", "Of weights and order.", "the first of long_range.seeds", "--seed", least=0)
    ] = None,
    checkpoints: Checkpoints = None,
    time_limit: TimeLimit = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a classifier of long sequences with one of the attentions that are compared, and judge it.

    Writes result.json (test accuracy, and that of what needs no reading), the log and the weights. A killed
    run goes on from its last checkpoint when started again.
    """
    from bigbird_dna.checks import check_choice
    from bigbird_dna.config import LONG_RANGE_TASKS, LongRangeConfig
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.tasks.long_range.training import train_long_range as train
    from bigbird_dna.training.distributed import world
    from bigbird_dna.training.stopping import time_of_end

    ends = time_of_end(time_limit)
    check_choice("task", task, LONG_RANGE_TASKS)
    run, paths = read_run(config, overrides)
    settings = run.long_range or LongRangeConfig()
    drawn = settings.seeds[0] if seed is None else seed
    with cpu_threads(threads), world(device, ends) as here:
        train(
            settings,
            task,  # type: ignore[arg-type]
            attention,
            seed=drawn,
            data=data or paths.long_range_data(task),
            output=output or paths.long_range_model(task, attention, drawn),
            checkpoints=checkpoints or paths.checkpoints / "long_range",
            world=here,
        )


def report_long_range(
    results: Annotated[list[Path], argument("What experiment lra-train wrote.", "DIR...")], output: Directory
) -> None:
    """Put classifiers of long sequences side by side.

    Writes long_range.tsv and long_range.md: mean accuracy over seeds with a 95 % interval over the test
    sequences, what needs no reading beside it, and the published averages of all five tasks.
    """
    from bigbird_dna.reporting.long_range import write_report

    for sentence in write_report(results, output):
        log(sentence)
