"""Processes of a program that start at once: forked from one that has imported everything.

Run as a program, it reads a JSON line for each process to start, and says its number, then how it ended. It
computes nothing itself, so that no threads are lost by forking.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from bigbird_dna.papers.experiments import EXPERIMENTS
from tests.cli.command import words_of_command

PROGRAMS = {
    "bigbird-dna": "bigbird_dna.cli.main:main",
    "snakemake": "snakemake.cli:main",
}
IMPORTS = (
    *(
        "torch",
        "pandas",
        "pyarrow.parquet",
        "pysam",
        "pyfaidx",
        "scipy.sparse",
        "sklearn.linear_model",
    ),
    *(
        "matplotlib.pyplot",
        "h5py",
        "sentencepiece",
        "safetensors.torch",
        "bigbird_dna.cli.app",
    ),
    *("bigbird_dna.pretraining.task", "bigbird_dna.finetuning.chromatin"),
    *("bigbird_dna.finetuning.evaluation", "bigbird_dna.finetuning.promoters"),
    *("bigbird_dna.scoring.promoters", "bigbird_dna.scoring.variants"),
    *(
        "bigbird_dna.huggingface.exchange",
        "bigbird_dna.registry.publishing",
        "bigbird_dna.registry.change",
    ),
)
OF_SNAKEFILES = (
    *(
        "snakemake.cli",
        "snakemake.executors.local",
        "bigbird_dna.reporting.run_page",
        "bigbird_dna.workflow",
    ),
    *("bigbird_dna.papers.nlp.config", "bigbird_dna.genome.sources"),
    *(
        f"bigbird_dna.papers.experiments.{name.partition(':')[0]}"
        for name in EXPERIMENTS.values()
    ),
)
REPOSITORY = Path(__file__).parents[1]


class Ended(NamedTuple):
    """How a process ended."""

    code: int  # negative: by this signal
    out: str
    err: str
    seconds: float


class Nursery:
    """Starts processes of a program, and ends them by a signal after a while if asked to."""

    def __init__(
        self,
        *launcher: str,
        program: str = "bigbird-dna",
        imports: Sequence[str] = IMPORTS,
    ) -> None:
        self._program = program
        self._parent = subprocess.Popen(
            [*launcher, sys.executable, "-m", "tests.nursery", *imports],
            cwd=REPOSITORY,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(
        self,
        words: Sequence[object],
        home: Path,
        *,
        after: float | None = None,
        number: signal.Signals = signal.SIGKILL,
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run the program, whose first word may be several; end it `after` so many seconds.

        Its environment is the present one with these changes; `home` is its place for temporary files, unless
        their TMPDIR is another.
        """
        out, err = home / ".stdout", home / ".stderr"
        out.touch()
        err.touch()
        told = words_of_command(*words)
        order = {
            "program": self._program,
            "words": told,
            "out": str(out),
            "err": str(err),
        }
        self._tell(
            {
                **order,
                "environment": _environment(TMPDIR=str(home)) | dict(environment or {}),
            }
        )
        process, began = int(self._answer()), time.monotonic()
        if after is not None:
            time.sleep(max(0.0, after))
            os.kill(process, number)  # not waited for yet, so its number is its own
        self._tell({"wait": process})
        code = int(self._answer())
        seconds = time.monotonic() - began
        ended = Ended(
            code,
            out.read_text(errors="replace"),
            err.read_text(errors="replace"),
            seconds,
        )
        out.unlink()
        err.unlink()
        return ended

    @property
    def root(self) -> Path:
        """The file system as its processes see it."""
        return Path(f"/proc/{self._parent.pid}/root")

    def close(self) -> None:
        self._parent.communicate(timeout=60)

    def _tell(self, order: Mapping[str, Any]) -> None:
        assert self._parent.stdin is not None
        self._parent.stdin.write(json.dumps(order).encode() + b"\n")
        self._parent.stdin.flush()

    def _answer(self) -> bytes:
        assert self._parent.stdout is not None
        return self._parent.stdout.readline()


def _environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", **changes}


def _serve() -> None:
    from importlib import import_module

    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # also of a new process, until it minds signals itself
    for name in sys.argv[1:]:
        import_module(name)
    for line in iter(sys.stdin.buffer.readline, b""):
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if not answer:
                _be(order)
        os.write(1, f"{answer}\n".encode())


def _be(order: Mapping[str, Any]) -> None:
    """The new process: from here on the program, and nothing else."""
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, order["out"], os.O_WRONLY),
        (2, order["err"], os.O_WRONLY),
    ):
        handle = os.open(path, flags)
        os.dup2(handle, number)
        os.close(handle)
    import tempfile

    sys.stdin = open(0)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(order["environment"])
    tempfile.tempdir = os.environ["TMPDIR"]
    sys.argv = [order["program"], *order["words"]]
    code: object = 0
    try:
        resolve_name(PROGRAMS[order["program"]])()
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):  # as Python itself does
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code or 0))


if __name__ == "__main__":
    _serve()
