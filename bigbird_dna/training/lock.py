"""One process at a time: a lock on a file that says who holds it, freed by the system when that one ends."""

import fcntl
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import make_parent
from bigbird_dna.errors import ModelError, UsageError, shortened

_ATTEMPTS = 100


class Lock:
    """A lock on the file `path`, which is made with its directory, and removed with the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def take(self, what: str) -> None:
        """Take the lock, for good or until `release`.

        Where the file system has no locks, a line of the log says so, and nobody is kept away.

        Raises
        ------
        ModelError
            Another process holds it: the text says that `what` is running, as which process, on what machine
            and since when.
        UsageError
            The file can't be written.
        """
        for _ in range(_ATTEMPTS):
            handle = self._opened()
            if handle is None:
                continue
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = shortened(os.pread(handle, 300, 0).decode(errors="replace").strip(), 200)
                os.close(handle)
                directory = self.path.parent
                raise ModelError(
                    f"{directory}: {what} is running already ({holder}): wait for its end"
                ) from None
            except OSError as error:
                log(f"warning: {self.path}: can't be locked ({error.strerror}): {what} may run twice")
            if self._is_there(handle):
                self._handle = handle
                self._sign()
                return
            os.close(handle)
        raise UsageError(f"{self.path}: can't be written: it is removed again and again")

    def release(self) -> None:
        """Free the lock and remove its file, and its directory if nothing else is in it."""
        if self._handle is None:
            return
        with suppress(OSError):
            self.path.unlink()
        os.close(self._handle)
        self._handle = None
        with suppress(OSError):
            self.path.parent.rmdir()

    def _opened(self) -> int | None:
        make_parent(self.path)
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:  # who held the lock has just removed the directory
            return None
        except OSError as error:
            raise UsageError(f"{self.path}: can't be written: {error.strerror}") from None

    def _is_there(self, handle: int) -> bool:
        """Whether what was locked is still the file, which who held it before may just have removed."""
        try:
            return os.path.samestat(os.fstat(handle), self.path.lstat())
        except FileNotFoundError:
            return False

    def _sign(self) -> None:
        assert self._handle is not None
        since = time.strftime("%Y-%m-%d %H:%M:%S%z")
        text = f"process {os.getpid()} on {socket.gethostname()} since {since}\n"
        with suppress(OSError):  # a full disk: the lock holds without a word
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, text.encode(), 0)
