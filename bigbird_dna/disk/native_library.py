"""Compiled C++ sources: the libraries that a wheel contains, or else libraries compiled on this machine.

`setup.py` compiles each source into a wheel once per variant: a set of processor instructions. The name of
such a library contains the digest of its source, so that one of another source is not used. The variant with
the most instructions of this processor is loaded, after it has passed its check here once.

Other libraries are compiled on the machine that runs them, checked, and moved into the user's cache. Their name
contains a key of the source, the compiler and the processor, so that machines with a common cache have one
library per type, and the SHA-256 of the library, which is verified before it is loaded.
"""

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import checksum, scratch_directory
from bigbird_dna.disk.user_cache import UserCache, cache_directory
from bigbird_dna.errors import UsageError

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
_CHECKED = UserCache("checked-libraries")


class BuildError(Exception):
    """The reason, in one clause, why a library is not available."""


@contextlib.contextmanager
def library(source: bytes, check: Callable[[Path], None]) -> Iterator[Path]:
    """Yield the path of the library of C++ `source`: shipped, stored, or new and checked by `check(path)`.

    Load it inside the block, because the path may be removed afterwards. Libraries are stored in
    `cache_directory()`; if that is not writable, the library is made for this process only. `BuildError` if no
    compiler is found or compilation fails; exceptions of `check` pass.
    """
    if ready := _usable(shipped_library(source), check):
        yield ready
        return
    compiler = find_compiler()
    cache = cache_directory()
    key = _key(source, compiler)
    if stored := _stored(cache, key):
        yield stored
        return
    with contextlib.ExitStack() as stack:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            directory = stack.enter_context(scratch_directory(cache))
        except (OSError, UsageError):
            log(
                f"{cache} is not writable; the kernel is compiled for this process only"
            )
            directory = stack.enter_context(scratch_directory())
        built = directory / "kernel.so"
        compile_library(compiler, source, built)
        check(built)
        if directory.parent == cache:
            built = built.replace(cache / f"native-{key}-{checksum(built)}.so")
        yield built


def _stored(cache: Path, key: str) -> Path | None:
    """Return a library of this key in the cache; None without one, or if it has changed since."""
    for path in cache.glob(f"native-{key}-*.so"):
        if path.stem.endswith(checksum(path)):
            return path
    return None


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
    try:
        return subprocess.run(
            command, input=source, capture_output=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        raise BuildError(
            f"the C++ compiler did not end within {timeout:g} s ({command[0]})"
        ) from None
    except (OSError, ValueError) as error:
        raise BuildError(f"the C++ compiler could not be run ({error})") from None


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
