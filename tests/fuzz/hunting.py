"""A reader's budget spent on damaged files, and what was found."""

import hashlib
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.execution import Executor, Outcome, shrunk
from tests.fuzz.guidance import GuidedExecutor
from tests.fuzz.mutation import Mutator
from tests.fuzz.reader import Reader

HOME = Path(__file__).resolve().parent
CORPUS, FINDINGS = HOME / "corpus", HOME / "findings"
_MOST = 25  # findings of a reader, after which it is left alone


@dataclass
class Result:
    """What a reader was put through, and what came of it."""

    reader: str
    executions: int = 0
    cpu: float = 0.0  # seconds
    slowest: float = 0.0  # seconds of CPU
    largest: int = 0  # bytes at the peak of one input
    kinds: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[Outcome, Path]] = field(default_factory=list)

    def count(self, outcome: Outcome) -> None:
        """Add an execution."""
        self.executions += 1
        self.kinds[outcome.kind] += 1
        self.slowest = max(self.slowest, outcome.seconds)
        self.largest = max(self.largest, outcome.bytes)

    def row(self) -> dict[str, object]:
        """Its line of the table."""
        return {
            "reader": self.reader,
            "executions": self.executions,
            "read": self.kinds["read"],
            "cpu_seconds": round(self.cpu, 1),
            "slowest_seconds": round(self.slowest, 2),
            "peak_mb": round(self.largest / 2**20, 1),
            "findings": len(self.findings),
        }


def corpus(reader: Reader) -> list[bytes]:
    """The inputs that are kept for a reader, most of them found once."""
    return [
        path.read_bytes()
        for path in sorted((CORPUS / reader.name).glob("*"))
        if path.is_file()
    ]


def hunt(
    reader: Reader,
    cpu: float,
    seed: int = 0,
    *,
    guided: bool = False,
    out: Path = FINDINGS,
) -> Result:
    """Give a reader its corpus, then damaged files, for `cpu` seconds of this process and the reading one.

    Findings are made smaller and written to `out`. With `guided`, atheris chooses the files; otherwise a file
    that reaches new lines is a start of others.
    """
    result = Result(reader.name)
    kept = [*reader.seeds(), *corpus(reader)]
    own = time.thread_time()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory, ExitStack() as stack:
        executor = stack.enter_context(
            Executor(Path(directory, "alone"), coverage=not guided)
        )
        for data in kept:
            _count(executor, reader, data, executor.read(reader, data), result, out)
        if guided:
            guide = stack.enter_context(
                GuidedExecutor(Path(directory, "guided"), reader, seed)
            )
        mutator = Mutator(reader, kept, seed)
        while result.cpu < cpu and len(result.findings) < _MOST:
            if guided:
                data, outcome = guide.next()
            else:
                data = mutator()
                outcome = executor.read(reader, data)
                if (
                    outcome.new and outcome.seconds < 0.1
                ):  # slow ones would take the whole budget
                    mutator.keep(data)
            _count(executor, reader, data, outcome, result, out)
            # Making a file and sending it is counted too: it costs more than to refuse it at once.
            result.cpu = (
                executor.cpu + time.thread_time() - own + (guide.cpu if guided else 0)
            )
    return result


def _count(
    executor: Executor,
    reader: Reader,
    data: bytes,
    outcome: Outcome,
    result: Result,
    out: Path,
) -> None:
    """Count an execution; write what was found, if it is new, as small as it can soon be made."""
    result.count(outcome)
    known = {found.signature for found, _ in result.findings}
    if outcome.accepted or outcome.signature in known:
        return
    attempts = 60 if outcome.kind in ("exception", "message") else 6
    data = shrunk(
        lambda shorter: executor.read(reader, shorter), data, outcome, attempts
    )
    directory = out / reader.name
    directory.mkdir(parents=True, exist_ok=True)
    path = (
        directory
        / f"{outcome.kind}-{hashlib.sha256(data).hexdigest()[:12]}{reader.suffix}"
    )
    path.write_bytes(data)
    result.findings.append((outcome, path))
    print(
        f"{reader.name}: {outcome.kind}: {outcome.text} at {outcome.place}\n    {path}",
        flush=True,
    )
