"""The process that reads damaged files: a request a line comes in, an answer a line goes out.

It may crash, hang or swell; the process that started it notices (see `execution`).
"""

import faulthandler
import gc
import importlib
import json
import os
import resource
import shutil
import sys
import time
import traceback
import warnings
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TextIO

MEMORY = 1 << 30  # bytes that an input may take
ASKED = (
    4 * MEMORY
)  # that it may ask for: libraries reserve what a file claims before they see that it lies
LONGEST_MESSAGE = 2000
_TRACED = (
    "/bigbird_dna/",
    "/zipfile",
    "numpy/lib/_format_impl",
    "numpy/lib/_npyio",
    "scipy/io/matlab",
    "/yaml/",
)


class Coverage:
    """The lines that were run by now, of this package and of readers in Python that it calls."""

    def __init__(self) -> None:
        self._seen: set[tuple[CodeType, int]] = set()
        self._left: dict[CodeType, set[int]] = {}  # lines not run yet
        self.new = 0

    def __enter__(self) -> "Coverage":
        self.new = 0
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        left = self._left.get(code)
        if left is None:
            wanted = any(part in code.co_filename for part in _TRACED)
            left = {line for _, _, line in code.co_lines() if line} if wanted else set()
            self._left[code] = left
        return self._line if left else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        left = self._left[frame.f_code]
        if frame.f_lineno in left:
            left.discard(frame.f_lineno)
            self.new += 1
        return self._line if left else None


def memory(field: str) -> int:
    """Bytes that this process holds, as the system calls it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise LookupError(field)


def _cpu() -> float:
    """Seconds of this process and of those that it waited for."""
    return sum(os.times()[:4])


def fresh(directory: Path, reader: Any, data: bytes) -> Path:
    """`data` as a file, alone in a directory of its own."""
    place = directory / "input"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    path = place / f"input{reader.suffix}"
    path.write_bytes(data)
    return path


def read(reader: Any, path: Path, coverage: Coverage | None) -> dict[str, Any]:
    """Read a file in limited memory; what came of it, in how long and how many bytes."""
    from bigbird_dna.errors import BigBirdDnaError

    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now
    before = memory("VmRSS")
    resource.setrlimit(
        resource.RLIMIT_DATA, (memory("VmData") + ASKED, resource.RLIM_INFINITY)
    )
    answer: dict[str, Any] = {"kind": "read", "text": "", "place": ""}
    start = _cpu()
    try:
        if coverage is None:
            reader.read(path)
        else:
            with coverage:
                reader.read(path)
    except BigBirdDnaError as error:
        answer |= _judged(error)
    except BaseException as error:  # a panic of a Rust library is no Exception
        kind = "memory" if isinstance(error, MemoryError) else "exception"
        answer |= {
            "kind": kind,
            "text": f"{type(error).__name__}: {error!s:.300}",
            "place": _place(error),
        }
    answer["seconds"] = _cpu() - start
    resource.setrlimit(
        resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    answer["bytes"] = max(0, memory("VmHWM") - before)
    answer["new"] = 0 if coverage is None else coverage.new
    return answer


def _judged(error: Exception) -> dict[str, str]:
    """Whether the refusal is one: a sentence on one line, not given because memory ran out."""
    text = str(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            return {"kind": "memory", "text": f"{text:.300}", "place": _place(error)}
        cause = cause.__cause__ or cause.__context__
    if (
        not text
        or len(text) > LONGEST_MESSAGE
        or len(text.splitlines()) > 1
        or not text.isprintable()
    ):
        return {
            "kind": "message",
            "text": f"{len(text)} characters: {text!r:.300}",
            "place": _place(error),
        }
    return {"kind": "refused", "text": f"{text:.300}"}


def _place(error: BaseException) -> str:
    """The last line of this package that the error came through, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/bigbird_dna/" in frame.filename] or frames[:1]
    named = [
        f"{'/'.join(Path(frame.filename).parts[-3:])}:{frame.lineno}"
        for frame in (own[-1], frames[-1])
    ]
    return " < ".join(dict.fromkeys(named))


def own_streams() -> tuple[TextIO, TextIO]:
    """Standard input and output, which nothing else in this process then sees, nor what it starts."""
    streams = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return streams


def main() -> None:
    """Answer requests until there are no more."""
    requests, answers = own_streams()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    readers = importlib.import_module(sys.argv[1]).READERS

    coverages: dict[str, Coverage] = {}
    for line in requests:
        request = json.loads(line)
        name = request["reader"]
        coverage = (
            coverages.setdefault(name, Coverage()) if request["coverage"] else None
        )
        began = time.process_time()
        answer = read(readers[name], Path(request["path"]), coverage)
        if answer["bytes"] > MEMORY // 8:
            gc.collect()
        answer["cpu"] = time.process_time() - began
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
