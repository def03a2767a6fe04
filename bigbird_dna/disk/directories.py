"""Write result directories without losing any content that an earlier run did not write.

The hidden file `MARKER` of a directory lists the files of earlier runs with checksums. Files that are not
listed, or have changed since, are foreign and are neither replaced nor removed.
"""

import ctypes
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import (
    checksum,
    full_disk_reported,
    link_target,
    lock_file,
    make_parent,
    make_scratch,
    move,
    read_json,
    scratch_directory,
    sweep,
    sync,
    sync_content,
)
from bigbird_dna.errors import DataError, UsageError

MARKER = ".bigbird-dna.json"
# Snakemake's empty file in the directories that its rules create.
_OF_SNAKEMAKE = ".snakemake_timestamp"
_AT_WORKING_DIRECTORY = -100
_EXCHANGE = 2
LOCK_SECONDS = 60.0  # moving files takes seconds


def check_directory(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise `UsageError` for a directory that is not writable, or not replaceable without loss.

    This includes a file or mount point; an input, its parents and its contents; the working directory and its
    parents; and a directory with a file that no earlier run wrote. A link stands for the directory that it
    leads to. Call it before long work; `atomic_directory` checks again.
    """
    path = Path(path)
    target = link_target(path)
    _check_location(path, inputs)
    if strange := _foreign(target):
        raise UsageError(
            f"{path}: {strange}. Move or delete it, or choose another output"
        )
    make_parent(target)
    with scratch_directory(target.parent, path):
        pass


@contextmanager
def atomic_directory(
    path: Path, checksums: Mapping[str, str] | None = None
) -> Iterator[Path]:
    """Yield an empty directory that replaces `path` in one step if the block ends without an error.

    The block may add the SHA-256 of large files to `checksums`, by path in the directory, which are then not
    read again. Errors are those of `check_directory`, before the block and after it; nothing is then written.
    """
    check_directory(path)
    path = link_target(Path(path))
    with _incoming(path, path.parent) as temporary:
        yield temporary
        known = checksums or {}
        _write_marker(
            temporary,
            {
                name: [known.get(name) or checksum(temporary / name)]
                for name in _files(temporary)
            },
        )
        _replace(path, temporary)


@contextmanager
def into_directory(
    path: Path, inputs: Iterable[Path | str | None] = ()
) -> Iterator[Path]:
    """Yield an empty directory whose files are moved into `path` if the block ends without an error.

    Other files in `path` are kept. `UsageError`, without any change, if `path` cannot be created or is inside
    an input, or if it has a file of the same name that no earlier run wrote, or that has changed since.
    """
    _check_inside(Path(path), inputs)
    path = link_target(Path(path))
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path}: must be a directory, not a file")
    make_parent(path / MARKER)
    with _incoming(path, path) as temporary:
        yield temporary
        with _locked(path):
            _move_into(path, temporary)


@contextmanager
def _incoming(path: Path, parent: Path) -> Iterator[Path]:
    """Yield an empty directory in `parent` for the new content of `path`; remove it after use."""
    with scratch_directory(parent, path) as scratch, full_disk_reported(path, scratch):
        temporary = scratch / "incoming"
        temporary.mkdir()
        yield temporary


def _move_into(path: Path, temporary: Path) -> None:
    known = _listed(path)
    names = sorted(_files(temporary))
    for name in names:
        target = path / name
        if (target.exists() or target.is_symlink()) and not _is_ours(
            target, known.get(name, [])
        ):
            raise UsageError(
                f"{target} exists and was not written by bigbird-dna, or was changed since. "
                "Move or delete it, or choose another output"
            )
    new = {name: [checksum(temporary / name)] for name in names}
    # Until all files are moved, old and new ones are listed, so that a killed run can be repeated.
    _write_marker(
        path, known | {name: [*known.get(name, []), *new[name]] for name in names}
    )
    for name in names:
        make_parent(path / name)
        move(temporary / name, path / name)
    _write_marker(path, known | new)


def _check_location(path: Path, inputs: Iterable[Path]) -> None:
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path}: must be a directory, not a file")
    real, working = path.resolve(), Path.cwd().resolve()
    if real == working or real in working.parents:
        raise UsageError(
            f"{path}: must not be the current directory or one that contains it"
        )
    if path.exists() and real.is_mount():
        raise UsageError(f"{path}: must not be a mount point; name a directory in it")
    inputs = [Path(one) for one in inputs]
    for one in inputs:
        if one.exists() and real in (one.resolve(), *one.resolve().parents):
            raise UsageError(f"{path}: must not be or contain the input {one}")
    _check_inside(path, inputs)


def _check_inside(path: Path, inputs: Iterable[Path | str | None]) -> None:
    for one in inputs:
        if one is None or not Path(one).is_dir():
            continue
        given, output = Path(one).resolve(), path.resolve()
        if given == output:
            raise UsageError(f"{path}: must not be the input {one}")
        if given in output.parents:
            raise UsageError(f"{path}: must not be inside the input {one}")


def _foreign(path: Path, *, contents: bool = True) -> str:
    """Describe the first foreign file in a directory as a clause; return "" without one."""
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
            if plain and (
                relative in folders
                if one.is_dir()
                else relative in (MARKER, _OF_SNAKEMAKE)
            ):
                continue
            if relative not in known:
                return f"contains {relative!r}, which no earlier run wrote"
            if contents and not _is_ours(one, known[relative]):
                return f"contains {relative!r}, which was changed after an earlier run"
    return ""


def _is_ours(file: Path, checksums: list[str]) -> bool:
    try:
        return file.is_file() and not file.is_symlink() and checksum(file) in checksums
    except OSError:
        return False


def _files(directory: Path) -> list[str]:
    found = (
        one.relative_to(directory) for one in directory.rglob("*") if one.is_file()
    )
    return [str(one) for one in found if str(one) != MARKER]


def _listed(directory: Path) -> dict[str, list[str]]:
    """Return the checksums of each file that earlier runs wrote; an unreadable list counts as empty."""
    try:
        files = read_json(directory / MARKER)["files"]
        return {
            str(name): [str(one) for one in checksums]
            for name, checksums in files.items()
        }
    except (DataError, LookupError, TypeError, AttributeError):
        return {}


def _write_marker(directory: Path, files: Mapping[str, list[str]]) -> None:
    text = json.dumps(
        {"bigbird-dna": version("bigbird-dna"), "files": dict(sorted(files.items()))},
        indent=1,
    )
    with scratch_directory(directory) as scratch:
        temporary = scratch / MARKER
        temporary.write_text(text + "\n", encoding="utf-8")
        move(temporary, directory / MARKER)


def _replace(path: Path, temporary: Path) -> None:
    """Replace `path` by a directory; the old content is moved and then removed."""
    if not path.exists():
        move(temporary, path)
        return
    check_directory(path)
    sync_content(temporary)
    if _exchange(temporary, path):
        outgoing = temporary
        sync(path.parent)
    else:
        # If the file system cannot exchange directories, `path` is missing for a moment.
        outgoing = make_scratch(path.parent) / path.name
        path.rename(outgoing)
        move(temporary, path)
    if _foreign(outgoing, contents=False):
        # A file was added at the last moment: keep the old directory under a visible name.
        outgoing.rename(path.with_name(f"{path.name}.{secrets.token_hex(4)}"))
    else:
        shutil.rmtree(outgoing, ignore_errors=True)
    with suppress(OSError):
        outgoing.parent.rmdir()


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two directories in one step; return whether the system supports it."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    here = _AT_WORKING_DIRECTORY
    return bool(
        rename(here, os.fsencode(one), here, os.fsencode(other), _EXCHANGE) == 0
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let only one process at a time write the marker, as far as `lock_file` can."""
    handle = os.open(path, os.O_RDONLY)
    try:
        if not lock_file(handle, path, seconds=LOCK_SECONDS):
            # Then the list of files may lack some, which a later run does not replace.
            log(
                f"warning: {path} is still locked by another process; its files are written all the same"
            )
        yield
    finally:
        os.close(handle)
