"""The cache of this user: what can be made again at any time, and must not be put there by anybody else.

Code is loaded from nowhere else: whoever may write a library, or put another in its place, runs code as
whoever loads it. The superuser is trusted, as everywhere. Where the cache isn't this user's alone, a library
is compiled for this process.

A library is compiled on the machine it runs on and kept in a directory of its own, `native-<key>`, with its
SHA-256. The key names the source, the compiler and the processor, so that a directory shared by several
machines holds one for each kind. It appears there whole, by renaming, and only after it has passed its check;
what was checked is the opened file, which is loaded.
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


class UserCache:
    """Small files in a directory of the cache that only this user may write to.

    None where there can be none.
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
    """A handle, closed by `stack`, of what only this user can have written; `OSError` for anything else."""
    flags |= os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags, dir_fd=directory)
    stack.callback(os.close, handle)
    status = os.fstat(handle)
    expected = stat.S_ISDIR if flags & os.O_DIRECTORY else stat.S_ISREG
    if not expected(status.st_mode) or distrust_file(status):
        raise OSError
    return handle


_LINKS = 40  # symbolic links on the way, as the kernel allows


def distrust(directory: Path) -> str | None:
    """Why others may have put, or may yet put, something into `directory`; None: nobody but this user may.

    The directory must be this user's, and no other may write to it. On the way to it nobody else may be able
    to put something in its place: symbolic links are this user's or root's, and directories that others may
    write to are sticky, as /tmp is.
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
                    return f"lies behind too many symbolic links, {way} the last"
                if status.st_uid not in (0, os.geteuid()):
                    return f"lies behind the symbolic link {way} of another user"
                target = way.readlink()
                parts[:0] = target.parts[1:] if target.is_absolute() else target.parts
                way = Path(target.anchor) if target.is_absolute() else way.parent
            elif parts and others_may_write(status) and not status.st_mode & stat.S_ISVTX:
                return f"lies in {way}, which others may write to"
        except OSError as error:
            return f"can't be looked at: {error.strerror}"
    status = way.stat()
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory"
    return distrust_file(status)


def distrust_file(status: os.stat_result) -> str | None:
    """The same of one opened file or directory, whatever is around it."""
    if status.st_uid != os.geteuid():
        try:
            return f"belongs to user {pwd.getpwuid(status.st_uid).pw_name}"
        except KeyError:
            return f"belongs to user {status.st_uid}"
    return "is open to others for writing" if others_may_write(status) else None


def others_may_write(status: os.stat_result) -> bool:
    """Whether a user that isn't the owner may write: a group of this user alone is nobody else."""
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private(status.st_gid)


def _is_private(group: int) -> bool:
    """Whether a group is this user's own, of the same name and without another member, as is usual."""
    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == user.pw_name and user.pw_gid == group and set(entry.gr_mem) <= {user.pw_name}


# Compiled libraries

LIBRARY, DIGEST = "kernel.so", "kernel.sha256"
# Infinities and NaN keep their meaning; errno and floating-point exceptions are of no use here.
FLAGS = ["-O3", "-std=c++17", "-fPIC", "-shared", "-pthread", "-fno-math-errno", "-fno-trapping-math"]
# For the processor at hand: as most compilers call it, as some on ARM do, or not at all.
PROCESSORS = ["-march=native", "-mcpu=native", ""]
TIMEOUT = 300.0  # seconds for a compilation
VERSION_TIMEOUT = 10.0
ATTEMPTS = 10  # to put a library in its place, against processes that do the same


class BuildError(Exception):
    """Why there is no library, in one clause."""


@contextlib.contextmanager
def library(source: bytes, check: Callable[[Path], None]) -> Iterator[Path]:
    """Give the path of the library of C++ `source`: a kept one, or a new one that `check(path)` let pass.

    Load it inside the block: the path may end with it. Kept are libraries under `cache_directory()`. Where
    that can't be written to, or others than this user can write, the library is made for this process
    alone. `BuildError`: there is no compiler, or it failed; an exception of `check` goes through.
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
                reason = "can't be written"
        if reason is not None:
            log(f"{cache}: {reason}: the kernel is compiled for this process alone")
            directory = _workshop(None, stack)
        built = directory / LIBRARY
        compile_library(compiler, source, built)
        built.chmod(0o755)
        check(built)
        (directory / DIGEST).write_text(checksum(built))
        (directory / DIGEST).chmod(0o644)
        yield (reason is None and _publish(directory, home)) or built


def find_compiler() -> list[str]:
    """The command of a C++ compiler: $CXX, else the first of g++, c++ and clang++ on the PATH."""
    named = os.environ.get("CXX", "")
    try:
        own = shlex.split(named)
    except ValueError as error:
        raise BuildError(f"CXX is not a command: {named!r} ({error})") from None
    if own:
        found = shutil.which(own[0])
        if found is None:
            raise BuildError(f"the compiler {own[0]!r} that CXX names was not found")
        return [found, *own[1:]]
    for name in ("g++", "c++", "clang++"):
        if found := shutil.which(name):
            return [found]
    raise BuildError("no C++ compiler was found")


def compile_library(compiler: list[str], source: bytes, target: Path) -> None:
    """Compile C++ `source` to the shared library `target`; `BuildError` gives the compiler's complaint."""
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
        # A compiler is a driver and the programs that it starts.
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
    """What "native" means: the processor's model and the instructions it has."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.platform() + platform.processor()
    wanted = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
    return platform.machine() + "".join(sorted({line for line in lines if line.startswith(wanted)}))


def _prepare(cache: Path) -> str | None:
    """Make the cache directory; why it isn't to be used, in one clause, or None."""
    try:
        if cache.is_absolute():  # else `distrust` reports it
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return f"can't be made: {error.strerror}"
    return distrust(cache)


def open_kept(home: Path) -> Path | None:
    """A path to the library in `home`, a directory of a trusted cache; None: none there may be loaded.

    It must be as it was kept, and `home` and its files this user's alone. The path names the file that was
    looked at, whatever is put in its place later.
    """
    try:
        with contextlib.ExitStack() as stack:
            directory = open_own(home, os.O_DIRECTORY, stack)
            digest, handle = (open_own(name, 0, stack, directory) for name in (DIGEST, LIBRARY))
            with open(handle, "rb", closefd=False) as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
            if os.read(digest, len(found) + 1) != found.encode():
                return None
            # For good: the loader knows libraries by their names, and would take this number used again for
            # the same library.
            path = Path(f"/proc/self/fd/{os.dup(handle)}")
            return path if path.exists() else home / LIBRARY
    except OSError:
        return None


def _workshop(cache: Path | None, stack: contextlib.ExitStack) -> Path:
    """An empty directory to build in, which `stack` removes: in the cache, or among the temporary files."""
    directory = make_scratch(cache).absolute()
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    if reason := distrust(directory):
        raise BuildError(f"the temporary directory {directory} {reason}")
    return directory


def _publish(directory: Path, home: Path) -> Path | None:
    """Rename `directory` to `home`, unless another process was faster; the kept library, or None."""
    directory.chmod(0o755)
    for _ in range(ATTEMPTS):
        try:
            directory.rename(home)
        except OSError:
            if kept := open_kept(home):  # of a process that was faster, and may be loading it
                return kept
            outgoing = make_scratch(home.parent)
            with contextlib.suppress(OSError):
                home.rename(outgoing / home.name)
            shutil.rmtree(outgoing, ignore_errors=True)
        else:
            return open_kept(home)
    return None
