"""Timing of contenders that take turns, and what is said about the times."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

Outputs = tuple[torch.Tensor, ...]
Call = Callable[[], Outputs]

# A turn takes at least this long: shorter calls are repeated within it, and their mean is the turn's time.
TURN_SECONDS = {"cpu": 0.05, "cuda": 0.1}
MOST_CALLS = 10_000


def seconds_of(call: Call, device: torch.device, calls: int = 1) -> float:
    """Mean seconds of `calls` calls in a row, by the device's own clock on a GPU."""
    if device.type == "cuda":
        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        torch.cuda.synchronize(device)
        start.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize(device)
        return float(start.elapsed_time(end)) / 1e3 / calls
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls


def interleave(
    calls: Mapping[str, Call], repeats: int, device: torch.device
) -> dict[str, list[float]]:
    """Seconds of each call, measured in turns: A B C, A B C, …, `repeats` times.

    Whatever else the machine does then hits all alike. Every call should have run once before.
    """
    counts = {}
    for name, call in calls.items():
        once = seconds_of(call, device)
        counts[name] = min(
            max(1, math.ceil(TURN_SECONDS[device.type] / max(once, 1e-7))), MOST_CALLS
        )
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            times[name].append(seconds_of(call, device, counts[name]))
    return times


def describe(seconds: Sequence[float]) -> dict[str, Any]:
    """Median, minimum and quartiles, with the times themselves in the order measured."""
    low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75]).tolist()
    return {
        "median": middle,
        "minimum": min(seconds),
        "quartiles": [low, high],
        "seconds": list(seconds),
    }


def ratios(seconds: Sequence[float], reference: Sequence[float]) -> dict[str, float]:
    """How many times as long as the reference: median over paired turns, and ratio of the medians."""
    paired = np.asarray(seconds) / np.asarray(reference)
    return {
        "paired": float(np.median(paired)),
        "medians": float(np.median(seconds) / np.median(reference)),
    }


class Growth(NamedTuple):
    """How a quantity grows with the length."""

    base: int  # tokens: what `times_linear` refers to
    exponent: float  # of the power law fitted from `base` on, least squares in logarithms
    times_linear: dict[int, float]  # value(L) / value(base) · base / L


def growth(values: Mapping[int, float], start: int = 4096) -> Growth | None:
    """Growth from the shortest length of at least `start` tokens on; none with fewer than two such."""
    lengths = sorted(length for length, value in values.items() if length >= start and value > 0)
    if len(lengths) < 2:
        return None
    base = lengths[0]
    ys = [math.log(values[length]) for length in lengths]
    exponent = float(np.polyfit([math.log(length) for length in lengths], ys, 1)[0])
    linear = {length: values[length] / values[base] * base / length for length in lengths}
    return Growth(base, exponent, linear)


def matrix_product(
    rows: int, inner: int, columns: int, dtype: torch.dtype, device: torch.device
) -> Call:
    """A call that multiplies (rows, inner) by (inner, columns)."""
    # Random numbers: a GPU multiplies constants at a higher clock.
    generator = torch.Generator(device).manual_seed(0)
    a = torch.randn(rows, inner, device=device, generator=generator).to(dtype)
    b = torch.randn(inner, columns, device=device, generator=generator).to(dtype)
    return lambda: (torch.matmul(a, b),)


def product_size(dtype: torch.dtype, device: torch.device) -> int:
    """Side of a square matrix product that is large enough to show the machine's rate."""
    for size in (512, 1024, 2048, 4096):
        call = matrix_product(size, size, size, dtype, device)
        call()
        if seconds_of(call, device) > (0.02 if device.type == "cpu" else 0.001):
            return size
    return 4096 if device.type == "cpu" else 8192


def bfloat16_speed(device: torch.device) -> float:
    """How many times as fast as float32 matrix products those in bfloat16 are; below 1 if emulated."""
    size = 256 if device.type == "cpu" else 4096
    calls = {
        str(dtype): matrix_product(size, size, size, dtype, device)
        for dtype in (torch.float32, torch.bfloat16)
    }
    for call in calls.values():
        call()
    wide, narrow = (np.median(times) for times in interleave(calls, 3, device).values())
    return float(wide / narrow)
