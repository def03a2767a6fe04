"""What the harness knows of a reader."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Files = Mapping[str, bytes]


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


def made(write: Callable[[Path], object]) -> dict[str, bytes]:
    """The files that `write` puts into a directory, or below it, by name."""
    with tempfile.TemporaryDirectory() as home:
        write(Path(home))
        return {path.name: path.read_bytes() for path in sorted(Path(home).rglob("*")) if path.is_file()}


def put(files: Files, directory: Path) -> Path:
    """Files in a directory of their own."""
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory


def member(
    reader: str,
    files: Callable[[], Files],
    name: str,
    read: Callable[[Path], object],
    *without: str,
    container: Container | None = None,
    tokens: tuple[bytes, ...] = (),
) -> Reader:
    """A reader of a directory, of which one file is damaged."""
    suffix = Path(name).suffix
    return Reader(
        reader, suffix, among(files, name, read, *without), lambda: [files()[name]], container, tokens
    )


def among(
    files: Callable[[], Files], name: str, read: Callable[[Path], object], *without: str
) -> Callable[[Path], None]:
    """Read a directory of good files but for one, which is the damaged file."""

    def call(path: Path) -> None:
        good = {other: content for other, content in files().items() if other not in without}
        read(put({**good, name: path.read_bytes()}, path.parent / "files"))

    return call
