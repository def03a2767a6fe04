"""One contender by itself: its peak memory, and roughly how long it takes.

On a CPU each measurement has a fresh process, so that nothing that other contenders left behind is reused or
counted: `python -m bigbird_dna.benchmarks.alone` reads what to measure from standard input.
"""

import json
import subprocess
import sys
from dataclasses import asdict
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import torch

from bigbird_dna.benchmarks import memory
from bigbird_dna.benchmarks.measure import Call, Outputs, seconds_of
from bigbird_dna.benchmarks.settings import Case, CommonSettings

START_SECONDS = 300  # for a process to start, load everything and make its inputs


class Benchmark(Protocol):
    """What can be measured: attention alone, or whole encoders."""

    name: str
    settings: Any
    device: torch.device

    def unavailable(self, case: Case) -> str | None:
        """Why a contender doesn't take part in a case; none if it does."""

    def route(self, case: Case) -> str | None:
        """Which of our attention routes a case takes; none if it has none of them."""

    def order(self, case: Case) -> int:
        """The power of the length with which time and memory grow."""

    def least_bytes(self, case: Case) -> int:
        """What a call takes at least, for cases that had better not be tried."""

    def probe(self, case: Case) -> Case:
        """A short case that loads the same code and tells the time of longer ones."""

    def inputs(self, case: Case) -> Any:
        """What is there before memory is measured."""

    def prepare(self, case: Case, inputs: Any) -> Call:
        """The call to be timed; what is made here beforehand counts as memory, not as time."""

    def operations(self, case: Case) -> int:
        """Floating-point operations that the result needs."""

    def product(self, case: Case) -> tuple[Call, int, dict[str, Any]]:
        """A matrix product to compare with: the call, its operations, and its description."""

    def difference(self, case: Case, outputs: Outputs, kept: dict[str, Outputs]) -> float | None:
        """Largest relative difference to what it should equal; `kept` is the caller's memory."""


class Alone(NamedTuple):
    """What a contender by itself took."""

    peak: int | None = None  # bytes above what was there before; none where it can't be measured
    seconds: float | None = None  # of one call
    skipped: str | None = None  # why nothing was measured
    failed: str | None = None


def measure_alone(benchmark: Benchmark, case: Case) -> Alone:
    """Measure `case`, on a CPU in its own process if memory is wanted."""
    if benchmark.device.type == "cuda":
        return _guarded(benchmark, case)
    if not benchmark.settings.memory:
        return _guarded(benchmark, case)._replace(peak=None)
    request = {
        "benchmark": benchmark.name,
        "settings": asdict(benchmark.settings),
        "case": list(case),
    }
    limit = START_SECONDS + 10 * benchmark.settings.max_seconds
    try:
        process = subprocess.run(
            [sys.executable, "-m", "bigbird_dna.benchmarks.alone"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Alone(failed=f"stopped after {limit:.0f} s")
    if process.returncode < 0:
        return Alone(
            failed=f"its process was killed (signal {-process.returncode}): out of memory?"
        )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or ["no message"]
        return Alone(failed=lines[-1])
    return Alone(**json.loads(process.stdout.splitlines()[-1]))


def measure_here(benchmark: Benchmark, case: Case) -> Alone:
    """Measure `case` in this process."""
    device, limit = benchmark.device, benchmark.settings.max_seconds
    probe = benchmark.probe(case)
    call = benchmark.prepare(probe, benchmark.inputs(probe))
    call()
    growth = (case.length / probe.length) ** benchmark.order(case)
    predicted = seconds_of(call, device) * growth
    if predicted > limit:
        return Alone(skipped=too_long(predicted, limit))
    del call
    inputs = benchmark.inputs(case)
    before = memory.in_use(device)
    call = benchmark.prepare(case, inputs)
    peaks: list[int | None] = []
    for _ in range(2):  # an optimiser has its state from the second call on
        memory.in_use(device)  # gives back what the call before left free
        measures = memory.reset_peak(device)
        seconds = seconds_of(call, device)
        peaks.append(memory.peak(device) if measures else None)
    known = [peak for peak in peaks if peak is not None]
    if before is None or not known:
        return Alone(None, seconds)
    return Alone(max(0, max(known) - before), seconds)


def too_long(seconds: float, limit: float) -> str:
    """The reason of a case that would take too long."""
    return f"a call would take about {seconds:.3g} s, the limit is {limit:g} s"


def message(error: BaseException) -> str:
    """An error as one line."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return "out of memory"
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[0]}"


def _guarded(benchmark: Benchmark, case: Case) -> Alone:
    # A contender's fault is a result: other people's software may fail in any way.
    try:
        return measure_here(benchmark, case)
    except Exception as error:
        return Alone(failed=message(error))


def load(name: str, settings: dict[str, Any]) -> Benchmark:
    """The benchmark `name` with settings as JSON holds them."""
    module = import_module(f"bigbird_dna.benchmarks.{name}")
    benchmark: Benchmark = module.from_settings(settings)
    return benchmark


def use_threads(settings: CommonSettings) -> None:
    """Take as many CPU threads as the settings say."""
    if settings.threads:
        torch.set_num_threads(settings.threads)


def main() -> None:
    """Measure what standard input asks for; the answer is one line on standard output."""
    request = json.load(sys.stdin)
    benchmark = load(request["benchmark"], request["settings"])
    use_threads(benchmark.settings)
    print(json.dumps(_guarded(benchmark, Case(*request["case"]))._asdict()))


if __name__ == "__main__":
    main()
