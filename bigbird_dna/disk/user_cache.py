"""The cache of this user: files that can be regenerated, and that only this user can write.

Compiled code is loaded only from this cache, because whoever can write or replace a library can run code as
the user who loads it. The superuser is trusted. If other users can write to the cache, a library is compiled
for the current process only.

A library is compiled on the machine that runs it and stored in a directory `native-<key>` with its SHA-256.
The key depends on the source, the compiler and the processor, so that machines with a common directory have
one library per type. A library is moved there atomically, after it has passed its check. The checked file is
held open and loaded.
"""

import contextlib
import grp
import hashlib
import os
import platform
import pwd
import secrets
import shlex
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum, make_scratch
from bigbird_dna.errors import UsageError


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
            handle = os.open(key, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
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
                ages[name] = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime_ns
        for name in sorted(ages, key=ages.__getitem__)[: len(names) - self._most]:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)


def open_own(path: Path | str, flags: int, stack: contextlib.ExitStack, directory: int | None = None) -> int:
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
            elif parts and others_may_write(status) and not status.st_mode & stat.S_ISVTX:
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
    return entry.gr_name == user.pw_name and user.pw_gid == group and set(entry.gr_mem) <= {user.pw_name}


# Compiled libraries

LIBRARY, DIGEST = "kernel.so", "kernel.sha256"
# Infinities and NaN keep their meaning; errno and floating-point exceptions are not needed.
FLAGS = ["-O3", "-std=c++17", "-fPIC", "-shared", "-pthread", "-fno-math-errno", "-fno-trapping-math"]
# For the current processor: the option of most compilers, the option of some on ARM, or none.
PROCESSORS = ["-march=native", "-mcpu=native", ""]
TIMEOUT = 300.0  # seconds per compilation
VERSION_TIMEOUT = 10.0
ATTEMPTS = 10  # to move a library to its directory while other processes do the same


class BuildError(Exception):
    """The reason, in one clause, why a library is not available."""


@contextlib.contextmanager
def library(source: bytes, check: Callable[[Path], None]) -> Iterator[Path]:
    """Yield the path of the library of C++ `source`: a stored one, or a new one that passed `check(path)`.

    Load it inside the block, because the path may be removed afterwards. Libraries are stored in
    `cache_directory()`. If that is not writable, or other users can write to it, the library is made for this
    process only. `BuildError` if no compiler is found or compilation fails; exceptions of `check` pass.
    """
    compiler = find_compiler()
    cache = cache_directory()
    home = cache / f"native-{_key(source, compiler)}"
    reason = _prepare(cache)
    if reason is None and (kept := open_kept(home)):
        yield kept
        return
    with contextlib.ExitStack() as stack:
        if reason is None:
            try:
                directory = _workshop(cache, stack)
            except UsageError:
                reason = "is not writable"
        if reason is not None:
            log(f"{cache} {reason}; the kernel is compiled for this process only")
            directory = _workshop(None, stack)
        built = directory / LIBRARY
        compile_library(compiler, source, built)
        built.chmod(0o755)
        check(built)
        (directory / DIGEST).write_text(checksum(built))
        (directory / DIGEST).chmod(0o644)
        yield (reason is None and _publish(directory, home)) or built


def find_compiler() -> list[str]:
    """Return the command of a C++ compiler: $CXX, else the first of g++, c++ and clang++ on the PATH."""
    named = os.environ.get("CXX", "")
    try:
        own = shlex.split(named)
    except ValueError as error:
        raise BuildError(f"CXX must be a command, not {named!r} ({error})") from None
    if own:
        found = shutil.which(own[0])
        if found is None:
            raise BuildError(f"the compiler {own[0]!r} from CXX was not found")
        return [found, *own[1:]]
    for name in ("g++", "c++", "clang++"):
        if found := shutil.which(name):
            return [found]
    raise BuildError("no C++ compiler was found")


def compile_library(compiler: list[str], source: bytes, target: Path) -> None:
    """Compile C++ `source` to the shared library `target`; `BuildError` has the compiler's message."""
    complaint = ""
    for processor in PROCESSORS:
        options = [*FLAGS, *filter(None, [processor]), "-x", "c++", "-", "-o", str(target)]
        done = _run([*compiler, *options], source, TIMEOUT)
        if done.returncode == 0:
            return
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        errors = [line for line in lines if "error" in line] or lines or ["no message"]
        complaint = complaint or errors[0]
    raise BuildError(f"the C++ compiler {compiler[0]} failed ({complaint})")


def _run(command: list[str], source: bytes, timeout: float) -> "subprocess.CompletedProcess[bytes]":
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, process_group=0)
    except (OSError, ValueError) as error:
        raise BuildError(f"the C++ compiler could not be run ({error})") from None
    try:
        out, complaint = process.communicate(source, timeout)
    except BaseException as error:
        # A compiler consists of a driver and the programs that it starts.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise BuildError(f"the C++ compiler did not end within {timeout:g} s ({command[0]})") from None
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, complaint)


def _key(source: bytes, compiler: list[str]) -> str:
    version = _run([*compiler, "--version"], b"", VERSION_TIMEOUT).stdout
    parts = [source, version, " ".join([*compiler, *FLAGS]).encode(), _processor().encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _processor() -> str:
    """Return what "native" depends on: the processor's model and instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.platform() + platform.processor()
    wanted = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
    return platform.machine() + "".join(sorted({line for line in lines if line.startswith(wanted)}))


def _prepare(cache: Path) -> str | None:
    """Create the cache directory; return the reason why it cannot be used, in one clause, or None."""
    try:
        if cache.is_absolute():  # else `distrust` reports it
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return f"cannot be created: {error.strerror}"
    return distrust(cache)


def open_kept(home: Path) -> Path | None:
    """Return a path to the library in `home`, a directory of a trusted cache; None if none may be loaded.

    It must be unchanged, and only this user may be able to write `home` and its files. The path refers to the
    checked file even if the file is replaced later.
    """
    try:
        with contextlib.ExitStack() as stack:
            directory = open_own(home, os.O_DIRECTORY, stack)
            digest, handle = (open_own(name, 0, stack, directory) for name in (DIGEST, LIBRARY))
            with open(handle, "rb", closefd=False) as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
            if os.read(digest, len(found) + 1) != found.encode():
                return None
            # Never closed: the loader identifies libraries by name, so a reused descriptor number would be
            # taken for the same library.
            path = Path(f"/proc/self/fd/{os.dup(handle)}")
            return path if path.exists() else home / LIBRARY
    except OSError:
        return None


def _workshop(cache: Path | None, stack: contextlib.ExitStack) -> Path:
    """Return an empty build directory, in the cache or the temporary directory; `stack` removes it."""
    directory = make_scratch(cache).absolute()
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    if reason := distrust(directory):
        raise BuildError(f"the temporary directory {directory} {reason}")
    return directory


def _publish(directory: Path, home: Path) -> Path | None:
    """Rename `directory` to `home`, unless another process was faster; return the stored library or None."""
    directory.chmod(0o755)
    for _ in range(ATTEMPTS):
        try:
            directory.rename(home)
        except OSError:
            if kept := open_kept(home):  # from a faster process that may be loading it
                return kept
            outgoing = make_scratch(home.parent)
            with contextlib.suppress(OSError):
                home.rename(outgoing / home.name)
            shutil.rmtree(outgoing, ignore_errors=True)
        else:
            return open_kept(home)
    return None
