"""Compiling the kernel on the machine it runs on, and keeping the result.

A library is kept in a directory of its own, `native-<key>`, with its SHA-256. The key names the source, the
compiler and the processor, so that a directory shared by several machines holds one for each kind. It
appears there whole, by renaming, and only after it has passed its check: whatever is found there may be
used, unless it no longer has its checksum.
"""

import atexit
import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bigbird_dna.files import checksum

LIBRARY, DIGEST = "kernel.so", "kernel.sha256"
# Infinities and NaN keep their meaning; errno and floating-point exceptions are of no use here.
FLAGS = ["-O3", "-std=c++17", "-fPIC", "-shared", "-pthread", "-fno-math-errno", "-fno-trapping-math"]
# For the processor at hand: as most compilers call it, as some on ARM do, or not at all.
PROCESSORS = ["-march=native", "-mcpu=native", ""]
TIMEOUT = 300.0  # seconds for a compilation


class BuildError(Exception):
    """Why there is no library, in one clause."""


def library(source: bytes, check: Callable[[Path], None]) -> Path:
    """Path of the library of C++ `source`: the one kept, else a new one that `check(path)` has let pass.

    Kept are libraries under `cache_directory()`. Where that can't be written to, the library is made for this
    process alone. `BuildError`: there is no compiler, or it failed; an exception of `check` goes through.
    """
    compiler = find_compiler()
    home = cache_directory() / f"native-{_key(source, compiler)}"
    if _is_whole(home):
        return home / LIBRARY
    with _workshop(home.parent) as (directory, keep):
        built = directory / LIBRARY
        compile_library(compiler, source, built)
        check(built)
        (directory / DIGEST).write_text(checksum(built))
        return _publish(directory, home) / LIBRARY if keep else built


def cache_directory() -> Path:
    """Where libraries are kept: $BIGBIRD_DNA_CACHE, else `bigbird-dna` in the user's cache directory."""
    if own := os.environ.get("BIGBIRD_DNA_CACHE"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "bigbird-dna"
    try:
        return Path.home() / ".cache" / "bigbird-dna"
    except RuntimeError:  # nobody's home is known
        return Path(os.devnull) / "bigbird-dna"


def find_compiler() -> list[str]:
    """The command of a C++ compiler: $CXX, else the first of g++, c++ and clang++ on the PATH."""
    if own := shlex.split(os.environ.get("CXX", "")):
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
        done = _run([*compiler, *options], source)
        if done.returncode == 0:
            return
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        errors = [line for line in lines if "error" in line] or lines or ["no message"]
        complaint = complaint or errors[0]
    raise BuildError(f"the C++ compiler failed ({complaint})")


def _run(command: list[str], source: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(command, input=source, capture_output=True, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"the C++ compiler could not be run ({error})") from None


def _key(source: bytes, compiler: list[str]) -> str:
    version = _run([*compiler, "--version"]).stdout
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


def _is_whole(home: Path) -> bool:
    try:
        return (home / DIGEST).read_text() == checksum(home / LIBRARY)
    except (OSError, UnicodeDecodeError):
        return False


@contextlib.contextmanager
def _workshop(cache: Path) -> Iterator[tuple[Path, bool]]:
    """An empty directory to build in, and whether it may be kept; removed after use, or when Python ends."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=".native-", dir=cache))
    except OSError:
        # Nothing from a directory that others can write to is loaded: the name is new, the owner this user.
        directory = Path(tempfile.mkdtemp(prefix="bigbird-dna-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        yield directory, False
        return
    try:
        yield directory, True
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _publish(directory: Path, home: Path) -> Path:
    """Rename `directory` to `home`, unless another process was faster; the path of a whole library."""
    directory.chmod(0o755)
    while not _is_whole(home):
        try:
            directory.rename(home)
        except OSError:
            if _is_whole(home):  # of a process that was faster, and may be loading it
                break
            outgoing = Path(tempfile.mkdtemp(prefix=".native-", dir=home.parent))
            with contextlib.suppress(OSError):
                home.rename(outgoing)
            shutil.rmtree(outgoing, ignore_errors=True)
    return home
