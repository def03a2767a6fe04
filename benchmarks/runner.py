"""The course of a benchmark, by pass and length: each contender by itself, then all of them in turns."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import torch

from benchmarks.alone import Alone, conditions, foresee, left_out, measure_alone
from benchmarks.attention import AttentionBenchmark
from benchmarks.batches import batches
from benchmarks.contenders import Benchmark, Call, Case, LeftOut, Outputs
from benchmarks.encoder import EncoderBenchmark
from benchmarks.machine import describe_machine, describe_software
from benchmarks.models import models
from benchmarks.options import AttentionOptions, EncoderOptions
from benchmarks.timing import beside_product, bfloat16_speed, describe, growth, ratios
from bigbird_dna.console import log

FORMAT = 1
MIB = 2**20
MEASURED = "measured"  # the status of a case with figures; see `LeftOut` for the others
PRODUCT_ROWS = {
    "cpu": 4096,
    "cuda": 65_536,
    "mps": 65_536,
}  # enough to show the machine's rate

Row = dict[str, Any]


def attention(values: dict[str, Any]) -> dict[str, Any]:
    """`bigbird-dna benchmark attention` with its options by name; see `run`."""
    return run(AttentionBenchmark(AttentionOptions.of(values)))


def encoder(values: dict[str, Any]) -> dict[str, Any]:
    """`bigbird-dna benchmark encoder` with its options by name; see `run`.

    With passes `auto` those in bfloat16 take part where the machine has it: some CPUs emulate it.
    """
    options, automatic = EncoderOptions.of(values), values["passes"] == "auto"
    with conditions(options):
        rate = bfloat16_speed(torch.device(options.device))
    if rate < 1:
        left_out = "; its passes are left out" if automatic else ""
        log(f"bfloat16 is emulated here, {rate:.2f} times as fast as float32{left_out}")
    if automatic:
        narrow = () if rate < 1 else ("inference-bfloat16", "training-autocast")
        options = options.model_copy(
            update={"passes": ("inference", "training", *narrow)}
        )
    return run(EncoderBenchmark(options), {"bfloat16_speed": rate})


BENCHMARKS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "attention": attention,
    "encoder": encoder,
    "models": models,
    "batches": batches,
}


def run(benchmark: Benchmark, notes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Measure every contender, length and pass; the result is what `benchmark.json` holds.

    A contender that isn't there, doesn't fit or fails is a result with a reason, and the others go on.
    `notes` join the result at its top level.
    """
    options = benchmark.options
    results: list[Row] = []
    products: list[Row] = []
    with conditions(options):
        reference = options.reference or _first_there(benchmark)
        header = {
            "format": FORMAT,
            "benchmark": options.benchmark,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": describe_machine(benchmark.device),
            "software": describe_software(),
            "settings": options.model_dump(mode="json") | {"reference": reference},
            **(notes or {}),
        }
        for work in options.passes:
            known: dict[str, Alone] = {}  # what a contender took at its last length
            for length in options.lengths:
                cases = [Case(name, length, work) for name in options.contenders]
                rows = {case: _new_row(case) for case in cases}
                calls = _admitted(benchmark, rows, known)
                if calls:
                    products.append(_in_turns(benchmark, rows, calls, reference))
                results += rows.values()
    fits = _growth(results, options.growth_from)
    for fit in fits:
        if fit["quantity"] == "seconds":
            lengths = [int(length) for length in fit["times_linear"]]
            fit["stated"] = benchmark.stated(fit["contender"], lengths)
    return {**header, "matrix_products": products, "results": results, "growth": fits}


def _admitted(
    benchmark: Benchmark, rows: Mapping[Case, Row], known: dict[str, Alone]
) -> dict[Case, Call]:
    """The calls of those that can do their case; the rows of the others get status and reason."""
    calls: dict[Case, Call] = {}
    kept: dict[str, Outputs] = {}
    for case, row in rows.items():
        try:
            _measure_alone(benchmark, case, row, known)
            call = benchmark.prepare(case, benchmark.inputs(case))
            row["difference"] = benchmark.difference(case, call(), kept)
            calls[case] = call
        except Exception as error:
            row["status"], row["reason"] = left_out(error).args
            log(f"{case}: {row['status']}: {row['reason']}")
    return calls


def _measure_alone(
    benchmark: Benchmark, case: Case, row: Row, known: dict[str, Alone]
) -> None:
    """Fill in route and peak memory; `LeftOut` if a contender can't do its case or had better not."""
    reason = benchmark.unavailable(case)
    if reason is not None:
        raise LeftOut("unavailable", reason)
    row["route"] = benchmark.route(case)
    if case.contender in known:
        foresee(benchmark, case, known[case.contender])
    alone = known[case.contender] = measure_alone(benchmark, case)
    row["peak_mib"] = None if alone.peak is None else alone.peak / MIB
    foresee(benchmark, case, alone)


def _in_turns(
    benchmark: Benchmark,
    rows: Mapping[Case, Row],
    calls: Mapping[Case, Call],
    reference: str,
) -> Row:
    """Time the calls, and beside them the product of a first feed-forward layer, whose row is returned."""
    options, first = benchmark.options, next(iter(calls))
    hidden, dtype = options.heads * options.width, benchmark.dtype(first)
    shape = (PRODUCT_ROWS[benchmark.device.type], hidden, 4 * hidden)
    times, product = beside_product(
        [*calls.values()], options.repeats, shape, dtype, benchmark.device
    )
    product = {"length": first.length, "pass": first.work, **product}
    by_contender = {
        case.contender: seconds for case, seconds in zip(calls, times, strict=True)
    }
    for case, seconds in zip(calls, times, strict=True):
        row = rows[case]
        row |= describe(seconds)
        row["ratio"] = ratios(seconds, by_contender.get(reference))
        row["operations"] = benchmark.operations(case)
        row["bytes"] = benchmark.bytes(case)
        row["rate"] = row["operations"] / row["median"]
        row["share"] = row["rate"] / product["rate"]
        row["tokens_per_second"] = options.batch * case.length / row["median"]
        log(
            f"{case}: {row['median'] * 1e3:.4g} ms, {row['share']:.0%} of the product rate"
        )
    return product


def _first_there(benchmark: Benchmark) -> str:
    """The first contender that can do the longest case of the first pass."""
    names, options = benchmark.options.contenders, benchmark.options
    longest = [Case(name, options.lengths[-1], options.passes[0]) for name in names]
    there = (case.contender for case in longest if benchmark.unavailable(case) is None)
    return next(there, names[0])


def _new_row(case: Case) -> Row:
    unknown = dict.fromkeys(("reason", "route", "peak_mib", "difference"))
    place = {"contender": case.contender, "length": case.length, "pass": case.work}
    return {**place, "status": MEASURED, **unknown}


def _growth(results: Sequence[Row], start: int) -> list[Row]:
    """How time and memory of each contender grow from `start` tokens on."""
    values: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in results:
        for quantity, key in (("seconds", "median"), ("peak_mib", "peak_mib")):
            if row.get(key):
                place = (row["contender"], row["pass"], quantity)
                values.setdefault(place, {})[row["length"]] = row[key]
    fits = {place: growth(by_length, start) for place, by_length in values.items()}
    names = ("contender", "pass", "quantity")
    return [
        {**dict(zip(names, place, strict=True)), **fit}
        for place, fit in fits.items()
        if fit
    ]
