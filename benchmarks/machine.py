"""On what a benchmark ran."""

import os
import platform
import re
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch

from bigbird_dna.gpus import available_cores

SOFTWARE = ("bigbird-dna", "torch", "numpy", "transformers")


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Processor, cores, threads, memory, GPU, and how busy the machine was when asked."""
    return {
        "device": device.type,
        "cpu": _cpu_model(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": available_cores(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1
        ),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "system": f"{platform.system()} {platform.machine()}",
        "load_at_start": os.getloadavg()[0],
    }


def describe_software() -> dict[str, str | None]:
    """Versions of what takes part; none for what isn't installed."""
    installed = {found.name: found.version for found in distributions()}
    versions = {name: installed.get(name) for name in SOFTWARE}
    return {"python": platform.python_version(), **versions, "cuda": torch.version.cuda}


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    fields = dict(
        re.findall(r"^(model name|cpu family|model)\s*:\s*(.*)$", text, re.MULTILINE)
    )
    name = str(fields.get("model name", platform.machine()))
    # Virtual machines often hide the name: family and model still say what it is.
    numbers = [fields[key] for key in ("cpu family", "model") if key in fields]
    return (
        f"{name} (family {numbers[0]}, model {numbers[1]})"
        if len(numbers) == 2
        else name
    )
