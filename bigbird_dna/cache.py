"""The user's cache: what can be made again at any time, and must not be put there by anybody else."""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path


def cache_directory() -> Path:
    """Where things are kept: $BIGBIRD_DNA_CACHE, else `bigbird-dna` in the user's cache directory.

    As the XDG specification has it, a relative $XDG_CACHE_HOME counts for nothing.
    """
    if own := os.environ.get("BIGBIRD_DNA_CACHE"):
        return Path(own)
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if shared.is_absolute():
        return shared / "bigbird-dna"
    try:
        return Path.home() / ".cache" / "bigbird-dna"
    except RuntimeError:  # nobody's home is known
        return Path(os.devnull) / "bigbird-dna"


class PrivateShelf:
    """Small files in a directory of the cache that belongs to this user, and that nobody else may write to.

    Where there is no such directory and none can be made, it holds nothing and keeps nothing.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most  # files; the oldest go first

    def get(self, key: str) -> bytes | None:
        """What is kept under a name, if anything is."""
        with contextlib.suppress(OSError), self._opened() as directory:
            handle = os.open(key, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
            with os.fdopen(handle, "rb") as stream:
                return stream.read()
        return None

    def put(self, key: str, content: bytes) -> None:
        """Keep `content` under a name, whole or not at all."""
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
        """The directory, checked after it was opened: what is put in its place later isn't used."""
        path = cache_directory() / self._name
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            found = os.fstat(handle)
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
                raise PermissionError(f"{path}: others may write there")
            yield handle
        finally:
            os.close(handle)

    def _thin_out(self, directory: int) -> None:
        names = os.listdir(directory)
        if len(names) <= self._most:
            return
        ages = {}
        for name in names:
            with contextlib.suppress(OSError):
                ages[name] = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime_ns
        for name in sorted(ages, key=ages.__getitem__)[: len(names) - self._most]:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)
