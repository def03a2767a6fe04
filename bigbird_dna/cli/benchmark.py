"""Commands that time attention and whole encoders beside what else is installed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bigbird_dna.console import log
from bigbird_dna.errors import UsageError

if TYPE_CHECKING:
    from bigbird_dna.benchmarks.alone import Benchmark

BATCH = typer.Option(1, min=1, help="Sequences at once.")
HEADS = typer.Option(12, min=1, help="Attention heads.")
DEVICE = typer.Option("auto", help="auto, cpu or cuda.")
THREADS = typer.Option(0, min=0, help="CPU threads; 0: torch's choice.")
REPEATS = typer.Option(7, min=1, help="Turns that every contender gets.")
REFERENCE = typer.Option(
    None, help="Contender that ratios refer to. [default: the first that is there]"
)
MAX_SECONDS = typer.Option(
    30.0, help="A contender whose call would take longer at a length is left out there."
)
BLOCKS = typer.Option(
    (64, 2, 3, 3),
    "--pattern",
    metavar="SIZE G W R",
    help="Tokens a block; global, window, random blocks.",
)
MEMORY = typer.Option(True, help="Measure peak memory; on a CPU each time in a new process.")
OUTPUT = typer.Option(
    None,
    "-o",
    "--output",
    metavar="DIR",
    help="Directory for benchmark.json, benchmark.md and benchmark.svg.",
)


def register(app: typer.Typer) -> None:
    """Add this group's commands to the application."""
    group = typer.Typer(no_args_is_help=True, help="Time and memory, side by side with peers.")
    group.command()(attention)
    group.command()(encoder)
    app.add_typer(group, name="benchmark")


def attention(
    lengths: str = typer.Option("1024,4096,8192", help="Tokens, with commas."),
    batch: int = BATCH,
    heads: int = HEADS,
    width: int = typer.Option(64, min=1, help="Of a head."),
    pattern: tuple[int, int, int, int] = BLOCKS,
    dtype: str = typer.Option("float32", help="float32 or bfloat16."),
    device: str = DEVICE,
    passes: str = typer.Option("forward,training", help="forward; training: and backward."),
    contenders: str = typer.Option(
        "native,blocked,flex,dense,sdpa,sdpa-mask,huggingface",
        help="Our routes (also auto), torch's full attention without and with the pattern as a mask, and "
        "HuggingFace's BigBird.",
    ),
    reference: str | None = REFERENCE,
    repeats: int = REPEATS,
    threads: int = THREADS,
    max_seconds: float = MAX_SECONDS,
    memory: bool = MEMORY,
    output: Path | None = OUTPUT,
) -> None:
    """Time attention alone, on random queries, keys and values.

    Contenders take turns, so that whatever else the machine does hits all alike. Memory is the peak above
    queries, keys and values, on a CPU of a process that does nothing else.
    """
    from bigbird_dna.benchmarks.attention import AttentionBenchmark
    from bigbird_dna.benchmarks.settings import AttentionSettings, listed, listed_numbers

    settings = AttentionSettings(
        lengths=listed_numbers("--lengths", lengths),
        width=width,
        dtype=dtype,
        passes=listed("--passes", passes),
        contenders=listed("--contenders", contenders),
        **_common(pattern, batch, heads, device, reference, repeats, threads, max_seconds, memory),
    )
    _run(AttentionBenchmark(settings), output)


def encoder(
    lengths: str = typer.Option("4096", help="Tokens, with commas."),
    batch: int = BATCH,
    layers: int = typer.Option(12, min=1),
    hidden: int = typer.Option(768, min=1, help="Width of the hidden states."),
    heads: int = HEADS,
    vocabulary: int = typer.Option(32_000, min=16),
    pattern: tuple[int, int, int, int] = BLOCKS,
    route: str = typer.Option("auto", help="How our sparse attention is computed."),
    device: str = DEVICE,
    passes: str = typer.Option(
        "auto",
        help="Of inference, training (a step: forward, backward, AdamW), each also with "
        "-bfloat16 (weights) or -autocast; auto: inference and training, and in bfloat16 where the "
        "machine has it.",
    ),
    contenders: str = typer.Option(
        "bigbird,full,huggingface", help="Ours with sparse and with full attention; HuggingFace's."
    ),
    reference: str | None = REFERENCE,
    repeats: int = typer.Option(5, min=1, help="Turns that every contender gets."),
    threads: int = THREADS,
    max_seconds: float = typer.Option(
        180.0, help="A contender whose call would take longer at a length is left out there."
    ),
    memory: bool = MEMORY,
    output: Path | None = OUTPUT,
) -> None:
    """Time whole encoders with a masked-token head: inference and training steps, tokens a second.

    All contenders have the same weights. In training ours computes the head on masked positions only (15 %),
    HuggingFace's on all of them, as shipped.
    """
    from dataclasses import replace

    from bigbird_dna.benchmarks.encoder import EncoderBenchmark, bfloat16_rate, default_passes
    from bigbird_dna.benchmarks.settings import (
        INFERENCE,
        EncoderSettings,
        listed,
        listed_numbers,
    )

    automatic = passes == "auto"
    settings = EncoderSettings(
        lengths=listed_numbers("--lengths", lengths),
        layers=layers,
        hidden=hidden,
        vocabulary=vocabulary,
        route=route,  # type: ignore[arg-type]
        passes=(INFERENCE,) if automatic else listed("--passes", passes),
        contenders=listed("--contenders", contenders),
        **_common(pattern, batch, heads, device, reference, repeats, threads, max_seconds, memory),
    )
    rate = bfloat16_rate(settings)
    if automatic:
        settings = replace(settings, passes=default_passes(rate))
    if rate < 1:
        left_out = "; its passes are left out" if automatic else ""
        log(f"bfloat16 is emulated here, {rate:.2f} times as fast as float32{left_out}")
    _run(EncoderBenchmark(settings), output, {"bfloat16_speed": rate})


def _common(
    pattern: tuple[int, int, int, int],
    batch: int,
    heads: int,
    device: str,
    reference: str | None,
    repeats: int,
    threads: int,
    max_seconds: float,
    memory: bool,
) -> dict[str, Any]:
    from bigbird_dna.attention import Pattern
    from bigbird_dna.training.distributed import choose_device

    try:
        Pattern(*pattern)
    except ValueError as error:
        raise UsageError(f"--pattern: {error}") from None
    names = ("block_size", "global_blocks", "window_blocks", "random_blocks")
    return {
        **dict(zip(names, pattern, strict=True)),
        "batch": batch,
        "heads": heads,
        "device": choose_device(device).type,
        "reference": reference or "",
        "repeats": repeats,
        "threads": threads,
        "max_seconds": max_seconds,
        "memory": memory,
    }


def _run(benchmark: "Benchmark", output: Path | None, notes: dict[str, Any] | None = None) -> None:
    from bigbird_dna.benchmarks.runner import run
    from bigbird_dna.files import check_writable, write_json
    from bigbird_dna.reporting import benchmark_table as table
    from bigbird_dna.reporting.benchmark_figure import benchmark_figure

    if output is not None:
        check_writable(output / "benchmark.json")
    result = run(benchmark, notes)
    typer.echo(table.plain_text(result))
    if output is not None:
        write_json(output / "benchmark.json", result)
        table.write_markdown(output / "benchmark.md", result)
        benchmark_figure(result, output / "benchmark.svg")
        log(f"{output}: benchmark.json, benchmark.md, benchmark.svg")
