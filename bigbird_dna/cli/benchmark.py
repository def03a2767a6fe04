"""The command `benchmark`, which needs a source checkout."""

import sys
from pathlib import Path
from typing import Any

import typer

import bigbird_dna
from bigbird_dna.cli.options import THREADS, argument, option, output
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import check_writable, write_json
from bigbird_dna.errors import UsageError, check_choice

NAMES = ("attention", "scoring", "reports")


def benchmark(
    name: str = argument("attention, scoring or reports.", "NAME"),
    lengths: str = option(
        "512,4096", None, "attention: sequence lengths in tokens, comma-separated."
    ),
    implementations: str = option(
        "native,flex,sdpa,huggingface",
        None,
        "attention: backends (native, blocked, flex, dense), sdpa, huggingface, or mechanisms by name.",
    ),
    batch: int = option(1, None, "attention: sequences per batch.", least=1),
    heads: int = option(12, None, "attention: heads, of 64 dimensions.", least=1),
    layers: int = option(
        4, None, "attention: layers of the encoders; 0: attention alone.", least=0
    ),
    vocab_size: int = option(4096, None, "attention: of the encoders.", least=16),
    dtype: str = option(
        "float32", None, "attention: float32 or bfloat16 (of encoders: autocast)."
    ),
    max_seconds: float = option(
        30.0, None, "attention: longest call before an implementation is left out."
    ),
    device: str = option("cpu", "cpu|cuda", "Device of attention and scoring."),
    repeats: int = option(5, None, "Interleaved repetitions.", least=1),
    threads: int | None = THREADS,
    against: Path | None = option(
        None, "DIR", "Compare with this package in another checkout instead.", "none"
    ),
    output: Path | None = output(None, "FILE", "JSON of the results.", "none"),
) -> None:
    """Time this package beside other implementations of the same work, and print a table.

    attention: its backends beside PyTorch's and HuggingFace's attention, and encoders with the same weights.
    scoring: embeddings, scans and variants beside HuggingFace and plain loops. reports: auc-report beside
    scikit-learn. Repetitions are interleaved in one process, or in alternating processes with --against.

    Example: bigbird-dna benchmark attention --lengths 1024,4096 -o attention.json
    """
    root = Path(bigbird_dna.__file__).parents[1]
    if not (root / "benchmarks").is_dir():
        raise UsageError("benchmark: needs a checkout of the source code")
    check_choice("NAME", name, NAMES)
    check_choice("--dtype", dtype, ("float32", "bfloat16"))
    check_choice("--device", device, ("cpu", "cuda"))
    if output is not None:
        check_writable(output)
    sys.path.insert(0, str(root))
    from benchmarks import attention, reports, scoring, timing
    from bigbird_dna.gpus import available_cores, freed_memory_kept
    from bigbird_dna.model.inference import cpu_threads

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
