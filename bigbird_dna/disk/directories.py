"""Write result directories without losing any content that an earlier run did not write.

The hidden file `MARKER` of a directory lists the files of the run that wrote it. A directory with other files
is not replaced.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from bigbird_dna.disk.atomic import (
    link_target,
    make_parent,
    scratch_directory,
    write_json,
)
from bigbird_dna.errors import UsageError

MARKER = ".bigbird-dna.json"
FORCE = ContextVar("FORCE", default=False)
"""Whether directories with other files may be replaced: the option `--force` of commands."""
# Snakemake's empty file in the directories that its rules create.
_OF_SNAKEMAKE = ".snakemake_timestamp"


def check_directory(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise `UsageError` for a directory that is not writable, or not replaceable without loss.

    This includes a file; an input, its parents and its contents; the working directory and its parents; and a
    directory with a file that no earlier run wrote. A link stands for the directory that it leads to. Call it
    before long work; `atomic_directory` checks again.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path}: must be a directory, not a file")

    target = link_target(path)
    real = path.resolve()
    working = Path.cwd()
    if real in (working, *working.parents):
        raise UsageError(
            f"{path}: must not be the current directory or one that contains it"
        )

    inputs = list(inputs)
    for source in inputs:
        if source.exists() and real in source.resolve().parents:
            raise UsageError(f"{path}: must not contain the input {source}")

    _check_not_inside(path, inputs)
    foreign = _files(target) - _files_of_run(target) - {MARKER, _OF_SNAKEMAKE}
    if foreign and not FORCE.get():
        raise UsageError(
            f"{path}: contains {min(foreign)!r}, which no earlier run wrote. Move or delete it, choose another"
            " output, or give --force"
        )

    make_parent(target)
    with scratch_directory(target.parent, path):
        pass


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yield an empty directory that replaces `path` if the block ends without an error.

    Errors are those of `check_directory`, before the block and after it; nothing is then written.
    """
    check_directory(path)
    path = link_target(Path(path))
    with scratch_directory(path.parent) as scratch:
        temporary = scratch / "incoming"
        temporary.mkdir()
        yield temporary
        write_json(temporary / MARKER, {"files": sorted(_files(temporary))})
        check_directory(path)
        if path.exists():
            path.rename(scratch / "outgoing")

        temporary.rename(path)


@contextmanager
def into_directory(
    path: Path, inputs: Iterable[Path | str | None] = ()
) -> Iterator[Path]:
    """Yield an empty directory whose files are moved into `path` if the block ends without an error.

    They replace files of the same name; other files in `path` are kept. `UsageError` if `path` cannot be
    created or is inside an input.
    """
    path = Path(path)
    _check_not_inside(path, inputs)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path}: must be a directory, not a file")

    path = link_target(path)
    make_parent(path / MARKER)
    with scratch_directory(path) as temporary:
        yield temporary
        names = _files(temporary)
        if (path / MARKER).is_file():
            files = sorted(_files_of_run(path) | names)
            write_json(path / MARKER, {"files": files})

        for name in sorted(names):
            make_parent(path / name)
            (temporary / name).replace(path / name)


def _check_not_inside(path: Path, inputs: Iterable[Path | str | None]) -> None:
    real = path.resolve()
    for source in inputs:
        if source is None or not Path(source).is_dir():
            continue
        if Path(source).resolve() in (real, *real.parents):
            raise UsageError(f"{path}: must not be or be inside the input {source}")


def _files(directory: Path) -> set[str]:
    files = (path for path in directory.rglob("*") if not path.is_dir())
    return {str(path.relative_to(directory)) for path in files}


def _files_of_run(directory: Path) -> set[str]:
    """Return the files that an earlier run wrote; an unreadable list counts as empty."""
    try:
        text = (directory / MARKER).read_text(encoding="utf-8")
        return set(json.loads(text)["files"])
    except (OSError, ValueError, LookupError, TypeError):
        return set()
