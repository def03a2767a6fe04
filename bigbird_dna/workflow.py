"""Functions for the workflow's rules: resources and command arguments of jobs.

Snakemake calls functions of `wildcards`, `input`, `threads` or `resources` for each job.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

from bigbird_dna.config.chromatin import SIMULATED
from bigbird_dna.config.run import Config


def growing(amount: float) -> Callable[..., int]:
    """Return a resource that grows with attempts after failures: by a factor of 1.5, then 2."""
    return lambda wildcards, attempt: round(amount * (1 + min(attempt, 3)) / 2)


def job(mem_mb: float, runtime: float, **more: object) -> dict[str, object]:
    """Return the resources of a job: memory in MB and minutes, which grow with attempts, and others."""
    return {"mem_mb": growing(mem_mb), "runtime": growing(runtime), **more}


def training(processes: int, runtime: int) -> dict[str, object]:
    """Return the resources of a training, one GPU per process; a next attempt resumes with the same time."""
    memory = growing(16000 * processes)
    return {
        "processes": processes,
        "gpu": processes,
        "mem_mb": memory,
        "runtime": runtime,
    }


def device(wildcards: object, resources: Any) -> str:
    """Return the device of a job; `--resources gpu=0` limits the request of its rule."""
    return "cuda" if resources.gpu else "cpu"


def threads_each(wildcards: object, threads: int, resources: Any) -> int:
    """Return the threads per process of a training; like the device, they have no effect on weights."""
    each: int = max(1, threads * resources.get("nodes", 1) // resources.processes)
    return each


def launcher(container: str) -> Callable[..., str]:
    """Return a function for params: the shell words that train with the processes and nodes of a job.

    `container` is the command that enters the image, if the training must enter it itself. On several nodes,
    `srun` starts one `torchrun` per node, and all connect to the node of the job's script. Without `-P`,
    Python would import a file of the working directory with the name of one of its modules.
    """
    program = "-P -m bigbird_dna.cli.main"

    def launch(wildcards: object, threads: int, resources: Any) -> str:
        nodes = resources.get("nodes", 1)
        if resources.processes == nodes == 1:
            return f"{container} python {program}" if container else "bigbird-dna"

        torchrun = f"{container} python -P -m torch.distributed.run".strip()
        training = (
            f"--nproc-per-node={resources.processes // nodes} --no-python"
            f" python -u {program}"
        )
        if nodes == 1:
            return f"{torchrun} --standalone {training}"

        return (
            f"srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1"
            f" --cpus-per-task={threads} --kill-on-bad-exit=1 {torchrun}"
            f" --nnodes={nodes} --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID"
            f" --rdzv-endpoint=$(hostname):$((20000 + SLURM_JOB_ID % 20000)) {training}"
        )

    return launch


def given(*names: str, joined: bool = False) -> Callable[..., list[str]]:
    """Return a function for params: one option per input of these names, as two words or `joined` by =."""

    def options(
        wildcards: object, input: Mapping[str, str | Sequence[str]]
    ) -> list[str]:
        args = []
        for name in names:
            files = input.get(name, ())
            for file in [files] if isinstance(files, str) else files:
                option = f"--{name.replace('_', '-')}"
                args += [f"{option}={file}"] if joined else [option, file]
        return args

    return options


def labeled_sequence_args(config: Config) -> list[str]:
    """Return the options of `finetune-sequences` on its files that the configuration sets."""
    labeled = config.sequences
    names = ("task", "sequence_column", "split_column")
    values = {name.replace("_", "-"): getattr(labeled, name) for name in names}
    options = [
        f"--{name}={value}" for name, value in values.items() if value is not None
    ]
    return options + [f"--label-column={name}" for name in labeled.label_columns]


def simulated_test_contigs(config: Config) -> list[str]:
    """Return the test contigs of the simulation, with known variant effects; empty without a simulation."""
    if config.chromatin.data.tracks != SIMULATED:
        return []
    simulated = [f"demo{number}" for number in range(1, 7)]
    return [
        contig
        for text in config.genome.test
        for contig in [name for name in simulated if fnmatch(name, text)] or [text]
    ]
