"""What the harness knows of a reader."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Container:
    """A format that packs others, so that its members are damaged too and not only what packs them.

    `unwrap` gives the members of a good file's bytes; `wrap` packs members in their place, given the
    same file's bytes. Either may raise anything: the file's own bytes are then damaged instead.
    """

    unwrap: Callable[[bytes], list[bytes]]
    wrap: Callable[[bytes, list[bytes]], bytes]


@dataclass(frozen=True)
class Reader:
    """A reader of files that others made.

    `read` gets the path of a file, alone in a directory of its own, called `input` and `suffix`. It may
    return anything, or raise a `BigBirdDnaError`. Where a directory or a second file is wanted, it puts
    them beside the file. `seeds` gives small good files, the same ones every time. `tokens` are words
    that a mutation may put in. Memory is counted from what the process holds after it read all seeds.
    """

    name: str
    suffix: str
    read: Callable[[Path], object]
    seeds: Callable[[], list[bytes]]
    container: Container | None = None
    tokens: tuple[bytes, ...] = ()
