"""Processes of the command line that start at once: forked from one that has imported everything.

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
from typing import Any, NamedTuple

IMPORTS = (
    *("torch", "pandas", "pyarrow.parquet", "pysam", "pyfaidx", "scipy.sparse", "sklearn.linear_model"),
    *("matplotlib.pyplot", "h5py", "sentencepiece", "safetensors.torch", "bigbird_dna.cli.app"),
    *("bigbird_dna.pretraining.task", "bigbird_dna.finetuning.chromatin"),
    *("bigbird_dna.finetuning.evaluation", "bigbird_dna.finetuning.promoters"),
    *("bigbird_dna.scoring.promoters", "bigbird_dna.scoring.variants"),
    *("bigbird_dna.huggingface.exchange", "bigbird_dna.registry.publishing", "bigbird_dna.registry.change"),
)
REPOSITORY = Path(__file__).parents[2]


class Ended(NamedTuple):
    """How a process ended."""

    code: int  # negative: by this signal
    out: bytes
    err: str
    seconds: float


class Nursery:
    """Starts processes of the command line, and ends them by a signal after a while if asked to."""

    def __init__(self, *launcher: str) -> None:
        self._parent = subprocess.Popen(
            [*launcher, sys.executable, "-m", "tests.faults.nursery"],
            cwd=REPOSITORY,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"},
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
        """Run a command; end it `after` so many seconds.

        `home` is its place for temporary files, unless the environment's TMPDIR is another.
        """
        out, err = home / ".stdout", home / ".stderr"
        out.touch()
        err.touch()
        order = {"words": [*map(str, words)], "out": str(out), "err": str(err), "home": str(home)}
        self._tell({**order, "environment": dict(environment or {})})
        process, began = int(self._answer()), time.monotonic()
        if after is not None:
            time.sleep(max(0.0, after))
            os.kill(process, number)  # not waited for yet, so its number is its own
        self._tell({"wait": process})
        code = int(self._answer())
        seconds = time.monotonic() - began
        ended = Ended(code, out.read_bytes(), err.read_text(errors="replace"), seconds)
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


def _serve() -> None:
    from importlib import import_module

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # also of a new process, until it minds signals itself
    for name in IMPORTS:
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
    """The new process: from here on the command line, and nothing else."""
    from bigbird_dna.cli.main import main

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
    os.environ.update({"TMPDIR": order["home"], **order["environment"]})
    tempfile.tempdir = os.environ["TMPDIR"]
    sys.argv = ["bigbird-dna", *order["words"][0].split(), *order["words"][1:]]
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    _serve()
