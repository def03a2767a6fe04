"""Timing of contenders that take turns, and what is said about the times."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.benchmark import Timer, timer

from benchmarks.contenders import Call
from bigbird_dna.model.kernels import linear

TURN_SECONDS = (
    0.1  # a turn takes at least as long: shorter calls are repeated within it
)


def seconds_of(call: Call) -> float:
    """Seconds of one call, roughly; a GPU is waited for."""
    began = timer()
    call()
    return timer() - began


def turns(calls: Sequence[Call], repeats: int) -> list[list[float]]:
    """Seconds of each call, measured in turns: A B C, A B C, …, `repeats` times.

    Whatever else the machine does then hits all alike. A turn begins with at least one call that doesn't
    count, and its time is the mean of the others.
    """
    threads = torch.get_num_threads()
    timers = [
        Timer("call()", globals={"call": call}, num_threads=threads) for call in calls
    ]
    rounds = [
        [
            contender.blocked_autorange(min_run_time=TURN_SECONDS).mean
            for contender in timers
        ]
        for _ in range(repeats)
    ]
    return [list(times) for times in zip(*rounds, strict=True)]


def describe(seconds: Sequence[float]) -> dict[str, Any]:
    """Median, minimum and quartiles, with the times themselves in the order measured."""
    low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75]).tolist()
    return {
        "median": middle,
        "minimum": min(seconds),
        "quartiles": [low, high],
        "seconds": list(seconds),
    }


def ratios(
    seconds: Sequence[float], reference: Sequence[float] | None
) -> dict[str, float] | None:
    """How many times as long as the reference: median over paired turns, and ratio of the medians."""
    if reference is None:
        return None
    return {
        "paired": float(np.median(np.divide(seconds, reference))),
        "medians": float(np.median(seconds) / np.median(reference)),
    }


def growth(values: Mapping[int, float], start: int = 4096) -> dict[str, Any] | None:
    """How a quantity grows from the shortest length of at least `start` tokens, the `base`, on.

    `exponent` is of the power law fitted by least squares in logarithms, `times_linear` has
    value(L) / value(base) · base / L by length. None with fewer than two such lengths.
    """
    known = {
        length: value for length, value in sorted(values.items()) if length >= start
    }
    if len(known) < 2:
        return None
    base = min(known)
    exponent = np.polyfit(np.log(list(known)), np.log(list(known.values())), 1)[0]
    linear = {
        length: value / known[base] * base / length for length, value in known.items()
    }
    return {"base": base, "exponent": float(exponent), "times_linear": linear}


def matrix_product(
    rows: int, inner: int, columns: int, dtype: torch.dtype, device: torch.device
) -> Call:
    """A call that multiplies (rows, inner) by (inner, columns), by torch's fastest product on the device."""
    # Random numbers: a GPU multiplies constants at a higher clock.
    generator = torch.Generator(device).manual_seed(0)
    a = torch.randn(rows, inner, device=device, generator=generator).to(dtype)
    b = torch.randn(columns, inner, device=device, generator=generator).to(dtype)
    return lambda: (linear(a, b, None),)


def beside_product(
    calls: Sequence[Call],
    repeats: int,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[list[list[float]], dict[str, Any]]:
    """Seconds of each call as by `turns`, and the matrix product (rows, inner, columns) timed in these turns.

    The rate of the product is in operations per second.
    """
    *times, seconds = turns([*calls, matrix_product(*shape, dtype, device)], repeats)
    product = {
        "shape": list(shape),
        "dtype": str(dtype).removeprefix("torch."),
        **describe(seconds),
    }
    return times, product | {"rate": 2 * math.prod(shape) / product["median"]}


def bfloat16_speed(device: torch.device) -> float:
    """How many times as fast as float32 matrix products those in bfloat16 are; below 1 if emulated."""
    size = 256 if device.type == "cpu" else 4096
    calls = [
        matrix_product(size, size, size, dtype, device)
        for dtype in (torch.float32, torch.bfloat16)
    ]
    wide, narrow = (np.median(times) for times in turns(calls, 3))
    return float(wide / narrow)
