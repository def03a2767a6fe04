"""Messages and progress bars, all on standard error; standard output is for results."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from bigbird_dna.errors import printable

T = TypeVar("T")


def log(message: str) -> None:
    """Write one line with the time of day to standard error.

    Work goes on where nobody can read it: the terminal was closed, or the log's disk is full.
    """
    with suppress(OSError):
        print(f"{time.strftime('%H:%M:%S')}  {printable(message)}", file=sys.stderr, flush=True)


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Yield `items` behind a progress bar; without a bar where standard error is no terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(
        items, description=description, total=total, console=Console(stderr=True), transient=True
    )
