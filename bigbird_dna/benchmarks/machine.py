"""On what a benchmark ran: machine, software, date."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

SOFTWARE = ("bigbird-dna", "torch", "numpy", "transformers")


def now() -> str:
    """The machine's date and time, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Processor, cores, threads, memory, GPU, and how busy the machine was when asked."""
    cores = getattr(os, "sched_getaffinity", None)
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "device": device.type,
        "cpu": _cpu_model(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": len(cores(0)) if cores else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": _memory_gib(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "system": f"{platform.system()} {platform.machine()}",
        "load_at_start": busy,
    }


def describe_software() -> dict[str, str | None]:
    """Versions of what takes part; none for what isn't installed."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in SOFTWARE:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    versions["cuda"] = torch.version.cuda
    return versions


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)
    }
    name = fields.get("model name", platform.machine())
    numbers = [fields[key] for key in ("cpu family", "model") if key in fields]
    # Virtual machines often hide the name: family and model still say what it is.
    return f"{name} (family {numbers[0]}, model {numbers[1]})" if len(numbers) == 2 else name


def _memory_gib() -> float | None:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    return round(pages * size / 2**30, 1)
