"""The course of a benchmark, by pass and length: each contender by itself, then all of them in turns."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from bigbird_dna.benchmarks import machine, memory
from bigbird_dna.benchmarks.alone import (
    Alone,
    Benchmark,
    measure_alone,
    message,
    too_long,
    use_threads,
)
from bigbird_dna.benchmarks.measure import Call, Outputs, describe, growth, interleave, ratios
from bigbird_dna.benchmarks.settings import Case
from bigbird_dna.console import log

FORMAT = 1
MIB = 2**20
PRODUCT = "matrix product"
MEASURED, SKIPPED, UNAVAILABLE, FAILED = "measured", "skipped", "unavailable", "failed"
SHARE_OF_MEMORY = 0.8  # of what is free: a case that needs more isn't tried


def run(benchmark: Benchmark, notes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Measure every contender, length and pass; the result is what `benchmark.json` holds.

    A contender that isn't there, doesn't fit or fails is a result with a reason, and the others go on.
    `notes` join the result at its top level.
    """
    before = torch.get_num_threads()
    use_threads(benchmark.settings)
    try:
        return _run(benchmark, dict(notes or {}))
    finally:
        torch.set_num_threads(before)


def _run(benchmark: Benchmark, notes: dict[str, Any]) -> dict[str, Any]:
    settings = benchmark.settings
    reference = settings.reference or _first_there(benchmark)
    header = {
        "format": FORMAT,
        "benchmark": benchmark.name,
        "date": machine.now(),
        "machine": machine.describe_machine(benchmark.device),
        "software": machine.describe_software(),
        "settings": {**asdict(settings), "reference": reference},
        **notes,
    }
    results: list[dict[str, Any]] = []
    products: list[dict[str, Any]] = []
    for work in settings.passes:
        known: dict[str, tuple[int, Alone]] = {}  # what a contender took at its last length
        for length in settings.lengths:
            cases = [Case(contender, length, work) for contender in settings.contenders]
            rows, product = _measure(benchmark, cases, known, reference)
            results += rows
            if product is not None:
                products.append(product)
    return {
        **header,
        "matrix_products": products,
        "results": results,
        "growth": _growth(results),
    }


def _measure(
    benchmark: Benchmark,
    cases: list[Case],
    known: dict[str, tuple[int, Alone]],
    reference: str,
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Results of the contenders at one length and pass, and of the matrix product beside them."""
    rows = {case.contender: _row(case) for case in cases}
    calls: dict[str, Call] = {}
    kept: dict[str, Outputs] = {}
    for case in cases:
        row = rows[case.contender]
        reason = benchmark.unavailable(case)
        if reason is not None:
            row.update(status=UNAVAILABLE, reason=reason)
            log(f"{_title(case)}: {reason}")
            continue
        row["route"] = benchmark.route(case)
        alone = _beforehand(benchmark, case, known) or measure_alone(benchmark, case)
        if alone.seconds is not None:
            known[case.contender] = (case.length, alone)
        row["peak_mib"] = None if alone.peak is None else alone.peak / MIB
        limit = benchmark.settings.max_seconds
        if alone.skipped or (alone.seconds or 0) > limit:
            reason = alone.skipped or too_long(alone.seconds or 0, limit)
            row.update(status=SKIPPED, reason=reason)
        elif alone.failed:
            row.update(status=FAILED, reason=alone.failed)
        else:
            try:
                call = benchmark.prepare(case, benchmark.inputs(case))
                row["difference"] = benchmark.difference(case, call(), kept)
                calls[case.contender] = call
            except Exception as error:  # a contender's fault is a result
                row.update(status=FAILED, reason=message(error))
        if row["status"] != MEASURED:
            log(f"{_title(case)}: {row['status']}: {row['reason']}")
    kept.clear()
    if not calls:
        return list(rows.values()), None
    product_call, product_operations, shape = benchmark.product(cases[0])
    product_call()
    calls[PRODUCT] = product_call
    times = interleave(calls, benchmark.settings.repeats, benchmark.device)
    product = {"length": cases[0].length, "pass": cases[0].work, **shape}
    product |= describe(times[PRODUCT])
    product["rate"] = product_operations / product["median"]
    for case in cases:
        if case.contender in times:
            row, seconds = rows[case.contender], times[case.contender]
            operations = benchmark.operations(case)
            row |= describe(seconds)
            row["ratio"] = ratios(seconds, times[reference]) if reference in times else None
            row["operations"] = operations
            row["rate"] = operations / row["median"]
            row["share"] = row["rate"] / product["rate"]
            tokens = benchmark.settings.batch * case.length
            row["tokens_per_second"] = tokens / row["median"]
            log(
                f"{_title(case)}: {row['median'] * 1e3:.4g} ms, {row['share']:.0%} of the product rate"
            )
    return list(rows.values()), product


def _beforehand(
    benchmark: Benchmark, case: Case, known: Mapping[str, tuple[int, Alone]]
) -> Alone | None:
    """The reason not even to try a case, from what is known of shorter ones; none if there is none."""
    bytes_ = benchmark.least_bytes(case)
    if case.contender in known:
        length, alone = known[case.contender]
        factor = (case.length / length) ** benchmark.order(case)
        seconds, limit = (alone.seconds or 0) * factor, benchmark.settings.max_seconds
        if seconds > limit:
            return Alone(skipped=too_long(seconds, limit))
        bytes_ = max(bytes_, int((alone.peak or 0) * factor))
    free = memory.available(benchmark.device)
    if free is not None and bytes_ > SHARE_OF_MEMORY * free:
        return Alone(
            skipped=f"would take about {bytes_ / 2**30:.3g} GiB, {free / 2**30:.3g} GiB are free"
        )
    return None


def _first_there(benchmark: Benchmark) -> str:
    """The first contender that can do the longest case of the first pass."""
    settings = benchmark.settings
    for contender in settings.contenders:
        if not benchmark.unavailable(Case(contender, settings.lengths[-1], settings.passes[0])):
            return str(contender)
    return str(settings.contenders[0])


def _row(case: Case) -> dict[str, Any]:
    return {
        "contender": case.contender,
        "length": case.length,
        "pass": case.work,
        "status": MEASURED,
        "reason": None,
        "route": None,
        "peak_mib": None,
        "difference": None,
    }


def _growth(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How time and memory of each contender grow from 4,096 tokens on."""
    fits = []
    for contender, work in dict.fromkeys((row["contender"], row["pass"]) for row in results):
        rows = [row for row in results if (row["contender"], row["pass"]) == (contender, work)]
        for quantity, key in (("seconds", "median"), ("peak_mib", "peak_mib")):
            values = {row["length"]: row[key] for row in rows if row.get(key)}
            fit = growth(values)
            if fit is not None:
                fits.append(
                    {"contender": contender, "pass": work, "quantity": quantity, **fit._asdict()}
                )
    return fits


def _title(case: Case) -> str:
    return f"{case.contender}, {case.work}, {case.length:,} tokens"
