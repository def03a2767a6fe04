"""Hours of GPUs by stage, calculated from the configurations: rows of docs/scale.md.

`python -m docs.generators.gpu_cost` also writes the memory that the page shows, `gpu-memory.json`, in
minutes.
"""

import datetime
from functools import cache
from pathlib import Path
from typing import Any

from bigbird_dna.config import Config, load_config
from bigbird_dna.model.input_embeddings import expected_bases
from bigbird_dna.training.gpu_time import (
    GPUS,
    GpuPlan,
    Work,
    operations_per_token,
    plan,
    planned_work,
)

CONFIGURATIONS = Path(__file__).resolve().parent.parent.parent / "workflow/config"
NAMES = ("grch37", "grch37-short")
MACHINES = (("a100", 8), ("h100", 8), ("h100", 256))
GENOME = 2.6e9  # bases of the training chromosomes


def _config(name: str) -> Config:
    return load_config(CONFIGURATIONS / f"{name}.yaml")


def _duration(hours: float) -> str:
    if hours < 1 / 60:
        return "below 1 minute"
    if hours < 1:
        return f"{60 * hours:.0f} minutes"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"


def _power(value: float) -> str:
    digits, _, exponent = f"{value:.1e}".partition("e+")
    return f"{digits} × 10" + exponent.lstrip("0").translate(
        str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    )


def _times(stages: list[Work]) -> dict[str, float]:
    return {
        f"{count} {GPUS[gpu].name}": sum(
            stage.hours(GPUS[gpu], count) for stage in stages
        )
        for gpu, count in MACHINES
    }


def _plan(name: str) -> list[dict[str, Any]]:
    stages = planned_work(_config(name))
    rows: list[dict[str, Any]] = [
        {
            "stage": f"`{name}.yaml`, {stage.stage}",
            "tokens": _power(stage.tokens),
            "operations": _power(stage.operations),
            **{machine: _duration(hours) for machine, hours in _times([stage]).items()},
        }
        for stage in stages
    ]
    sums = {
        machine: f"**{_duration(hours)}**" for machine, hours in _times(stages).items()
    }
    return [*rows, {"stage": f"**`{name}.yaml`, all**", **sums}]


@cache
def tables() -> dict[str, list[dict[str, Any]]]:
    """Rows of the hours, and one row of single numbers: millions of operations, thousands of tokens."""
    values: dict[str, float] = {}
    for key, name in (("long", "grch37"), ("short", "grch37-short")):
        config = _config(name)
        (pretraining,) = (
            stage for stage in planned_work(config) if stage.training == "pretraining"
        )
        values[f"pretraining_{key}"] = pretraining.operations / pretraining.tokens / 1e6
        bases = expected_bases(config.tokens.vocabulary)
        values[f"passes_{key}"] = pretraining.tokens * bases / GENOME
    for gpu in GPUS.values():
        values[gpu.name] = gpu.peak * gpu.reached / values["pretraining_long"] / 1e9
    values["finetuning"] = operations_per_token(_config("grch37").encoder, 1280) / 1e6
    return {"hours": [row for name in NAMES for row in _plan(name)], "values": [values]}


def main() -> None:
    """Write the memory of the trainings."""
    from .collect import header, write_run  # which imports this module

    rows = []
    for name in NAMES:
        found = plan(_config(name), gpu="h100")
        assert isinstance(found, GpuPlan)
        for stage, memory in found.memory.items():
            rows.append(
                {"stage": f"`{name}.yaml`, {stage}", "gb": round(memory / 1e9, 1)}
            )
    today = datetime.datetime.now(datetime.UTC).date()
    command = "python -m docs.generators.gpu_cost"
    write_run("gpu-memory", header(today, command, None) | {"tables": {"memory": rows}})


if __name__ == "__main__":
    main()
