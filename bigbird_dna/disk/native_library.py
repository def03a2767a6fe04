"""Compiled C++ sources: the libraries that a wheel contains, or else libraries compiled on this machine.

`setup.py` compiles each source into a wheel once per variant: a set of processor instructions. The name of
such a library contains the digest of its source, so that one of another source is not used. The variant with
the most instructions of this processor is loaded, after it has passed its check here once.

Other libraries are compiled on the machine that runs them and stored in a directory `native-<key>` of the
user's cache with their SHA-256. The key depends on the source, the compiler and the processor, so that
machines with a common directory have one library per type. A library is moved there atomically, after it has
passed its check. The checked file is held open and loaded. If other users can write to the cache, a library
is compiled for the current process only.
"""

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum, make_scratch
from bigbird_dna.disk.user_cache import UserCache, cache_directory, distrust, open_own
from bigbird_dna.errors import UsageError

LIBRARY, DIGEST = "kernel.so", "kernel.sha256"
# Infinities and NaN keep their meaning; errno and floating-point exceptions are not needed.
FLAGS = [
    "-O3",
    "-std=c++17",
    "-fPIC",
    "-shared",
    "-pthread",
    "-fno-math-errno",
    "-fno-trapping-math",
]
# For the current processor: the option of most compilers, the option of some on ARM, or none.
PROCESSORS = ["-march=native", "-mcpu=native", ""]
TIMEOUT = 300.0  # seconds per compilation
VERSION_TIMEOUT = 10.0
ATTEMPTS = 10  # to move a library to its directory while other processes do the same


class LibraryVariant(NamedTuple):
    """A shipped library of a source: the compiler's option, and the instructions that it needs."""

    option: str
    needs: frozenset[str] = frozenset()  # named as in Linux's /proc/cpuinfo


_V3 = frozenset({"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})
_V4 = _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
_ARM = [LibraryVariant("-march=armv8-a")]
# By machine, the best first. Older processors compile their own.
VARIANTS = {
    "x86_64": [
        LibraryVariant("-march=x86-64-v4", _V4),
        LibraryVariant("-march=x86-64-v3", _V3),
    ],
    "aarch64": _ARM,
    "arm64": _ARM,
}
SHIPPED = Path(__file__).resolve().parents[1] / "compiled"  # of a wheel alone
_CHECKED = UserCache("checked-libraries", most=64)


class BuildError(Exception):
    """The reason, in one clause, why a library is not available."""


@contextlib.contextmanager
def library(source: bytes, check: Callable[[Path], None]) -> Iterator[Path]:
    """Yield the path of the library of C++ `source`: shipped, stored, or new and checked by `check(path)`.

    Load it inside the block, because the path may be removed afterwards. Libraries are stored in
    `cache_directory()`. If that is not writable, or other users can write to it, the library is made for this
    process only. `BuildError` if no compiler is found or compilation fails; exceptions of `check` pass.
    """
    if ready := _usable(shipped_library(source), check):
        yield ready
        return
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
        (directory / DIGEST).write_text(checksum(built), encoding="utf-8")
        (directory / DIGEST).chmod(0o644)
        yield (reason is None and _publish(directory, home)) or built


def library_name(source: bytes, variant: LibraryVariant) -> str:
    """Return the file name of a shipped library."""
    return f"{hashlib.sha256(source).hexdigest()[:16]}{variant.option.replace('=', '-')}.so"


def shipped_library(source: bytes) -> Path | None:
    """Return the best shipped library of `source` that this processor can run; None if there is none."""
    for variant in VARIANTS.get(platform.machine(), []):
        path = SHIPPED / library_name(source, variant)
        if path.is_file() and variant.needs <= instructions():
            return path
    return None


def _usable(path: Path | None, check: Callable[[Path], None]) -> Path | None:
    """Return a shipped library that passed its check, now or before on this type of processor."""
    if path is None:
        return None
    try:
        key = hashlib.sha256(path.read_bytes() + processor().encode()).hexdigest()
        if _CHECKED.get(key) is None:
            check(path)
            _CHECKED.put(key, b"")
    except (BuildError, OSError, AttributeError) as error:  # the loader's are OSError
        log(
            f"{path} cannot be used and is compiled again: {' '.join(str(error).split())}"
        )
        return None
    return path


@cache
def instructions() -> frozenset[str]:
    """Return the optional instructions of this processor that the system supports; empty if unknown."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if platform.system() == "Darwin":
            names = [f"machdep.cpu.{name}features" for name in ("", "leaf7_", "ext")]
            command = ["/usr/sbin/sysctl", "-n", *names]
            text = subprocess.run(
                command, capture_output=True, text=True, timeout=VERSION_TIMEOUT
            ).stdout
            return frozenset(text.lower().replace("lzcnt", "abm").split())
        for line in (
            Path("/proc/cpuinfo")
            .read_text(encoding="utf-8", errors="replace")
            .splitlines()
        ):
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
    return frozenset()


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


def compile_library(
    compiler: list[str],
    source: bytes,
    target: Path,
    processors: Sequence[str] = PROCESSORS,
) -> None:
    """Compile C++ `source` to the shared library `target` with the first of the options `processors` that the
    compiler accepts; `BuildError` has its message."""
    complaint = ""
    for processor in processors:
        options = [
            *FLAGS,
            *filter(None, [processor]),
            "-x",
            "c++",
            "-",
            "-o",
            str(target),
        ]
        done = _run([*compiler, *options], source, TIMEOUT)
        if done.returncode == 0:
            return
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        errors = [line for line in lines if "error" in line] or lines or ["no message"]
        complaint = complaint or errors[0]
    raise BuildError(f"the C++ compiler {compiler[0]} failed ({complaint})")


def _run(
    command: list[str], source: bytes, timeout: float
) -> "subprocess.CompletedProcess[bytes]":
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, process_group=0
        )
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
            raise BuildError(
                f"the C++ compiler did not end within {timeout:g} s ({command[0]})"
            ) from None
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, complaint)


def _key(source: bytes, compiler: list[str]) -> str:
    version = _run([*compiler, "--version"], b"", VERSION_TIMEOUT).stdout
    parts = [
        source,
        version,
        " ".join([*compiler, *FLAGS]).encode(),
        processor().encode(),
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def processor() -> str:
    """Return what "native" depends on: the processor's model and instructions."""
    try:
        lines = (
            Path("/proc/cpuinfo")
            .read_text(encoding="utf-8", errors="replace")
            .splitlines()
        )
    except OSError:
        return platform.platform() + platform.processor()
    wanted = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
    return platform.machine() + "".join(
        sorted({line for line in lines if line.startswith(wanted)})
    )


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
            digest, handle = (
                open_own(name, 0, stack, directory) for name in (DIGEST, LIBRARY)
            )
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
