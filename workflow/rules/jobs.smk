"""What all jobs share, whatever they are of: where they run, and what they ask for."""

import os
import sys
from pathlib import Path

# `snakemake` may be called by its path, without its environment activated.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))

# For params: `--resources gpu=0` caps what a rule asks for. No rule runs again because of another device.
DEVICE = lambda wildcards, resources: "cuda" if resources.gpu else "cpu"
# A training stops before the time of its job is over, of which some minutes have passed when it begins; without jobs never.
LIMIT = lambda wildcards, resources: (
    [
        f"--time-limit={max(2, resources.runtime - 5) // 60}:{max(2, resources.runtime - 5) % 60:02}:00"
    ]
    if resources.get("slurm_partition")
    else []
)


def growing(amount):
    """A resource of which an attempt after a failure gets more: half as much again, then twice as much."""
    return lambda wildcards, attempt: round(amount * (1 + min(attempt, 3)) / 2)
