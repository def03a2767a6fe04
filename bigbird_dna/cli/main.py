"""The `bigbird-dna` command: from its start, signals and errors end it with one line and an exit code.

Little is imported here, and the application only once signals are minded.

Standard input, output and error where they are closed, full, or read by nobody.
"""

import io
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import NoReturn, TextIO

from bigbird_dna.errors import BigBirdDnaError, Stopped, error_text, printable

_NAMES = ("input", "output", "error")


class _Closed(io.RawIOBase):
    """A stream that says that it was closed when it is used."""

    def __init__(self, name: str) -> None:
        self._stream = name

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, _: object) -> int:
        raise OSError(9, f"standard {self._stream} is closed")

    def write(self, _: object) -> int:
        raise OSError(9, f"standard {self._stream} is closed")


def guard_streams() -> None:
    """Put something in the place of standard streams that were closed when the process began.

    Without, the next files that are opened would get their numbers, and results would mix with messages.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stdin is None:
        sys.stdin = _closed(0)
    if sys.stdout is None:
        sys.stdout = _closed(1)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123


def _closed(number: int) -> TextIO:
    raw = _Closed(_NAMES[number])
    buffer = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
    return io.TextIOWrapper(buffer, encoding="utf-8")


def end_output(code: int) -> int:
    """Write what is left in the buffer of standard output; the exit code, which a failure changes."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = code or 1
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error_text(error)
        if code == 0:
            print(f"bigbird-dna: error: standard output: can't be written: {reason}", file=sys.stderr)
            code = 1
    else:
        return code
    # Python would try again at its end, and print a traceback.
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
    return code


_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

_AGAIN = 5.0  # seconds


class _Signals:
    """Turns the signals that end a command into an exception, so that it cleans up behind itself."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.working = False

    def handle(self) -> None:
        """From now on; a signal that the caller has us ignore, as `nohup` does, stays ignored."""
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._receive)

    def leave(self) -> None:
        """What is left to do is Python's own end: a signal then ends it at once."""
        for number in _ENDING:
            if signal.getsignal(number) == self._receive:
                signal.signal(number, signal.SIG_DFL)

    @property
    def exit_code(self) -> int:
        """As the shell reports a process that a signal has ended."""
        return 128 + (self.received or 0)

    def unraisable(self, error: "sys.UnraisableHookArgs") -> None:
        """Say nothing of what follows from a signal, or of files that can't be closed: their writer has."""
        if self.received is None and not isinstance(error.exc_value, OSError):
            sys.__unraisablehook__(error)

    def printed(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        """The same, for what Cython prints by itself."""
        if self.received is None and not issubclass(kind, OSError):
            sys.__excepthook__(kind, error, traceback)

    def handled(self) -> None:
        """The command has ended: the signal needn't be said again."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _receive(self, number: int, _: FrameType | None) -> None:
        self.received = number
        if not self.working:  # nothing to clean up, and imports would print what broke them off
            os._exit(self.exit_code)
        # Some code, finalisers for one, lets no exception through: it is raised until it is heard.
        signal.signal(signal.SIGALRM, self._again)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN, _AGAIN)
        self._again()

    def _again(self, *_: object) -> None:
        raise KeyboardInterrupt if self.received == signal.SIGINT else SystemExit(self.exit_code)


def main() -> NoReturn:
    """Run the command line.

    The exit code is 0 done, 1 bad data, 2 bad usage; 130 interrupted, 143 terminated, 129 hung up; 75: a
    training has stopped before its end, and the same command goes on with it.
    """
    signals = _Signals()
    signals.handle()
    guard_streams()
    from typer.main import get_command

    from bigbird_dna.cli.app import app
    from bigbird_dna.disk.atomic import remove_left
    from bigbird_dna.gpus import lease_gpus, release_gpu

    command = get_command(app)  # takes a while; the application itself would set a hook of its own
    # Where an exception can't go on, as in a finaliser, Python and Cython print it with its traceback.
    sys.unraisablehook, sys.excepthook = signals.unraisable, signals.printed
    signals.working = True
    lease_gpus()
    code = _ended(command, signals)
    remove_left()
    release_gpu()
    if signals.received is None:
        code = end_output(code)
    signals.leave()
    sys.exit(code)


def _ended(command: Callable[[], object], signals: _Signals) -> int:
    """Run a command to its end; the exit code, with the one line about what went wrong written."""
    try:
        command()
        return 0
    except SystemExit as error:
        signals.handled()
        return signals.exit_code if signals.received else _code(error)
    except BaseException as error:
        signals.handled()
        if signals.received is not None:
            return signals.exit_code
        line = _error_line(error)
        if line is None:
            sys.__excepthook__(type(error), error, error.__traceback__)
        elif line:
            kind = "" if isinstance(error, Stopped) else "error: "
            print(f"bigbird-dna: {kind}{printable(line)}", file=sys.stderr)
        return error.exit_code if isinstance(error, BigBirdDnaError) else 1


def _code(error: SystemExit) -> int:
    return error.code if isinstance(error.code, int) else int(error.code is not None)


def _error_line(error: BaseException) -> str | None:
    """An error as one line; empty where nobody reads it, and None for a defect of this software."""
    match error:
        case Stopped(silent=True):
            return ""
        case BigBirdDnaError():
            return str(error)
        case BrokenPipeError():
            return ""
        case MemoryError():
            return f"there is not enough memory ({error_text(error)})"
        case RecursionError():
            return "something in the input is nested too deeply"
        case OSError():
            names = " → ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
            reason = error.strerror or error_text(error)
            return f"{names}: {reason}" if names else reason
    return None


if __name__ == "__main__":
    main()
