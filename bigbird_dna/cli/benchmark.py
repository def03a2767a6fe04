"""The command `benchmark`, which needs a source checkout."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import bigbird_dna
from bigbird_dna.cli.options import SHARE, PlainHelp, Threads
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError

app = typer.Typer()


@app.command(
    "benchmark",
    cls=PlainHelp,
    rich_help_panel=SHARE,
    epilog="Example: bigbird-dna benchmark attention --lengths 1024,4096 "
    "-o attention.json",
)
def benchmark(
    name: Annotated[
        Literal["attention", "scoring", "reports"],
        typer.Argument(metavar="NAME", help="attention, scoring or reports."),
    ],
    lengths: Annotated[
        str, typer.Option(metavar="N,...", help="attention: tokens of a sequence.")
    ] = "512,4096",
    implementations: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="attention: backends (native, blocked, flex, dense), sdpa, "
            "huggingface, or mechanisms.",
        ),
    ] = "native,flex,sdpa,huggingface",
    batch: Annotated[
        int, typer.Option(min=1, help="attention: sequences per batch.")
    ] = 1,
    heads: Annotated[
        int, typer.Option(min=1, help="attention: heads, of 64 dimensions each.")
    ] = 12,
    layers: Annotated[
        int, typer.Option(min=0, help="attention: layers of encoders; 0: no encoders.")
    ] = 4,
    vocab_size: Annotated[
        int, typer.Option(min=16, help="attention: vocabulary of encoders.")
    ] = 4096,
    dtype: Annotated[
        Literal["float32", "bfloat16"],
        typer.Option(help="attention: data type; of encoders, autocast."),
    ] = "float32",
    max_seconds: Annotated[
        float,
        typer.Option(
            help="attention: leave out implementations that took longer at a "
            "shorter length."
        ),
    ] = 30.0,
    device: Annotated[
        Literal["cpu", "cuda"], typer.Option(help="Device of attention and scoring.")
    ] = "cpu",
    repeats: Annotated[int, typer.Option(min=1, help="Interleaved repetitions.")] = 5,
    threads: Threads = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Compare with this package in another checkout instead.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="JSON file to write."),
    ] = None,
) -> None:
    """Time this package beside other implementations of the same work, and print a table.

    attention: its backends beside PyTorch's and HuggingFace's attention, and encoders with the same weights.
    scoring: embeddings, scans and variants beside HuggingFace and plain loops. reports: auc-report beside
    scikit-learn. Repetitions are interleaved in one process, or in alternating processes with --against.
    """
    root = Path(bigbird_dna.__file__).parents[1]
    if not (root / "benchmarks").is_dir():
        raise UsageError("benchmark: needs a checkout of the source code")
    sys.path.insert(0, str(root))
    from benchmarks import attention, reports, scoring, timing
    from bigbird_dna.disk.atomic import check_writable, write_json
    from bigbird_dna.gpus import available_cores, freed_memory_kept
    from bigbird_dna.model.inference import cpu_threads

    if output is not None:
        check_writable(output)
    options: dict[str, Any] = {"repeats": repeats}
    if name == "attention":
        options |= {
            "lengths": _numbers(lengths),
            "implementations": implementations.split(","),
            "batch": batch,
            "heads": heads,
            "layers": layers,
            "vocab_size": vocab_size,
            "dtype": dtype,
            "max_seconds": max_seconds,
        }
    if name != "reports":
        options["device"] = device

    with cpu_threads(threads), freed_memory_kept():
        if against is not None:
            options["repeats"] = 1
            if name == "attention":
                own = set(attention.BACKENDS) & {*options["implementations"]}
                options["implementations"] = sorted(own)
            else:
                options["peers"] = False
            cores = threads or available_cores()
            rows = timing.compare_checkouts(name, against, options, repeats, cores)
        elif name == "attention":
            rows = attention.run(**options)
        elif name == "scoring":
            rows = scoring.run(**options)
        else:
            rows = reports.run(**options)
        result = timing.report(name, options, rows, device)

    typer.echo(timing.markdown(result), nl=False)
    if output is not None:
        write_json(output, result)
        log(f"{output}: written")


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--lengths {text}: not numbers with commas") from None
