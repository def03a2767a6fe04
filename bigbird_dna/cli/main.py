"""Entry point of `bigbird-dna`: signals and errors end the process with one line and an exit code.

The module imports little, and the application only after signal handlers are installed. It also handles
standard input, output and error that are closed, full or without a reader.
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
    """A stream that raises `OSError` with its name on every use, as a replacement for a closed stream."""

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
    """Replace standard streams that were closed when the process started.

    Otherwise the next opened files would get their file descriptors, and results would mix with messages.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # uses the lowest free file descriptor
    if sys.stdin is None:
        sys.stdin = _closed(0)
    if sys.stdout is None:
        sys.stdout = _closed(1)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123


def _closed(number: int) -> TextIO:
    raw = _Closed(_NAMES[number])
    buffer = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
    return io.TextIOWrapper(buffer, encoding="utf-8")


def end_output(code: int) -> int:
    """Flush standard output and return the exit code, which is 1 if flushing fails after success."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = code or 1
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error_text(error)
        if code == 0:
            print(
                f"bigbird-dna: error: standard output: cannot be written: {reason}",
                file=sys.stderr,
            )
            code = 1
    else:
        return code
    # Python would flush again at exit and print a traceback.
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    return code


_ENDING = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if hasattr(signal, name)
)

_AGAIN = 5.0  # seconds
_IMPORTING = 0.05  # seconds


class _Signals:
    """Converts signals that end a command to an exception, so that the command cleans up."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.working = False

    def handle(self) -> None:
        """Install the handlers; signals that the caller ignores, as with `nohup`, stay ignored."""
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._receive)

    def leave(self) -> None:
        """Restore the default handlers: during interpreter shutdown a signal ends the process at once."""
        for number in _ENDING:
            if signal.getsignal(number) == self._receive:
                signal.signal(number, signal.SIG_DFL)

    @property
    def exit_code(self) -> int:
        """The exit code that a shell reports for a process ended by the signal."""
        return 128 + (self.received or 0)

    def unraisable(self, error: "sys.UnraisableHookArgs") -> None:
        """Suppress errors that follow from a signal, and of closing files, which their writers report."""
        if self.received is None and not isinstance(error.exc_value, OSError):
            sys.__unraisablehook__(error)

    def printed(
        self,
        kind: type[BaseException],
        error: BaseException,
        traceback: TracebackType | None,
    ) -> None:
        """Suppress the same errors in tracebacks that Cython prints."""
        if self.received is None and not issubclass(kind, OSError):
            sys.__excepthook__(kind, error, traceback)

    def handled(self) -> None:
        """Stop raising the exception of a signal again, because the command has ended."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        if (
            not self.working
        ):  # nothing to clean up; an interrupted import would print a traceback
            os._exit(self.exit_code)
        signal.signal(signal.SIGALRM, self._again)
        self._again(number, frame)

    def _again(self, _: int, frame: FrameType | None) -> None:
        # An exception in the import of a C++ library, such as torch, would abort the process.
        if _is_import(frame):
            signal.setitimer(signal.ITIMER_REAL, _IMPORTING)
            return
        # Some code, such as finalizers, swallows exceptions: the exception is raised until it propagates.
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        raise (
            KeyboardInterrupt
            if self.received == signal.SIGINT
            else SystemExit(self.exit_code)
        )


def _is_import(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith(
        "<frozen importlib"
    ):
        frame = frame.f_back
    return frame is not None


def main() -> NoReturn:
    """Run the command line and exit with its code.

    Exit codes: 0 success, 1 invalid data, 2 invalid usage, 130 SIGINT, 143 SIGTERM, 129 SIGHUP, 75 training
    stopped before its end; running the same command again resumes it.
    """
    signals = _Signals()
    signals.handle()
    guard_streams()
    for stream in (sys.stdout, sys.stderr):
        # Messages have characters such as × and →, which a terminal's encoding may lack.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Python processes that a command starts do not run files of the working directory, such as `tokenize.py`.
    os.environ["PYTHONSAFEPATH"] = "1"
    from typer.main import get_command

    from bigbird_dna.cli.app import app
    from bigbird_dna.disk.atomic import remove_left
    from bigbird_dna.gpus import lease_gpus, release_gpu

    command = get_command(
        app
    )  # slow; calling the application itself would install another excepthook
    # Python and Cython print exceptions that cannot propagate, as in finalizers, with their traceback.
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
    """Run a command, print one line for an error, and return the exit code."""
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
    """Return an error as one line: empty if it must not be printed, None for a defect of this software."""
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
            names = " → ".join(
                str(name)
                for name in (error.filename, error.filename2)
                if name is not None
            )
            reason = error.strerror or error_text(error)
            return f"{names}: {reason}" if names else reason
    return None


if __name__ == "__main__":
    main()
