"""Commands about the machine, before anything is trained."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import option, output, runs
from bigbird_dna.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bigbird_dna.training.gpu_check import GpuCheck
    from bigbird_dna.training.gpu_time import GpuPlan
    from bigbird_dna.training.memory import TrainingMemory


def _planned(found: "list[TrainingMemory] | GpuPlan", _: opt.Given) -> "Iterator[str]":
    if not isinstance(found, list):
        yield from _gpu_plan(found)
        return
    names = (
        "training",
        "adapt",
        "gradient_checkpointing",
        "rows",
        "tokens",
        "trained_parameters",
    )
    sizes = ("weights", "gradients", "moments", "activations", "total")
    yield "\t".join([*names, *(f"{size}_gb" for size in sizes)])
    for one in found:
        numbers = (f"{getattr(one, size) / 1e9:.3f}" for size in sizes)
        yield "\t".join([*map(str, one[:6]), *numbers])


def _gpu_plan(found: "GpuPlan") -> "Iterator[str]":
    yield "\t".join(
        ["stage", "tokens", "operations", "gpu_hours", "hours", "gb_per_gpu"]
    )
    for one in found.work:
        hours, memory = one.hours(found.gpu, found.count), found.memory.get(one.stage)
        numbers = (
            f"{one.tokens:.2e}",
            f"{one.operations:.2e}",
            f"{hours * found.count:.1f}",
            f"{hours:.1f}",
        )
        yield "\t".join([one.stage, *numbers, f"{memory / 1e9:.1f}" if memory else ""])
    yield "\t".join(
        ["all", "", "", f"{found.hours * found.count:.1f}", f"{found.hours:.1f}", ""]
    )
    yield ""
    yield f"{found.hours / 24:.1f} days on {found.count} {found.gpu.name}s, calculated. Assumptions:"
    yield from (f"* {line}" for line in found.assumptions)
    for stage, memory in found.memory.items():
        if memory > found.gpu.memory:
            limit = f"{found.gpu.memory / 1e9:.0f} GB"
            yield f"warning: {stage}: does not fit into {limit}: raise grad_accumulation"


@runs("training.gpu_time.plan", report=_planned, say=typer.echo, choices=("gpu",))
def plan(
    config: Path = opt.CONFIG,
    overrides: list[str] | None = opt.OVERRIDES,
    length: int | None = option(
        None,
        "BP",
        "Length of the sequences of finetune-sequences.",
        "not planned",
        least=1,
    ),
    gpu: str | None = option(
        None,
        "a100|h100|h200",
        "Calculate the time on GPUs of this type.",
        "memory only",
    ),
    count: int = option(8, "N", "Number of GPUs.", least=1),
    threads: int | None = opt.THREADS,
) -> None:
    """Print the memory that each training of a configuration needs, for each way to train fewer weights.

    The columns are in GB per process: weights, gradients, moments of the optimizer, and what a forward pass
    keeps for the backward pass (activations), measured with two layers in float32. Temporary results, Python
    and its libraries come on top: 0.5 to 1 GB on a CPU. Activations in bfloat16 take about 0.6 of this.

    With --gpu, print tokens, floating-point operations, hours and memory of each stage on GPUs instead, and
    the assumptions of this calculation.

    Example: bigbird-dna plan workflow/config/grch37.yaml --gpu h100 --count 8
    """


def _checked(checks: "Iterable[GpuCheck]", _: opt.Given) -> "Iterator[str]":
    faults = []
    for check in checks:
        yield f"{'FAULT' if check.fault else 'ok'}\t{check.name}\t{check.fault or check.found}"
        faults += [check.name] * bool(check.fault)
    if faults:
        raise DataError(
            f"this machine cannot run the configuration on GPUs yet: {', '.join(faults)}"
        )


@runs("training.gpu_check.check_gpu", report=_checked, say=typer.echo)
def check_gpu(
    config: Path = opt.CONFIG,
    overrides: list[str] | None = opt.OVERRIDES,
    count: int | None = option(
        None, "N", "Number of GPUs that train together.", "num_gpus", least=1
    ),
    device: str = opt.DEVICE,
    output: Path | None = output(
        None, "FILE", "Also write the results to a file (TSV).", "not written"
    ),
) -> None:
    """Check the GPUs of this machine for a configuration, before a training uses them for days.

    The checks: PyTorch's build, the driver, number and architecture of the GPUs, free memory, and a C
    compiler for Triton. Then the configuration's network is trained for four steps with random tokens, by a
    process per GPU. Prints speed, memory, the expected time of all steps, and the least grad_accumulation
    that would fit. Each fault is one sentence with what to do. With --device cpu nothing is checked.

    Example: bigbird-dna check-gpu workflow/config/grch37.yaml --count 8
    """
