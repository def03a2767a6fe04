"""One contender by itself: its peak memory, and roughly how long it takes.

On a CPU each measurement has a fresh process, so that nothing that other contenders left behind is reused or
counted.
"""

import multiprocessing
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch

from benchmarks.contenders import Benchmark, Case, LeftOut
from benchmarks.options import Options
from benchmarks.timing import seconds_of
from bigbird_dna.attention import RouteWarning
from bigbird_dna.model.inference import cpu_threads
from bigbird_dna.training.log import available_memory, begin_memory_peak, memory_peak

START_SECONDS = 300  # for a process to start, load everything and make its inputs
EXIT_SECONDS = 10  # to end by itself
SHARE_OF_MEMORY = 0.8  # of what is free: a case that needs more isn't tried


class Alone(NamedTuple):
    """What a contender by itself took."""

    length: int  # tokens
    peak: (
        int | None
    )  # bytes above what was there before; none where it can't be measured
    seconds: float  # of one call


def measure_alone(benchmark: Benchmark, case: Case) -> Alone:
    """Measure a case, on a CPU in its own process if memory is wanted; `LeftOut` if that fails."""
    if not benchmark.options.memory:
        return measure_here(benchmark, case)._replace(peak=None)
    if benchmark.device.type != "cpu":
        return measure_here(benchmark, case)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=answer_to, args=(theirs, benchmark, case))
    process.start()
    theirs.close()
    limit = START_SECONDS + 10 * benchmark.options.max_seconds
    answer: Alone | LeftOut = LeftOut("failed", f"stopped after {limit:.0f} s")
    try:
        if ours.poll(limit):
            answer = ours.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        end = (
            f"was killed (signal {-code}): out of memory?"
            if code < 0
            else f"left with {code}"
        )
        answer = LeftOut("failed", f"its process {end}")
    process.join(EXIT_SECONDS)
    process.kill()
    if isinstance(answer, LeftOut):
        raise answer
    return answer


def measure_here(benchmark: Benchmark, case: Case) -> Alone:
    """Measure a case in this process, a short one first; `LeftOut` if that says that it had better not be."""
    probe = benchmark.probe(case)
    benchmark.prepare(
        probe, benchmark.inputs(probe)
    )()  # loads, or compiles, what all calls need
    foresee(benchmark, case, measure_call(benchmark, probe))
    return measure_call(benchmark, case)


def foresee(benchmark: Benchmark, case: Case, known: Alone) -> None:
    """`LeftOut` if a case would take too long or too much, by what is known of another length."""
    contender, limit = benchmark.known[case.contender], benchmark.options.max_seconds
    growth, free = case.length / known.length, available_memory(benchmark.device)
    seconds = known.seconds * growth**contender.order
    if seconds > limit:
        text = f"a call would take about {seconds:.3g} s, the limit is {limit:g} s"
        raise LeftOut("skipped", text)
    bytes_ = (known.peak or 0) * growth**contender.memory_order
    if free is not None and bytes_ > SHARE_OF_MEMORY * free:
        text = f"would take about {bytes_ / 2**30:.3g} GiB, {free / 2**30:.3g} GiB are free"
        raise LeftOut("skipped", text)


@contextmanager
def conditions(options: Options) -> Iterator[None]:
    """As many CPU threads as asked for; and a route that steps aside fails: the time would be another's."""
    with cpu_threads(options.threads or None), warnings.catch_warnings():
        warnings.simplefilter("error", RouteWarning)
        yield


def left_out(error: Exception) -> LeftOut:
    """The result that a contender's failure is: other people's software may fail in any way."""
    if isinstance(error, LeftOut):
        return error
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return LeftOut("failed", "out of memory")
    lines = str(error).strip().splitlines() or ["no message"]
    return LeftOut("failed", f"{type(error).__name__}: {lines[0]}")


def measure_call(benchmark: Benchmark, case: Case) -> Alone:
    device, inputs = benchmark.device, benchmark.inputs(case)
    before = begin_memory_peak(device)
    call = benchmark.prepare(case, inputs)
    above: list[int] = []
    for _ in range(2):  # an optimizer has its state from the second call on
        begin_memory_peak(device)
        seconds = seconds_of(call)
        highest = memory_peak(device)
        if before is not None and highest is not None:
            above.append(max(0, highest - before))
    return Alone(case.length, max(above, default=None), seconds)


def answer_to(connection: Connection, benchmark: Benchmark, case: Case) -> None:
    """Measure what another process asks for."""
    answer: Alone | LeftOut
    try:
        with conditions(benchmark.options):
            answer = measure_here(benchmark, case)
    except Exception as error:
        answer = left_out(error)
    connection.send(answer)
