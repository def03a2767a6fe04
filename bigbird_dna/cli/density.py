"""The command that models images and text, byte after byte."""

from pathlib import Path
from typing import Annotated

from bigbird_dna.cli.options import (
    RESULTS,
    Checkpoints,
    Config,
    Device,
    Set,
    Threads,
    TimeLimit,
    output,
    read_run,
)
from bigbird_dna.errors import ConfigError


def train_density(
    config: Config,
    output: Annotated[Path | None, output("DIR", "Directory for the result.", RESULTS.density)] = None,
    overrides: Set = None,
    checkpoints: Checkpoints = None,
    time_limit: TimeLimit = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a causal model of images or text, byte after byte, as `density` in CONFIG says, and judge it.

    Writes result.json (bits per byte of the test files, which of images is bits per dim), the log and the
    weights. A killed run goes on from its last checkpoint when started again.
    """
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.tasks.density.training import train_density as train
    from bigbird_dna.training.distributed import world
    from bigbird_dna.training.stopping import time_of_end

    ends = time_of_end(time_limit)
    run, paths = read_run(config, overrides)
    if run.density is None:
        raise ConfigError(f"{config}: density: is missing: it names format and files")
    with cpu_threads(threads), world(device, ends) as here:
        train(run.density, output or paths.density, checkpoints or paths.checkpoints / "density", here)
