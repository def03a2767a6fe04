"""Compiled C++ sources: the libraries that a wheel contains, or else libraries compiled on this machine.

`setup.py` compiles each source into a wheel once per variant: a set of processor instructions. The name of
such a library contains the digest of its source, so that one of another source is not used. The variant with
the most instructions of this processor is loaded.

Other libraries are compiled on the machine that runs them, checked, and moved into the user's cache. Their
name contains a key of the source and the processor, so that machines with a common cache have one library per
type.
"""

import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bigbird_dna.console import log
from bigbird_dna.disk.user_cache import cache_directory

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


class BuildError(Exception):
    """The reason, in one clause, why a library is not available."""


def load_library(
    source: bytes, check: Callable[[ctypes.CDLL], None] | None = None
) -> ctypes.CDLL:
    """Load the library of C++ `source`: shipped, stored in the cache, or new and accepted by `check`.

    If `cache_directory()` is not writable, a new library is for this process only. `BuildError` if no
    compiler is found or compilation fails; exceptions of `check` pass.
    """
    shipped = shipped_library(source)
    key = b"\0".join([source, " ".join(FLAGS).encode(), processor().encode()])
    cached = cache_directory() / f"native-{hashlib.sha256(key).hexdigest()[:16]}.so"
    for path in (shipped, cached):
        if path is not None and path.is_file():
            try:
                return ctypes.CDLL(str(path))
            except OSError as error:
                log(f"{path} cannot be used and is compiled again: {error}")

    compiler = find_compiler()
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        scratch = TemporaryDirectory(dir=cached.parent)
        writable = True
    except OSError:
        log(
            f"{cached.parent} is not writable; the kernel is compiled for this process only"
        )
        scratch = TemporaryDirectory()
        writable = False

    with scratch as directory:
        new = Path(directory) / cached.name
        compile_library(compiler, source, new)
        library = ctypes.CDLL(str(new))
        if check is not None:
            check(library)

        if writable:
            new.replace(cached)

    return library


def library_name(source: bytes, variant: LibraryVariant) -> str:
    """Return the file name of a shipped library."""
    digest = hashlib.sha256(source).hexdigest()[:16]
    return f"{digest}{variant.option.replace('=', '-')}.so"


def shipped_library(source: bytes) -> Path | None:
    """Return the best shipped library of `source` that this processor can run; None if there is none."""
    for variant in VARIANTS.get(platform.machine(), []):
        path = SHIPPED / library_name(source, variant)
        if path.is_file() and variant.needs <= instructions():
            return path
    return None


@cache
def processor() -> str:
    """Return what "native" depends on: the processor's model and instructions, one property per line."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return platform.platform() + platform.processor()
    names = "vendor_id|cpu family|model|flags|Features|CPU part"
    properties = set(re.findall(rf"^(?:{names}).*", text, re.MULTILINE))
    return "\n".join([platform.machine(), *sorted(properties)])


def instructions() -> frozenset[str]:
    """Return the optional instructions of this processor that the system supports; empty if unknown."""
    for line in processor().splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def find_compiler() -> list[str]:
    """Return the command of a C++ compiler: $CXX, else the first of g++, c++ and clang++ on the PATH."""
    requested = os.environ.get("CXX", "").split()
    for name in requested[:1] or ("g++", "c++", "clang++"):
        path = shutil.which(name)
        if path is not None:
            return [path, *requested[1:]]
    if requested:
        raise BuildError(f"the compiler {requested[0]!r} from CXX was not found")
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
    for option in processors:
        command = [*compiler, *FLAGS, *option.split(), "-x", "c++", "-"]
        command += ["-o", str(target)]
        try:
            done = subprocess.run(command, input=source, capture_output=True)
        except OSError as error:
            raise BuildError(f"the C++ compiler could not be run ({error})") from None

        if done.returncode == 0:
            return

        lines = done.stderr.decode(errors="replace").strip().splitlines()
        errors = [line for line in lines if "error" in line] or lines or ["no message"]
        complaint = complaint or errors[0]

    raise BuildError(f"the C++ compiler {compiler[0]} failed ({complaint})")
