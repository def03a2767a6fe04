"""Log messages and progress bars on standard error; standard output is reserved for results."""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Self, TypeVar

from bigbird_dna.errors import printable

T = TypeVar("T")
Total = int | Callable[[], int] | None

_FIRST = 30.0  # seconds between the first progress lines
_FRACTION = 0.15  # fraction of the elapsed time between later progress lines: about fifty lines per day
_FOUND_OUT = 10.0  # seconds before a total that is expensive to compute is requested


def log(message: str) -> None:
    """Write one line with the time of day to standard error.

    Write errors are ignored, so that work continues if the terminal is closed or the disk is full.
    """
    with suppress(OSError):
        print(
            f"{time.strftime('%H:%M:%S')}  {printable(message)}",
            file=sys.stderr,
            flush=True,
        )


class ProgressBar:
    """Progress of a loop: a bar, or occasional log lines if standard error is not a terminal.

    If `total` is a function, it is called after some seconds, to avoid a delay of the first items; `unit` is
    a plural noun.
    """

    def __init__(self, description: str, total: Total = None, unit: str = "") -> None:
        self._description = description
        self._total = total
        self._unit = unit
        self._done = 0
        self._began = time.monotonic()
        self._bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            known = None if callable(total) else total
            self._task = self._bar.add_task(description, total=known)
        self._due = self._began + (_FOUND_OUT if self._bar else _FIRST)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def advance(self, count: int = 1) -> None:
        """Add to the number of items that are done."""
        self._done += count
        if self._bar:
            self._bar.advance(self._task, count)
        now = time.monotonic()
        if now < self._due:
            return
        if callable(self._total):
            self._total = self._total()
        if self._bar:
            self._bar.update(self._task, total=self._total)
            self._due = math.inf
            return
        passed = now - self._began
        how_far = _how_far(self._done, self._total, self._unit, passed)
        log(f"{self._description}: {how_far}")
        self._due = now + max(_FIRST, _FRACTION * passed)


def progress(
    items: Iterable[T], description: str, total: Total = None, unit: str = ""
) -> Iterator[T]:
    """Yield `items` with a `ProgressBar`."""
    with ProgressBar(description, total, unit) as bar:
        for item in items:
            yield item
            bar.advance()


def _how_far(done: int, total: int | None, unit: str, seconds: float) -> str:
    """Return `12 % (1,234,567 of 10,000,000 windows), 4 min left`, or number and time without a total."""
    name = f" {unit}" if unit else ""
    if total is None or done > total:
        return f"{done:,}{name} in {duration(seconds)}"
    left = duration(seconds / done * (total - done))
    return f"{done * 100 // total} % ({done:,} of {total:,}{name}), {left} left"


def duration(seconds: float) -> str:
    """Return a duration in one or two units: `50 s`, `4 min`, `3 h 10 min`, `2 d 4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"
