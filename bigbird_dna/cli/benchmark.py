"""The command `benchmark`, which needs a source checkout."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

import bigbird_dna
from bigbird_dna.cli.options import SHARE, Commands, Threads, output_option
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError

app = Commands(SHARE)


@app.command(
    "benchmark",
    epilog="Example: bigbird-dna benchmark attention --length 4096 -o attention.json",
)
def benchmark(
    name: Annotated[
        Literal["attention", "scoring", "reports"],
        typer.Argument(metavar="NAME", help="attention, scoring or reports."),
    ],
    lengths: Annotated[
        list[int],
        typer.Option(
            "--length", metavar="N", help="attention: tokens of a sequence; repeatable."
        ),
    ] = [512, 4096],  # noqa: B006
    implementations: Annotated[
        list[str],
        typer.Option(
            "--implementation",
            metavar="NAME",
            help="attention: a backend (native, blocked, flex, dense), sdpa, huggingface, "
            "or a mechanism; repeatable.",
        ),
    ] = ["native", "flex", "sdpa", "huggingface"],  # noqa: B006
    layers: Annotated[
        int, typer.Option(min=0, help="attention: layers of encoders; 0: no encoders.")
    ] = 4,
    dtype: Annotated[
        Literal["float32", "bfloat16"],
        typer.Option(help="attention: data type; of encoders, autocast."),
    ] = "float32",
    device: Annotated[
        Literal["cpu", "cuda"], typer.Option(help="Device of attention and scoring.")
    ] = "cpu",
    repeats: Annotated[int, typer.Option(min=1, help="Interleaved repetitions.")] = 5,
    threads: Threads = None,
    output: Annotated[
        Path | None,
        output_option("FILE", "JSON file to write.", "none"),
    ] = None,
) -> None:
    """Time this package beside other implementations of the same work, and print a table.

    attention: its backends beside PyTorch's and HuggingFace's attention, and encoders with the same weights.
    scoring: embeddings, scans and variants beside HuggingFace and plain loops. reports: auc-report beside
    scikit-learn. Repetitions are interleaved in one process.
    """
    root = Path(bigbird_dna.__file__).parents[1]
    if not (root / "benchmarks").is_dir():
        raise UsageError("benchmark: needs a checkout of the source code")

    sys.path.insert(0, str(root))
    from benchmarks import attention, reports, scoring, timing
    from bigbird_dna.disk.atomic import check_writable, write_json
    from bigbird_dna.gpus import freed_memory_kept
    from bigbird_dna.model.inference import cpu_threads

    if output is not None:
        check_writable(output)

    with cpu_threads(threads), freed_memory_kept():
        if name == "attention":
            rows = attention.run(
                lengths=lengths,
                implementations=implementations,
                layers=layers,
                dtype=dtype,
                device=device,
                repeats=repeats,
            )
        elif name == "scoring":
            rows = scoring.run(device=device, repeats=repeats)
        else:
            rows = reports.run(repeats=repeats)

        result = timing.report(name, rows, device)

    typer.echo(timing.markdown(result), nl=False)
    if output is not None:
        write_json(output, result)
        log(f"{output}: written")
