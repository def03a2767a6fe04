"""Reading a damaged file in another process, which is watched and made anew when it dies."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.child import MEMORY, fresh
from tests.fuzz.reader import Reader

SECONDS = 5.0
"""Of CPU, that an input may take."""
_IMPORTS = 6  # times as long, before the first
_WAITED = 12  # times as long by the clock, on a machine with other work
_ACCEPTED = ("read", "refused")
_REPOSITORY = Path(__file__).resolve().parents[2]
# One thread a library, and memory of which only what is used counts.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONHASHSEED": "0",
    "COLUMNS": "80",
}


@dataclass(frozen=True)
class Outcome:
    """What came of reading an input: `read` or `refused`, or a finding of another kind."""

    kind: str
    text: str
    place: str
    seconds: float  # of CPU
    bytes: int  # at the peak, above what the process held before
    new: int = 0  # lines of code that had not been run before
    cpu: float = 0.0  # seconds, with what the harness does for an input

    @property
    def accepted(self) -> bool:
        """Whether it is as it must be."""
        return self.kind in _ACCEPTED

    @property
    def signature(self) -> tuple[str, str, str]:
        """The same for what is likely the same fault."""
        return (
            self.kind,
            self.text.partition(":")[0] if self.kind == "exception" else "",
            self.place,
        )


class Executor:
    """Reads files in a process of its own; use it as a context."""

    def __init__(
        self,
        directory: Path,
        coverage: bool = False,
        *,
        seconds: float = SECONDS,
        readers: str = "tests.fuzz.readers",
    ) -> None:
        self._directory = directory
        self._seconds = seconds
        self._readers = readers  # the module that lists them
        self._coverage = coverage
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: set[str] = (
            set()
        )  # readers that have read their seeds in this process
        self.cpu = 0.0  # seconds, of all inputs of readers

    def __enter__(self) -> "Executor":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def read(self, reader: Reader, data: bytes) -> Outcome:
        """Read `data` as a file."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        if reader.name not in self._ready:
            for seed in (
                reader.seeds()
            ):  # imports and caches are no input's, however long they take
                self._ask(reader, seed, self._coverage, _IMPORTS * self._seconds)
                if self._process is None:
                    self._start()
            self._ready.add(reader.name)
        outcome = self._ask(reader, data, self._coverage, self._seconds)
        self.cpu += outcome.cpu or outcome.seconds
        return outcome

    def _ask(
        self, reader: Reader, data: bytes, coverage: bool, seconds: float
    ) -> Outcome:
        path = fresh(self._directory, reader, data)
        assert self._process is not None and self._process.stdin is not None
        request = {"reader": reader.name, "path": str(path), "coverage": coverage}
        watch = Watch(self._process.pid)
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._answer(watch, seconds)
        return self._judged(answer)

    def _judged(self, answer: dict[str, Any] | Outcome) -> Outcome:
        if isinstance(answer, Outcome):
            self._stop()
            return answer
        outcome = Outcome(**answer)
        if outcome.accepted and outcome.seconds > self._seconds:
            return Outcome(
                "slow", f"{outcome.seconds:.1f} s", "", outcome.seconds, outcome.bytes
            )
        if outcome.accepted and outcome.bytes > MEMORY:
            text = f"{outcome.bytes >> 20} MB"
            return Outcome("memory", text, "", outcome.seconds, outcome.bytes)
        return outcome

    def _answer(self, watch: "Watch", seconds: float) -> dict[str, Any] | Outcome:
        process = self._process
        assert process is not None and process.stdout is not None
        while True:
            ready, _, _ = select.select([process.stdout], [], [], 0.25)
            if ready:
                line = process.stdout.readline()
                if line:
                    return dict(json.loads(line))
                code = process.wait()
                name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
                return Outcome("crash", name, self._last_words(), watch.seconds, 0)
            if watch.swollen:
                return Outcome(
                    "memory",
                    "more than allowed, still growing",
                    self._stack(),
                    watch.seconds,
                    MEMORY,
                )
            if watch.late(seconds):
                return Outcome(
                    "hang",
                    f"more than {seconds:.1f} s",
                    self._stack(),
                    watch.seconds,
                    0,
                )

    def _stack(self) -> str:
        """Where the process is, as it says when it is aborted."""
        assert self._process is not None
        self._process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        return self._last_words()

    def _last_words(self) -> str:
        lines = (self._directory / "stderr").read_text(errors="replace").splitlines()
        stack = [line.strip() for line in lines if line.startswith('  File "')]
        named = [
            line.replace('File "', "").replace('", line ', ":").partition(" in ")[0]
            for line in stack
        ]
        own = [name for name in named if "/bigbird_dna/" in name]
        chosen = dict.fromkeys([*own[:1], *named[:1]])
        return " < ".join("/".join(Path(name).parts[-3:]) for name in chosen)

    def _start(self) -> None:
        self._stop()
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / "stderr").open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self._command()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=_REPOSITORY,
                env=os.environ | _ENVIRONMENT | {"TMPDIR": str(self._directory)},
                start_new_session=True,
            )

    def _command(self) -> list[str]:
        return ["tests.fuzz.child", self._readers]

    def _stop(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()
            self._process.wait()
        self._process, self._ready = None, set()


class Watch:
    """Time and memory of a process since an input was given to it."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._began = time.monotonic()
        self._cpu, self._bytes = self._now()

    def _now(self) -> tuple[float, int]:
        try:
            fields = (
                Path(f"/proc/{self._process}/stat")
                .read_text()
                .rpartition(")")[2]
                .split()
            )
        except (FileNotFoundError, ProcessLookupError):
            return getattr(self, "_cpu", 0.0), getattr(self, "_bytes", 0)
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"), int(
            fields[21]
        ) * os.sysconf("SC_PAGE_SIZE")

    @property
    def seconds(self) -> float:
        return self._now()[0] - self._cpu

    def late(self, seconds: float) -> bool:
        return (
            self.seconds > seconds or time.monotonic() - self._began > _WAITED * seconds
        )

    @property
    def swollen(self) -> bool:
        return self._now()[1] - self._bytes > 2 * MEMORY


def shrunk(
    execute: Callable[[bytes], Outcome],
    data: bytes,
    outcome: Outcome,
    attempts: int = 60,
) -> bytes:
    """A smaller input with the same outcome, found in a few attempts."""
    size = len(data) // 2
    while size and attempts > 0:
        start = 0
        while start < len(data) and attempts > 0:
            attempts -= 1
            shorter = data[:start] + data[start + size :]
            if execute(shorter).signature == outcome.signature:
                data = shorter
            else:
                start += size
        size //= 2
    return data
