"""Log messages and progress bars on standard error; standard output is reserved for results."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, Self, TypeVar

from bigbird_dna.errors import printable

T = TypeVar("T")

FIRST = 30.0  # seconds between the first progress lines
FRACTION = 0.15  # of the elapsed time between later ones: about fifty lines per day


def log(message: str) -> None:
    """Write one line with the time of day to standard error.

    Write errors are ignored, so that work continues if the terminal is closed or the disk is full.
    """
    with suppress(OSError):
        line = f"{time.strftime('%H:%M:%S')}  {printable(message)}"
        print(line, file=sys.stderr, flush=True)


class ProgressBar:
    """Progress of a loop: a bar, or occasional log lines if standard error is not a terminal.

    `unit` is a plural noun. There may be more items than `total`, which is an estimate for a stream.
    """

    def __init__(
        self, description: str, total: int | None = None, unit: str = ""
    ) -> None:
        self.description = description
        self.total = total
        self.unit = unit
        self.done = 0
        self.began = time.monotonic()
        self.due = self.began + FIRST
        self.bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task(description, total=total)

    def __enter__(self) -> Self:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def advance(self, count: int = 1) -> None:
        """Add to the number of items that are done."""
        self.done += count
        if self.bar:
            self.bar.advance(self.task, count)
            return

        now = time.monotonic()
        if now < self.due:
            return

        elapsed = now - self.began
        self.due = now + max(FIRST, FRACTION * elapsed)
        text = f"{self.description}: {self.done:,} {self.unit}".rstrip()
        if self.total is None or self.done > self.total:
            log(f"{text} in {timedelta(seconds=round(elapsed))}")
        else:
            left = round(elapsed / self.done * self.total - elapsed)
            log(f"{text} of {self.total:,}, {timedelta(seconds=left)} left")


def progress(
    items: Iterable[T], description: str, total: int | None = None, unit: str = ""
) -> Iterator[T]:
    """Yield `items` with a `ProgressBar`."""
    with ProgressBar(description, total, unit) as bar:
        for item in items:
            yield item
            bar.advance()
