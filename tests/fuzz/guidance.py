"""What atheris, where it is installed, makes of a reader: files chosen by the code that they reach."""

from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.execution import Executor, Outcome, Watch
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
        return ["tests.fuzz.guided", self._reader.name, str(self._directory), str(self._seed)]
