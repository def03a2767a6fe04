"""Commands that time attention, encoders and the making of batches, side by side; of a checkout only."""

import sys
from pathlib import Path
from typing import Any

import typer

import bigbird_dna
from bigbird_dna.cli.options import DEVICE, THREADS, option, output
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import check_writable, write_json
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import UsageError

# The options that several commands have. What their values may be is known to `benchmarks.options`.


def lengths(default: str) -> Any:
    return option(default, None, "Tokens, with commas.")


BATCH = option(1, None, "Sequences at once.", least=1)
HEADS = option(12, None, "Attention heads.", least=1)
SIZES = option((64, 2, 3, 3), "SIZE G W R", "Tokens a block; global, window, random blocks.", "", "--pattern")
RELATIVE_TO = option(
    None, "NAME", "Contender that ratios refer to.", "the first that is there", "--relative-to"
)


def repeats(default: int) -> Any:
    return option(default, None, "Turns that every contender gets.", least=1)


def max_seconds(default: float) -> Any:
    return option(default, None, "A contender whose call would take longer at a length is left out there.")


MEMORY = option(True, None, "Measure peak memory; on a CPU each time in a new process.")
OUTPUT = output(None, "DIR", "Directory for benchmark.json, benchmark.md and benchmark.svg.")


def attention(
    context: typer.Context,
    lengths: str = lengths("1024,4096,8192"),
    batch: int = BATCH,
    heads: int = HEADS,
    width: int = option(64, None, "Of a head.", least=1),
    pattern: tuple[int, int, int, int] = SIZES,
    dtype: str = option("float32", None, "float32 or bfloat16."),
    device: str = DEVICE,
    passes: str = option("forward,training", None, "forward; training: and backward."),
    contenders: str = option(
        "native,blocked,flex,dense,sdpa,sdpa-mask,huggingface",
        None,
        "Our routes (also auto), torch's full attention without and with the pattern as a mask, "
        "HuggingFace's BigBird; and attention mechanisms by their names, their sizes √tokens: "
        "mechanisms stands for all of them.",
    ),
    reference: str | None = RELATIVE_TO,
    repeats: int = repeats(7),
    threads: int | None = THREADS,
    max_seconds: float = max_seconds(30.0),
    memory: bool = MEMORY,
    growth_from: int = option(4096, None, "Tokens that growth is fitted from.", least=1),
    output: Path | None = OUTPUT,
) -> None:
    """Time attention alone, on random queries, keys and values.

    Contenders take turns, so that whatever else the machine does hits all alike. Memory is the peak above
    queries, keys and values, on a CPU of a process that does nothing else.

    Example: bigbird-dna benchmark attention --lengths 1024,4096 -o benchmark-attention
    """
    _benchmark("attention", context.params, output)


def encoder(
    context: typer.Context,
    lengths: str = lengths("4096"),
    batch: int = BATCH,
    layers: int = option(12, None, "Of the encoder.", least=1),
    hidden: int = option(768, None, "Width of the hidden states.", least=1),
    heads: int = HEADS,
    vocabulary: int = option(32_000, None, "Pieces of the tokenizer.", least=16),
    pattern: tuple[int, int, int, int] = SIZES,
    route: str = option("auto", None, "How our sparse attention is computed."),
    device: str = DEVICE,
    passes: str = option(
        "auto",
        None,
        "Of inference, training (a step: forward, backward, AdamW), each also with "
        "-bfloat16 (weights) or -autocast; auto: inference and training, and in bfloat16 where the "
        "machine has it.",
    ),
    contenders: str = option(
        "bigbird,full,huggingface", None, "Ours with sparse and with full attention; HuggingFace's."
    ),
    reference: str | None = RELATIVE_TO,
    repeats: int = repeats(5),
    threads: int | None = THREADS,
    max_seconds: float = max_seconds(180.0),
    memory: bool = MEMORY,
    output: Path | None = OUTPUT,
) -> None:
    """Time whole encoders with a masked-token head: inference and training steps, tokens a second.

    All contenders have the same weights. In training ours computes the head on masked positions only (15 %),
    HuggingFace's on all of them, as shipped.

    Example: bigbird-dna benchmark encoder --lengths 1024,4096 -o benchmark-encoder
    """
    _benchmark("encoder", context.params, output)


def models(
    context: typer.Context,
    shapes: str = option("2x128,4x256,12x768", None, "Layers x width of models, with commas."),
    repeats: int = repeats(5),
    threads: int | None = THREADS,
    max_seconds: float = option(10.0, None, "A training step that would take longer gets fewer sequences."),
    output: Path | None = output(None, "DIR", "Directory for benchmark.json and benchmark.md."),
) -> None:
    """Time training steps and the scoring of 400-bp windows on this CPU, by whole models of random weights.

    Tokens and windows a second, beside the rate of matrix products measured in the same turns.

    Example: bigbird-dna benchmark models -o benchmark-models
    """
    _benchmark("models", context.params, output)


def batches(
    context: typer.Context,
    windows: str = option("8000,1000", "BP,...", "Lengths of windows.", "", "--window-bp"),
    reference: Path | None = option(
        None, "FASTA", "Genome.", "the piece of chromosome 22 in $BIGBIRD_DNA_DATA, else a simulated one"
    ),
    tokenizer: Path | None = option(None, "FILE", "Tokenizer of DNA.", "learnt from the genome"),
    vocabulary: int = option(4096, None, "Pieces of one that is learnt.", least=11),
    training_batch_size: int = option(16, None, "Windows per training step.", least=1),
    shift: int = option(100, "BP", "How far a window is moved, at random.", least=0),
    steps: int = option(1000, None, "Steps in all.", least=1),
    repeats: int = repeats(5),
    threads: int | None = THREADS,
    output: Path | None = output(None, "DIR", "Directory for benchmark.json and benchmark.md."),
) -> None:
    """Time the batches of chromatin training, beside the plain way to make the same.

    Windows a second. The plain way reads each window from the compressed reference and lets SentencePiece
    encode it, on one thread; both take turns, and every batch must be the same in both.

    Example: bigbird-dna benchmark batches -o benchmark-batches
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
