"""Standard input, output and error where they are closed, full, or read by nobody."""

import io
import os
import sys
from typing import TextIO

from bigbird_dna.errors import error_text

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
