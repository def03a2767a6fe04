"""The command that plans trainings before anything is trained."""

from pathlib import Path
from typing import Literal

import typer

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import option


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
    gpu: Literal["a100", "h100", "h200"] | None = option(
        None,
        None,
        "Calculate the time on GPUs of this type.",
        "memory only",
    ),
    count: int = option(8, "N", "Number of GPUs.", least=1),
    threads: int | None = opt.THREADS,
) -> None:
    """Print the memory that each training of a configuration needs, for each way to train fewer weights.

    The columns are in GB per process: weights, gradients, moments of the optimizer, and what a forward pass
    keeps for the backward pass (activations), measured with two layers in float32. Temporary results, Python
    and its libraries come on top: 0.5 to 1 GB on a CPU. Activations in bfloat16 take about 0.6 of this. A GPU
    of this machine is checked as at the start of a training.

    With --gpu, print tokens, floating-point operations, hours and memory of each stage on GPUs instead, and
    the assumptions of this calculation.

    Example: bigbird-dna plan workflow/config/grch37.yaml --gpu h100 --count 8
    """
    import torch

    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.training import plan as planning
    from bigbird_dna.training.gpu_check import check_gpu

    settings, _ = opt.read_run(config, overrides)
    if torch.cuda.is_available():
        check_gpu(torch.device("cuda", 0))
    if gpu is None:
        names = ("weights", "gradients", "moments", "activations", "total")
        typer.echo(
            "training\tadapt\tgradient_checkpointing\trows\ttokens\ttrained_parameters\t"
            + "\t".join(f"{name}_gb" for name in names)
        )
        with cpu_threads(threads):
            for one in planning.plan_memory(settings, length):
                sizes = (f"{getattr(one, name) / 1e9:.3f}" for name in names)
                typer.echo("\t".join([*map(str, one[:6]), *sizes]))
        return

    kind, work = planning.GPUS[gpu], planning.planned_work(settings)
    with cpu_threads(threads):
        memory = planning.memory_on_gpu(settings, work)
    typer.echo("stage\ttokens\toperations\tgpu_hours\thours\tgb_per_gpu")
    total = 0.0
    for stage in work:
        hours = stage.hours(kind, count)
        total += hours
        needed = memory.get(stage.stage)
        typer.echo(
            f"{stage.stage}\t{stage.tokens:.2e}\t{stage.operations:.2e}\t{hours * count:.1f}\t{hours:.1f}\t"
            + (f"{needed / 1e9:.1f}" if needed else "")
        )
    typer.echo(f"all\t\t\t{total * count:.1f}\t{total:.1f}\t\n")
    typer.echo(
        f"{total / 24:.1f} days on {count} {kind.name}s, calculated. Assumptions:"
    )
    for line in planning.assumptions(settings, work, kind, count):
        typer.echo(f"* {line}")
    for name, needed in memory.items():
        if needed > kind.memory:
            typer.echo(
                f"warning: {name}: does not fit into {kind.memory / 1e9:.0f} GB: raise grad_accumulation"
            )
