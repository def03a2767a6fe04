"""Log messages and progress bars on standard error; standard output is reserved for results."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

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


def progress(
    items: Iterable[T], description: str, total: Total = None, unit: str = ""
) -> Iterator[T]:
    """Yield `items` with a progress bar, or with occasional log lines if standard error is not a terminal.

    If `total` is a function, it is called after some seconds, to avoid a delay of the first items; `unit` is
    a plural noun.
    """
    if not sys.stderr.isatty():
        yield from _with_lines(items, description, total, unit)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None)
        found = None if callable(total) else total

        def watched() -> Iterator[T]:
            due = time.monotonic() + _FOUND_OUT
            for item in items:
                yield item
                if due and callable(total) and time.monotonic() >= due:
                    bar.update(task, total=total())
                    due = 0.0

        yield from bar.track(watched(), total=found, task_id=task)


def _with_lines(
    items: Iterable[T], description: str, total: Total, unit: str
) -> Iterator[T]:
    began = time.monotonic()
    due = began + _FIRST
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now < due:
            continue
        if callable(total):
            total = total()
        log(f"{description}: {_how_far(done, total, unit, now - began)}")
        due = now + max(_FIRST, _FRACTION * (now - began))


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
