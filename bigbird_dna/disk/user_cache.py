"""The cache of this user: files that can be regenerated, and that only this user can write.

Files that other users could write or replace are not used: whoever can do so with a compiled library
(`disk.native_library`) can run code as the user who loads it. The superuser is trusted.
"""

import contextlib
import grp
import os
import pwd
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path


def cache_directory() -> Path:
    """Return the cache directory: $BIGBIRD_DNA_CACHE, else `bigbird-dna` in the user's cache directory.

    As the XDG specification requires, a relative $XDG_CACHE_HOME is ignored.
    """
    if own := os.environ.get("BIGBIRD_DNA_CACHE"):
        return Path(own)
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if shared.is_absolute():
        return shared / "bigbird-dna"
    try:
        return Path.home() / ".cache" / "bigbird-dna"
    except RuntimeError:  # the home directory is unknown
        return Path(os.devnull) / "bigbird-dna"


class UserCache:
    """Small files in a directory of the cache that only this user can write.

    Without such a directory, files are not stored.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most  # maximum number of files; the oldest are removed first

    def get(self, key: str) -> bytes | None:
        """Return the content stored under a name, or None."""
        with contextlib.suppress(OSError), self._opened() as directory:
            handle = os.open(
                key, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory
            )
            with os.fdopen(handle, "rb") as stream:
                return stream.read()
        return None

    def put(self, key: str, content: bytes) -> None:
        """Store `content` under a name, atomically."""
        with contextlib.suppress(OSError), self._opened() as directory:
            temporary = f".{key}.{secrets.token_hex(4)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            handle = os.open(temporary, flags, mode=0o600, dir_fd=directory)
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(content)
                os.replace(temporary, key, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=directory)
                raise
            self._thin_out(directory)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Yield a handle of the directory, checked after opening, so that a later replacement is not used."""
        path = cache_directory() / self._name
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        with contextlib.ExitStack() as stack:
            yield open_own(path, os.O_DIRECTORY, stack)

    def _thin_out(self, directory: int) -> None:
        names = os.listdir(directory)
        if len(names) <= self._most:
            return
        ages = {}
        for name in names:
            with contextlib.suppress(OSError):
                ages[name] = os.stat(
                    name, dir_fd=directory, follow_symlinks=False
                ).st_mtime_ns
        for name in sorted(ages, key=ages.__getitem__)[: len(names) - self._most]:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)


def open_own(
    path: Path | str,
    flags: int,
    stack: contextlib.ExitStack,
    directory: int | None = None,
) -> int:
    """Return a handle, closed by `stack`, of a file only this user can write; `OSError` otherwise."""
    flags |= os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags, dir_fd=directory)
    stack.callback(os.close, handle)
    status = os.fstat(handle)
    expected = stat.S_ISDIR if flags & os.O_DIRECTORY else stat.S_ISREG
    if not expected(status.st_mode) or distrust_file(status):
        raise OSError
    return handle


_LINKS = 40  # maximum number of symbolic links in a path, as in the kernel


def distrust(directory: Path) -> str | None:
    """Explain why other users could write to or replace `directory`; return None if they cannot.

    The directory must belong to this user, and no other user may write to it. No other user may be able to
    replace a part of its path: symbolic links must belong to this user or root, and directories that others
    can write to must be sticky, like /tmp.
    """
    if not directory.is_absolute():
        return "is not an absolute path"
    way, parts = Path(directory.anchor), list(directory.parts[1:])
    links = 0
    while parts:
        part = parts.pop(0)
        way = way.parent if part == ".." else way / part
        try:
            status = way.lstat()
            if stat.S_ISLNK(status.st_mode):
                links += 1
                if links > _LINKS:
                    return f"is behind too many symbolic links, the last is {way}"
                if status.st_uid not in (0, os.geteuid()):
                    return f"is behind the symbolic link {way} of another user"
                target = way.readlink()
                parts[:0] = target.parts[1:] if target.is_absolute() else target.parts
                way = Path(target.anchor) if target.is_absolute() else way.parent
            elif (
                parts and others_may_write(status) and not status.st_mode & stat.S_ISVTX
            ):
                return f"is in {way}, which other users can write to"
        except OSError as error:
            return f"cannot be accessed: {error.strerror}"
    status = way.stat()
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory"
    return distrust_file(status)


def distrust_file(status: os.stat_result) -> str | None:
    """Explain why other users could write to one open file or directory; return None if they cannot."""
    if status.st_uid != os.geteuid():
        try:
            return f"belongs to user {pwd.getpwuid(status.st_uid).pw_name}"
        except KeyError:
            return f"belongs to user {status.st_uid}"
    return "can be written by other users" if others_may_write(status) else None


def others_may_write(status: os.stat_result) -> bool:
    """Return whether other users than the owner can write; this user's private group does not count."""
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private(status.st_gid)


def _is_private(group: int) -> bool:
    """Return whether a group is this user's private group, with the same name and no other members."""
    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return (
        entry.gr_name == user.pw_name
        and user.pw_gid == group
        and set(entry.gr_mem) <= {user.pw_name}
    )
