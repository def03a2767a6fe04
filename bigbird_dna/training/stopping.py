"""A training that ends before its time: on SIGTERM, and before the time limit of its job."""

import math
import os
import re
import signal
import threading
import time
from types import FrameType
from typing import Any, Self

from bigbird_dna.errors import UsageError

# Seconds in which further SIGTERMs are the same wish: a scheduler tells all processes of a job, and torchrun
# and Snakemake pass on to theirs what they are told.
TOGETHER = 5.0
# Seconds kept for what comes before the first step and after the last: imports, reading, leaving.
_SPARE = 60.0
_SLURM_END = "SLURM_JOB_END_TIME"  # seconds since 1970
_TIME = re.compile(r"(?:(\d{1,4})-)?(\d{1,4}):(\d\d):(\d\d)", re.ASCII)


def time_of_end(limit: str | None) -> float:
    """When this process must have ended, in seconds since 1970; infinity: there is no limit.

    `limit` is how long it may run from now on, [D-]HH:MM:SS, else `UsageError`; None: to the Slurm job's end.
    """
    if limit is None:
        known = os.environ.get(_SLURM_END, "")
        end = float(known) if known.isascii() and known.isdecimal() else 0.0
        return end if end > time.time() else math.inf  # of a job without a limit it may be anything
    match = _TIME.fullmatch(limit)
    if match is None or int(match[3]) > 59 or int(match[4]) > 59:
        raise UsageError(f"--time-limit {limit!r}: expected [D-]HH:MM:SS, as 23:30:00 or 2-12:00:00")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return time.time() + ((days * 24 + hours) * 60 + minutes) * 60 + seconds


class Stopping:
    """Minds SIGTERM and the time `ends` in a `with` block, in which `step` is called before each step.

    The first SIGTERM is a wish, and no more than noted. One that comes later than `TOGETHER` seconds after
    it does what it did before the block.
    """

    def __init__(self, ends: float = math.inf) -> None:
        self.ends = ends
        self._asked: float | None = None
        self._before: Any = None
        self._steps, self._last, self._longest = 0, 0.0, 0.0

    def __enter__(self) -> Self:
        before = signal.getsignal(signal.SIGTERM)
        # Python allows it in the main thread alone; whoever has it ignored wants it ignored.
        ours = threading.current_thread() is threading.main_thread()
        if ours and before is not None and before is not signal.SIG_IGN:
            self._before = before
            signal.signal(signal.SIGTERM, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    @property
    def terminated(self) -> bool:
        """Whether SIGTERM has come."""
        return self._asked is not None

    @property
    def late(self) -> bool:
        """Whether another step, as long as the longest so far, might not be done in time."""
        return time.time() + _SPARE + 2 * self._longest >= self.ends

    def step(self) -> None:
        """Measure how long the step before took, with all that came after it."""
        now = time.monotonic()
        if self._steps > 1:  # the first one may have compiled
            self._longest = max(self._longest, now - self._last)
        self._steps += 1
        self._last = now

    def _receive(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._asked is None:
            self._asked = now
        if now - self._asked < TOGETHER:
            return
        signal.signal(signal.SIGTERM, self._before)
        os.kill(os.getpid(), number)
