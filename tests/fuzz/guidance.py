"""What atheris, where it is installed, makes of a reader: files chosen by the code that they reach.

    python -m tests.fuzz.guidance READER DIRECTORY SEED

reads them in a process that may die. Files that reached something new are kept in DIRECTORY/found. Each line
that goes out is answered by one, so that the input stays where it is until then.
"""

import faulthandler
import json
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.execution import Executor, Outcome, Watch
from tests.fuzz.mutation import LARGEST, Mutator
from tests.fuzz.reader import Reader

AVAILABLE = find_spec("atheris") is not None
_START = 120.0  # seconds of CPU for imports


class GuidedExecutor(Executor):
    """Reads the files that atheris chooses for a reader, for ever."""

    def __init__(self, directory: Path, reader: Reader, seed: int) -> None:
        super().__init__(directory)
        self._reader, self._seed = reader, seed

    def next(self) -> tuple[bytes, Outcome]:
        """The next file, and what came of reading it."""
        for _ in range(3):
            if self._process is None or self._process.poll() is not None:
                self._seed += 1000
                self._start()
            assert self._process is not None
            begun = self._answer(Watch(self._process.pid), _START)
            if not isinstance(begun, Outcome):
                break
            self._stop()
        else:
            raise RuntimeError(f"atheris doesn't start: {begun}")
        self._go_on()
        outcome = self._judged(self._answer(Watch(self._process.pid), self._seconds))
        data = (self._directory / "input" / f"input{self._reader.suffix}").read_bytes()
        self._go_on()
        self.cpu += outcome.cpu or outcome.seconds
        return data, outcome

    def _go_on(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()

    def _command(self) -> list[str]:
        return [
            "tests.fuzz.guidance",
            self._reader.name,
            str(self._directory),
            str(self._seed),
        ]


_INSTRUMENTED = ["bigbird_dna", "scipy.io.matlab", "yaml", "pyfaidx"]


def main() -> None:
    """Read damaged files until the process is ended."""
    import atheris

    from tests.fuzz.child import fresh, own_streams, read

    requests, answers = own_streams()
    name, home, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    faulthandler.enable()
    warnings.simplefilter("ignore")
    with atheris.instrument_imports(include=_INSTRUMENTED):
        from tests.fuzz.readers import READERS
    from tests.fuzz.hunting import corpus

    reader = READERS[name]
    starts = [*reader.seeds(), *corpus(reader)]
    for data in starts:
        read(reader, fresh(home, reader, data), None)
    mutator = Mutator(reader, starts, seed)
    found = home / "found"
    found.mkdir(exist_ok=True)
    for number, data in enumerate(starts):
        (found / f"start-{number}").write_bytes(data)

    def try_one(data: bytes) -> None:
        began = time.process_time()
        path = fresh(home, reader, data)
        print("{}", file=answers, flush=True)
        requests.readline()
        answer = read(reader, path, None)
        answer["cpu"] = time.process_time() - began
        print(json.dumps(answer), file=answers, flush=True)
        requests.readline()

    def damage(data: bytes, size: int, number: int) -> bytes:
        return (
            mutator.damaged(data)[:size] if number % 4 else atheris.Mutate(data, size)
        )

    limits = [
        "-rss_limit_mb=0",
        "-malloc_limit_mb=0",
        "-timeout=100000",
        "-len_control=0",
        "-detect_leaks=0",
    ]
    own = [
        f"-handle_{kind}=0"
        for kind in (
            "abrt",
            "bus",
            "fpe",
            "ill",
            "segv",
            "int",
            "term",
            "xfsz",
            "usr1",
            "usr2",
        )
    ]
    options = [
        f"-max_len={LARGEST}",
        f"-seed={seed + 1}",
        "-verbosity=0",
        *limits,
        *own,
    ]
    atheris.Setup([sys.argv[0], str(found), *options], try_one, custom_mutator=damage)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
