"""Interleaved timing, and what the benchmarks report: the machine, a Markdown table, JSON.

Calls of the same work take turns (A B C, A B C, …) in one process, so that threads and allocator are the same
and other load hits all alike. Ratios are medians over the pairs of a turn.
"""

import os
import platform
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.benchmark import Timer

from bigbird_dna.console import log
from bigbird_dna.gpus import available_cores

Call = Callable[[], object]
Row = dict[str, Any]

MIN_SECONDS = 0.1  # a turn of a call lasts at least as long
ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("bigbird-dna", "torch", "numpy", "scikit-learn", "transformers")


def compare(
    work: str,
    calls: Mapping[str, Call],
    repeats: int,
    *,
    amount: float | None = None,
    unit: str = "",
    device: str = "cpu",
) -> list[Row]:
    """Time calls in turns, after a warm-up; the first is the reference of the ratios.

    A call that fails, for instance for lack of memory, is a row with a note, and the others go on. `amount` is
    how much of `unit` one call processes. On CUDA, rows also have the peak memory of a call.
    """
    timers: dict[str, Timer] = {}
    rows: dict[str, Row] = {}
    for name, call in calls.items():
        rows[name] = {"work": work, "implementation": name}
        try:
            call()
        except (RuntimeError, ValueError, MemoryError, Warning) as error:
            rows[name]["note"] = (str(error).splitlines() or [type(error).__name__])[0]
            log(f"{work}: {name}: {rows[name]['note']}")
            continue
        timers[name] = Timer(
            "call()", globals={"call": call}, num_threads=torch.get_num_threads()
        )

    seconds: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(repeats):
        for name, timer in timers.items():
            measured = timer.blocked_autorange(min_run_time=MIN_SECONDS)
            seconds[name].append(measured.mean)

    reference = seconds.get(next(iter(calls), ""))
    for name, times in seconds.items():
        rows[name].update(summarize(times, reference))
        if amount is not None:
            rows[name]["per_second"] = amount / rows[name]["median"]
            rows[name]["unit"] = unit
        if device == "cuda":
            rows[name]["peak_mib"] = peak_memory(calls[name])
        log(f"{work}: {name}: {1000 * rows[name]['median']:.4g} ms")
    return list(rows.values())


def peak_memory(call: Call) -> float:
    """MiB that a call allocates on the GPU beyond what is there before it."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def summarize(seconds: list[float], reference: list[float] | None) -> Row:
    """Median and quartiles of the seconds, and the median ratio to those of a reference."""
    low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75]).tolist()
    ratio = None
    if reference is not None:
        ratio = float(np.median(np.divide(seconds, reference)))
    return {
        "median": median,
        "quartiles": [low, high],
        "ratio": ratio,
        "seconds": seconds,
    }


# The report.


def report(name: str, rows: list[Row], device: str) -> Row:
    """What the JSON file holds."""
    return {
        "benchmark": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(torch.device(device)),
        "software": {package: _version(package) for package in PACKAGES},
        "results": rows,
    }


def describe_machine(device: torch.device) -> dict[str, Any]:
    """CPU, cores, threads, memory, GPU, and the load at the time of the call."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "device": device.type,
        "cpu": _cpu_model(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": available_cores(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(pages / 2**30, 1),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "system": f"{platform.system()} {platform.machine()}",
        "load_at_start": os.getloadavg()[0],
    }


def _cpu_model() -> str:
    """The CPU's name; virtual machines often hide it, and family and model still identify it."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    keys = r"^(model name|cpu family|model)\s*:\s*(.*)$"
    fields = dict(re.findall(keys, text, re.MULTILINE))
    name = fields.get("model name", platform.machine())
    if "cpu family" in fields and "model" in fields:
        name += f" (family {fields['cpu family']}, model {fields['model']})"
    return str(name)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def markdown(result: Row) -> str:
    """The results as a page with one table."""
    machine = result["machine"]
    lines = [
        f"{machine['gpu'] or machine['cpu']}, {machine['instructions']}; "
        f"{machine['threads']} threads; torch {result['software']['torch']}; "
        f"{result['date'][:10]}.",
        "",
        "| work | implementation | median | quartiles | ratio | per second | note |",
        "| --- | --- | --: | --: | --: | --: | --- |",
    ]
    for row in result["results"]:
        cells = [row["work"], row["implementation"], "", "", "", "", row.get("note")]
        if "median" in row:
            cells[2] = _seconds(row["median"])
            cells[3] = " – ".join(map(_seconds, row["quartiles"]))
            cells[4] = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        if "per_second" in row:
            cells[5] = f"{row['per_second']:,.4g} {row['unit']}"
        if "peak_mib" in row:
            cells[6] = f"{row['peak_mib']:,.0f} MiB"
        lines.append("| " + " | ".join(cell or "" for cell in cells) + " |")
    lines += [
        "",
        "ratio: median over repetitions, to the first implementation of the same work",
    ]
    return "\n".join(lines) + "\n"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"
