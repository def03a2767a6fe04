"""Commands that time attention, encoders and the making of batches, side by side; of a checkout only."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import bigbird_dna
from bigbird_dna.cli.options import Device, Threads, option, output
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import check_writable, write_json
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import UsageError

# The options that several commands have. What their values may be is known to `benchmarks.options`.
Lengths = Annotated[str, option(None, "Tokens, with commas.")]
Batch = Annotated[int, option(None, "Sequences at once.", least=1)]
Heads = Annotated[int, option(None, "Attention heads.", least=1)]
Sizes = Annotated[
    tuple[int, int, int, int],
    option("SIZE G W R", "Tokens a block; global, window, random blocks.", "", "--pattern"),
]
Reference = Annotated[str | None, option(None, "Contender that ratios refer to.", "the first that is there")]
Repeats = Annotated[int, option(None, "Turns that every contender gets.", least=1)]
MaxSeconds = Annotated[
    float, option(None, "A contender whose call would take longer at a length is left out there.")
]
Memory = Annotated[bool, option(None, "Measure peak memory; on a CPU each time in a new process.")]
Output = Annotated[
    Path | None, output("DIR", "Directory for benchmark.json, benchmark.md and benchmark.svg.")
]


def attention(
    context: typer.Context,
    lengths: Lengths = "1024,4096,8192",
    batch: Batch = 1,
    heads: Heads = 12,
    width: Annotated[int, option(None, "Of a head.", least=1)] = 64,
    pattern: Sizes = (64, 2, 3, 3),
    dtype: Annotated[str, option(None, "float32 or bfloat16.")] = "float32",
    device: Device = "auto",
    passes: Annotated[str, option(None, "forward; training: and backward.")] = "forward,training",
    contenders: Annotated[
        str,
        option(
            None,
            "Our routes (also auto), torch's full attention without and with the pattern as a mask, "
            "HuggingFace's BigBird; and attention mechanisms by their names, their sizes √tokens: "
            "mechanisms stands for all of them.",
        ),
    ] = "native,blocked,flex,dense,sdpa,sdpa-mask,huggingface",
    reference: Reference = None,
    repeats: Repeats = 7,
    threads: Threads = None,
    max_seconds: MaxSeconds = 30.0,
    memory: Memory = True,
    growth_from: Annotated[int, option(None, "Tokens that growth is fitted from.", least=1)] = 4096,
    output: Output = None,
) -> None:
    """Time attention alone, on random queries, keys and values.

    Contenders take turns, so that whatever else the machine does hits all alike. Memory is the peak above
    queries, keys and values, on a CPU of a process that does nothing else.
    """
    _benchmark("attention", context.params, output)


def encoder(
    context: typer.Context,
    lengths: Lengths = "4096",
    batch: Batch = 1,
    layers: Annotated[int, option(None, "Of the encoder.", least=1)] = 12,
    hidden: Annotated[int, option(None, "Width of the hidden states.", least=1)] = 768,
    heads: Heads = 12,
    vocabulary: Annotated[int, option(None, "Pieces of the tokenizer.", least=16)] = 32_000,
    pattern: Sizes = (64, 2, 3, 3),
    route: Annotated[str, option(None, "How our sparse attention is computed.")] = "auto",
    device: Device = "auto",
    passes: Annotated[
        str,
        option(
            None,
            "Of inference, training (a step: forward, backward, AdamW), each also with "
            "-bfloat16 (weights) or -autocast; auto: inference and training, and in bfloat16 where the "
            "machine has it.",
        ),
    ] = "auto",
    contenders: Annotated[
        str, option(None, "Ours with sparse and with full attention; HuggingFace's.")
    ] = "bigbird,full,huggingface",
    reference: Reference = None,
    repeats: Repeats = 5,
    threads: Threads = None,
    max_seconds: MaxSeconds = 180.0,
    memory: Memory = True,
    output: Output = None,
) -> None:
    """Time whole encoders with a masked-token head: inference and training steps, tokens a second.

    All contenders have the same weights. In training ours computes the head on masked positions only (15 %),
    HuggingFace's on all of them, as shipped.
    """
    _benchmark("encoder", context.params, output)


def models(
    context: typer.Context,
    shapes: Annotated[str, option(None, "Layers x width of models, with commas.")] = "2x128,4x256,12x768",
    repeats: Repeats = 5,
    threads: Threads = None,
    max_seconds: Annotated[
        float, option(None, "A training step that would take longer gets fewer sequences.")
    ] = 10.0,
    output: Annotated[Path | None, output("DIR", "Directory for benchmark.json and benchmark.md.")] = None,
) -> None:
    """Time training steps and the scoring of 400-bp windows on this CPU, by whole models of random weights.

    Tokens and windows a second, beside the rate of matrix products measured in the same turns.
    """
    _benchmark("models", context.params, output)


def batches(
    context: typer.Context,
    windows: Annotated[str, option(None, "Lengths of windows in bp, with commas.")] = "8000,1000",
    reference: Annotated[
        Path | None,
        option("FASTA", "Genome.", "the piece of chromosome 22 in $BIGBIRD_DNA_DATA, else a simulated one"),
    ] = None,
    tokenizer: Annotated[Path | None, option("FILE", "Tokenizer of DNA.", "learnt from the genome")] = None,
    vocabulary: Annotated[int, option(None, "Pieces of one that is learnt.", least=11)] = 4096,
    training_batch_size: Annotated[int, option(None, "Windows per training step.", least=1)] = 16,
    shift: Annotated[int, option("BP", "How far a window is moved, at random.", least=0)] = 100,
    steps: Annotated[int, option(None, "Steps in all.", least=1)] = 1000,
    repeats: Repeats = 5,
    threads: Threads = None,
    output: Annotated[Path | None, output("DIR", "Directory for benchmark.json and benchmark.md.")] = None,
) -> None:
    """Time the batches of chromatin training, beside the plain way to make the same.

    Windows a second. The plain way reads each window from the compressed reference and lets SentencePiece
    encode it, on one thread; both take turns, and every batch must be the same in both.
    """
    _benchmark("batches", context.params, output)


def _benchmark(name: str, options: dict[str, Any], output: Path | None) -> None:
    """Run a benchmark with the options of its command; `UsageError` where the package isn't in a checkout."""
    root = Path(bigbird_dna.__file__).parents[1]
    if not ((root / "pyproject.toml").is_file() and (root / "benchmarks").is_dir()):
        raise UsageError(
            "benchmark: needs a checkout of the source code; the installed package is without benchmarks/"
        )
    sys.path.insert(0, str(root))  # the processes that measure memory inherit it
    from benchmarks.batches import batches_page
    from benchmarks.figure import draw
    from benchmarks.models import models_page
    from benchmarks.page import markdown
    from benchmarks.runner import BENCHMARKS

    if output is not None:
        check_writable(output / "benchmark.json")
    result = BENCHMARKS[name](options)
    pages = {"models": models_page, "batches": batches_page}
    page = pages.get(name, markdown)(result)
    typer.echo(page, nl=False)
    if output is not None:
        with into_directory(output) as files:
            write_json(files / "benchmark.json", result)
            (files / "benchmark.md").write_text(page)
            if name not in pages:
                draw(result, files / "benchmark.svg")
        log(f"{output}: {', '.join(path.name for path in sorted(output.glob('benchmark.*')))}")
