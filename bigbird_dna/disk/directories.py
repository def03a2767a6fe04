"""Write result directories without losing any content that an earlier run did not write.

The hidden file `MARKER` of a directory lists the files of earlier runs. Other files are foreign, and are
neither replaced nor removed.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path

from bigbird_dna.disk.atomic import (
    full_disk_reported,
    link_target,
    make_parent,
    read_json,
    scratch_directory,
)
from bigbird_dna.errors import DataError, UsageError

MARKER = ".bigbird-dna.json"
FORCE = ContextVar("FORCE", default=False)
"""Whether foreign files may be replaced: the option `--force` of commands."""
# Snakemake's empty file in the directories that its rules create.
_OF_SNAKEMAKE = ".snakemake_timestamp"


def check_directory(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise `UsageError` for a directory that is not writable, or not replaceable without loss.

    This includes a file or mount point; an input, its parents and its contents; the working directory and its
    parents; and a directory with a file that no earlier run wrote. A link stands for the directory that it
    leads to. Call it before long work; `atomic_directory` checks again.
    """
    path = Path(path)
    target = link_target(path)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path}: must be a directory, not a file")
    real = path.resolve()
    working = Path.cwd().resolve()
    if real in (working, *working.parents):
        raise UsageError(
            f"{path}: must not be the current directory or one that contains it"
        )
    if path.exists() and real.is_mount():
        raise UsageError(f"{path}: must not be a mount point; name a directory in it")
    inputs = [Path(one) for one in inputs]
    for one in inputs:
        if one.exists() and real in (one.resolve(), *one.resolve().parents):
            raise UsageError(f"{path}: must not be or contain the input {one}")
    _check_not_inside(path, inputs)
    foreign = None if FORCE.get() else _foreign_file(target)
    if foreign:
        raise UsageError(
            f"{path}: contains {foreign!r}, which no earlier run wrote. Move or delete it, choose another"
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
    with _incoming(path, path.parent) as temporary:
        yield temporary
        _write_marker(temporary, _files(temporary))
        if path.exists():
            check_directory(path)
            path.rename(temporary.with_name("outgoing"))
        temporary.rename(path)


@contextmanager
def into_directory(
    path: Path, inputs: Iterable[Path | str | None] = ()
) -> Iterator[Path]:
    """Yield an empty directory whose files are moved into `path` if the block ends without an error.

    Other files in `path` are kept. `UsageError`, without any change, if `path` cannot be created or is inside
    an input, or if it has a file of the same name that no earlier run wrote.
    """
    _check_not_inside(Path(path), inputs)
    path = link_target(Path(path))
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path}: must be a directory, not a file")
    make_parent(path / MARKER)
    with _incoming(path, path) as temporary:
        yield temporary
        known = _listed(path)
        names = _files(temporary)
        for name in sorted(names - known):
            if os.path.lexists(path / name) and not FORCE.get():
                raise UsageError(
                    f"{path / name} exists and was not written by bigbird-dna. Move or delete it,"
                    " choose another output, or give --force"
                )
        # First, so that a run that is interrupted between two files can be repeated.
        _write_marker(path, known | names)
        for name in sorted(names):
            make_parent(path / name)
            (temporary / name).replace(path / name)


@contextmanager
def _incoming(path: Path, parent: Path) -> Iterator[Path]:
    """Yield an empty directory in `parent` for the new content of `path`; remove it after use."""
    with scratch_directory(parent, path) as scratch, full_disk_reported(path, scratch):
        temporary = scratch / "incoming"
        temporary.mkdir()
        yield temporary


def _check_not_inside(path: Path, inputs: Iterable[Path | str | None]) -> None:
    for one in inputs:
        if one is None or not Path(one).is_dir():
            continue
        if Path(one).resolve() == path.resolve():
            raise UsageError(f"{path}: must not be the input {one}")
        if Path(one).resolve() in path.resolve().parents:
            raise UsageError(f"{path}: must not be inside the input {one}")


def _foreign_file(directory: Path) -> str | None:
    """Return the first file or directory that no earlier run wrote; None without one."""
    if not directory.is_dir():
        return None
    known = _listed(directory)
    known |= {str(parent) for name in known for parent in Path(name).parents}
    known |= {MARKER, _OF_SNAKEMAKE}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if name not in known:
            return name
    return None


def _files(directory: Path) -> set[str]:
    paths = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)) for path in paths} - {MARKER}


def _listed(directory: Path) -> set[str]:
    """Return the files that earlier runs wrote; an unreadable list counts as empty."""
    try:
        return set(read_json(directory / MARKER)["files"])
    except (DataError, LookupError, TypeError):
        return set()


def _write_marker(directory: Path, files: Iterable[str]) -> None:
    values = {"bigbird-dna": version("bigbird-dna"), "files": sorted(files)}
    with scratch_directory(directory) as scratch:
        temporary = scratch / MARKER
        temporary.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        temporary.replace(directory / MARKER)
