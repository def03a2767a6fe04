"""Directories that results go to: nothing in them is lost that wasn't written by an earlier run.

What a run writes is listed, with checksums, in the hidden file `MARKER` of the directory. What isn't listed
there, or has changed since, belongs to somebody else, and is neither replaced nor removed.
"""

import ctypes
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from bigbird_dna.disk.atomic import (
    checksum,
    full_disk_reported,
    make_parent,
    make_scratch,
    read_json,
    scratch_directory,
    sweep,
)
from bigbird_dna.errors import DataError, UsageError

MARKER = ".bigbird-dna.json"
# Snakemake's own, empty, in the directories that its rules make.
_OF_SNAKEMAKE = ".snakemake_timestamp"
_AT_WORKING_DIRECTORY = -100
_EXCHANGE = 2


def check_directory(path: Path, inputs: Iterable[Path] = ()) -> None:
    """`UsageError` for a directory that can't be written, or can't be replaced without loss.

    So is a file, link or mount point, an input or what is around or in one, the working directory or what is
    around it, and a directory with a file that no earlier run wrote. Long work calls this before it begins;
    `atomic_directory` looks again.
    """
    path = Path(path)
    _check_location(path, inputs)
    if strange := _foreign(path):
        raise UsageError(f"{path}: {strange}; only what an earlier run wrote is replaced: move it away")
    make_parent(path)
    with scratch_directory(path.parent, path):
        pass


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Give an empty directory; it takes the place of `path` in one step if the block ends well.

    Errors are those of `check_directory`, before the block, and also after it: nothing is written then.
    """
    path = Path(path)
    check_directory(path)
    with _incoming(path, path.parent) as temporary:
        yield temporary
        _write_marker(temporary, {name: [checksum(temporary / name)] for name in _files(temporary)})
        _replace(path, temporary)


@contextmanager
def into_directory(path: Path, inputs: Iterable[Path] = ()) -> Iterator[Path]:
    """Give an empty directory; its files go into `path` if the block ends well, beside what is there.

    `UsageError`, and nothing is written: `path` can't be made or lies in an input, or a file of the same name
    is there that no earlier run wrote, or that has changed since.
    """
    path = Path(path)
    _check_inside(path, inputs)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path}: is a file, a directory is to be written")
    make_parent(path / MARKER)
    with _incoming(path, path) as temporary:
        yield temporary
        with _locked(path):
            _move_into(path, temporary)


@contextmanager
def _incoming(path: Path, parent: Path) -> Iterator[Path]:
    """An empty directory in `parent`, removed after use, for what goes to `path`."""
    with scratch_directory(parent, path) as scratch, full_disk_reported(path, scratch):
        temporary = scratch / "incoming"
        temporary.mkdir()
        yield temporary


def _move_into(path: Path, temporary: Path) -> None:
    known = _listed(path)
    names = sorted(_files(temporary))
    for name in names:
        target = path / name
        if (target.exists() or target.is_symlink()) and not _is_ours(target, known.get(name, [])):
            raise UsageError(
                f"{target}: is there and no earlier run wrote it as it is; only what an earlier run wrote is "
                "replaced: move it away"
            )
    new = {name: [checksum(temporary / name)] for name in names}
    # Until all have moved, old and new are both ours: a run that is killed on the way can be run again.
    _write_marker(path, known | {name: [*known.get(name, []), *new[name]] for name in names})
    for name in names:
        make_parent(path / name)
        (temporary / name).replace(path / name)
    _write_marker(path, known | new)


def _check_location(path: Path, inputs: Iterable[Path]) -> None:
    if path.is_symlink():
        raise UsageError(f"{path}: is a symbolic link; name the directory that is to be written itself")
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path}: is a file, a directory is to be written")
    real, working = path.resolve(), Path.cwd().resolve()
    if real == working or real in working.parents:
        raise UsageError(f"{path}: is the working directory or around it; name a directory of its own")
    if path.exists() and path.is_mount():
        raise UsageError(f"{path}: is a mount point; name a directory in it")
    inputs = [Path(one) for one in inputs]
    for one in inputs:
        if one.exists() and real in (one.resolve(), *one.resolve().parents):
            raise UsageError(f"{path}: is the input {one}, or holds it; name a directory of its own")
    _check_inside(path, inputs)


def _check_inside(path: Path, inputs: Iterable[Path]) -> None:
    for one in inputs:
        if Path(one).is_dir() and Path(one).resolve() in path.resolve().parents:
            raise UsageError(f"{path}: lies in the input {one}; name a directory elsewhere")


def _foreign(path: Path, *, contents: bool = True) -> str:
    """What in a directory no earlier run wrote, as a clause; empty where all is ours, or nothing is there."""
    if not path.is_dir():
        return ""
    sweep(path)
    known = _listed(path)
    folders = {str(parent) for name in known for parent in Path(name).parents}
    for found, directories, names in os.walk(path):
        for name in sorted((*directories, *names)):
            one = Path(found, name)
            relative = str(one.relative_to(path))
            plain = not one.is_symlink()
            if plain and (relative in folders if one.is_dir() else relative in (MARKER, _OF_SNAKEMAKE)):
                continue
            if relative not in known:
                return f"holds {relative!r}, which no earlier run wrote"
            if contents and not _is_ours(one, known[relative]):
                return f"holds {relative!r}, which has changed since an earlier run wrote it"
    return ""


def _is_ours(file: Path, checksums: list[str]) -> bool:
    try:
        return file.is_file() and not file.is_symlink() and checksum(file) in checksums
    except OSError:
        return False


def _files(directory: Path) -> list[str]:
    found = (one.relative_to(directory) for one in directory.rglob("*") if one.is_file())
    return [str(one) for one in found if str(one) != MARKER]


def _listed(directory: Path) -> dict[str, list[str]]:
    """Checksums by the name of each file that earlier runs wrote; a list that can't be read lists nothing."""
    try:
        files = read_json(directory / MARKER)["files"]
        return {str(name): [str(one) for one in checksums] for name, checksums in files.items()}
    except (DataError, LookupError, TypeError, AttributeError):
        return {}


def _write_marker(directory: Path, files: Mapping[str, list[str]]) -> None:
    text = json.dumps({"bigbird-dna": version("bigbird-dna"), "files": dict(sorted(files.items()))}, indent=1)
    with scratch_directory(directory) as scratch:
        temporary = scratch / MARKER
        temporary.write_text(text + "\n")
        temporary.replace(directory / MARKER)


def _replace(path: Path, temporary: Path) -> None:
    """Put a directory in the place of `path`; what was there ends where the new one was."""
    if not path.exists():
        temporary.rename(path)
        return
    check_directory(path)
    if _exchange(temporary, path):
        outgoing = temporary
    else:
        # Where the file system can't exchange two, there is a moment without either.
        outgoing = make_scratch(path.parent) / path.name
        path.rename(outgoing)
        temporary.rename(path)
    if _foreign(outgoing, contents=False):
        # Somebody wrote into it in the last moment: kept, under a name that is seen.
        outgoing.rename(path.with_name(f"{path.name}.{secrets.token_hex(4)}"))
    else:
        shutil.rmtree(outgoing, ignore_errors=True)
    with suppress(OSError):
        outgoing.parent.rmdir()


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two directories in one step, if the system and the file system can."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    here = _AT_WORKING_DIRECTORY
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), _EXCHANGE) == 0)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time write the marker, where the file system has locks."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
