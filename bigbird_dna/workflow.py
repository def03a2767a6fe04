"""What the workflow's rules compute: resources, arguments of commands; and what a run shows in the terminal.

Functions of `wildcards`, `input`, `threads` or `resources` are called by Snakemake, for each job.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from time import monotonic
from typing import Any

from bigbird_dna.config import SIMULATED, Config

_HIDDEN = {"job_info", "group_info", "job_started", "shellcmd", "resources_info"}
_CHATTER = ("Select jobs to execute...", "Removing temporary output")


class JobLines(logging.Filter):
    """One line per finished job in place of Snakemake's blocks: its rule, wildcards and duration.

    Errors pass, and so does the log of a failed job (`--show-failed-logs`). A dry run never gets here, and
    Snakemake's own log file of the run has everything.
    """

    def __init__(self) -> None:
        super().__init__()
        self._running: dict[int, tuple[str, float]] = {}
        self._finished: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is shown as it is; lines of jobs take the place of some that aren't."""
        event = str(getattr(record, "event", None) or "")
        if event == "job_info":
            self._running[record.jobid] = (self._label(record), monotonic())  # type: ignore[attr-defined]
        elif event == "job_finished":
            label, begun = self._running.pop(record.job_id, ("", 0.0))  # type: ignore[attr-defined]
            if label:
                self._finished.append(f"{label}  {duration(monotonic() - begun)}")
            return False
        elif event == "progress":
            lines, self._finished = self._finished, []
            if not lines:
                return False
            # The record is shown as a plain message: the formatter knows events by this attribute.
            record.event = None
            count = f"{record.done}/{record.total}"  # type: ignore[attr-defined]
            record.msg, record.args = "\n".join(f"[{count}] {line}" for line in lines), ()
            return True
        return event not in _HIDDEN and not str(record.msg).startswith(_CHATTER)

    @staticmethod
    def _label(record: logging.LogRecord) -> str:
        wildcards = getattr(record, "wildcards", None) or {}
        return " ".join([record.rule_name, *map(str, wildcards.values())])  # type: ignore[attr-defined]


def duration(seconds: float) -> str:
    """Hours, minutes and seconds as `1:02:03`, or minutes and seconds as `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def show_job_lines(logger: logging.Logger) -> None:
    """Let the terminal have lines of jobs; files keep Snakemake's own blocks."""
    for handler in logger.handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
            handler.addFilter(JobLines())


def growing(amount: float) -> Callable[..., int]:
    """A resource of which an attempt after a failure gets more: half as much again, then twice as much."""
    return lambda wildcards, attempt: round(amount * (1 + min(attempt, 3)) / 2)


def job(mem_mb: float, runtime: float, **more: object) -> dict[str, object]:
    """The resources of a job: MB and minutes, which grow, and others."""
    return {"mem_mb": growing(mem_mb), "runtime": growing(runtime), **more}


def training(processes: int, runtime: int) -> dict[str, object]:
    """The resources of a training, a GPU for each process; its next attempt goes on, with as much time."""
    memory = growing(16000 * processes)
    return {"processes": processes, "gpu": processes, "mem_mb": memory, "runtime": runtime}


def device(wildcards: object, resources: Any) -> str:
    """Where a job computes: `--resources gpu=0` caps what its rule asks for."""
    return "cuda" if resources.gpu else "cpu"


def time_limit(wildcards: object, resources: Any) -> list[str]:
    """The option that stops a training before the time of its job is over; without jobs there is none.

    Some minutes of that time have passed when the training begins.
    """
    minutes = max(2, resources.runtime - 5)
    return [f"--time-limit={minutes // 60}:{minutes % 60:02}:00"] if resources.get("slurm_partition") else []


def threads_each(wildcards: object, threads: int, resources: Any) -> int:
    """The threads of each process of a training: like the device, their number decides no weights."""
    each: int = max(1, threads * resources.get("nodes", 1) // resources.processes)
    return each


def launcher(container: str) -> Callable[..., list[str]]:
    """For params: the program that trains, on as many processes and nodes as its job has.

    `container` is the command that enters the image, if the training has to do so by itself.
    """

    def launch(wildcards: object, threads: int, resources: Any) -> list[str]:
        counts = {"processes": resources.processes, "nodes": resources.get("nodes", 1), "cpus": threads}
        if counts["processes"] == counts["nodes"] == 1 and not container:
            return ["bigbird-dna"]
        options = [f"--{name}={count}" for name, count in counts.items()]
        options += [f"--container-command={container}"] if container else []
        return ["python", "-m", "bigbird_dna.cli.launch", *options, "--"]

    return launch


def given(*names: str, joined: bool = False) -> Callable[..., list[str]]:
    """An option for each input of these names that the run has: two arguments, or one, `joined` by `=`."""

    def options(wildcards: object, input: Mapping[str, str | Sequence[str]]) -> list[str]:
        args = []
        for name in names:
            files = input.get(name, ())
            for file in [files] if isinstance(files, str) else files:
                option = f"--{name.replace('_', '-')}"
                args += [f"{option}={file}"] if joined else [option, file]
        return args

    return options


def sequence_args(config: Config) -> list[str]:
    """The options of `prepare sequences` that the configuration sets."""
    windows, sequences = config.promoters.windows, config.promoters.sequences
    if sequences is None:
        return []
    values = {
        "length": sequences.length,
        "upstream": windows.upstream,
        "negatives-per-positive": windows.negatives,
        "similarity": sequences.min_shared_kmers,
        "seed": config.seed,
    }
    options = [f"--{name}={value}" for name, value in values.items() if value is not None]
    return options + [f"--negative-set={name}" for name in windows.negative_sets]


def simulated_test_contigs(config: Config) -> list[str]:
    """The test contigs of the simulation, in which the effects of variants are known; none without it."""
    if config.chromatin.data.tracks != SIMULATED:
        return []
    simulated = [f"demo{number}" for number in range(1, 7)]
    return [
        contig
        for text in config.genome.test
        for contig in [name for name in simulated if fnmatch(name, text)] or [text]
    ]
