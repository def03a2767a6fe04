"""Commands that benchmark attention, encoders and batch construction; they need a source checkout."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

import bigbird_dna
from bigbird_dna.cli.options import DEVICE, THREADS, argument, option, output
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import check_writable, write_json
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.gpus import available_cores

Draw = Callable[[dict[str, Any], Path], object]

# Options shared by several commands. `benchmarks.options` checks their values.


def lengths(default: str) -> Any:
    return option(default, None, "Sequence lengths in tokens, comma-separated.")


BATCH = option(1, None, "Number of sequences per batch.", least=1)
HEADS = option(12, None, "Number of attention heads.", least=1)
SIZES = option(
    (64, 2, 3, 3),
    "SIZE G W R",
    "Block size; global, window, random blocks.",
    "",
    "--pattern",
)
RELATIVE_TO = option(
    None,
    "NAME",
    "Baseline of time ratios.",
    "the first available of --contenders",
    "--relative-to",
)


def repeats(default: int) -> Any:
    return option(
        default, None, "Number of interleaved repetitions per implementation.", least=1
    )


def max_seconds(default: float) -> Any:
    return option(
        default,
        None,
        "Skip an implementation at lengths where one call would take longer.",
    )


MEMORY = option(
    True, None, "Measure peak memory; on a CPU, each measurement starts a new process."
)
OUTPUT = output(
    None, "DIR", "Directory for benchmark.json, benchmark.md and benchmark.svg."
)


def attention(
    context: typer.Context,
    lengths: str = lengths("1024,4096,8192"),
    batch: int = BATCH,
    heads: int = HEADS,
    width: int = option(64, None, "Width of an attention head.", least=1),
    pattern: tuple[int, int, int, int] = SIZES,
    dtype: str = option(
        "float32", None, "Data type of queries, keys and values: float32 or bfloat16."
    ),
    device: str = DEVICE,
    passes: str = option(
        "forward,training", None, "Passes to time: forward, training (with backward)."
    ),
    contenders: str = option(
        "native,blocked,flex,dense,sdpa,sdpa-mask,huggingface",
        None,
        "Implementations to compare: backends of bigbird-dna (native, blocked, flex, dense, auto), full "
        "attention of PyTorch without (sdpa) or with the pattern as a mask (sdpa-mask), HuggingFace's "
        "BigBird, and attention mechanisms by name (mechanisms: all of them) with sizes of √tokens. "
        "convolution: a gated long convolution of HyenaDNA's size.",
    ),
    reference: str | None = RELATIVE_TO,
    repeats: int = repeats(7),
    threads: int | None = THREADS,
    max_seconds: float = max_seconds(30.0),
    memory: bool = MEMORY,
    growth_from: int = option(
        4096, None, "Fit growth with length to lengths of at least N tokens.", least=1
    ),
    output: Path | None = OUTPUT,
) -> None:
    """Measure time and memory of attention on random queries, keys and values.

    Repetitions of all implementations are interleaved, so that other load on the machine affects all equally.
    Memory is the peak above queries, keys and values, on a CPU in a separate process.

    Example: bigbird-dna benchmark attention --lengths 1024,4096 -o benchmark-attention
    """
    _benchmark("attention", context.params, output)


def encoder(
    context: typer.Context,
    lengths: str = lengths("4096"),
    batch: int = BATCH,
    layers: int = option(12, None, "Number of encoder layers.", least=1),
    hidden: int = option(768, None, "Width of the hidden states.", least=1),
    heads: int = HEADS,
    vocabulary: int = option(
        32_000, None, "Vocabulary size of the tokenizer.", least=16
    ),
    pattern: tuple[int, int, int, int] = SIZES,
    route: str = option(
        "auto", None, "Attention backend: auto, native, blocked, flex or dense."
    ),
    device: str = DEVICE,
    passes: str = option(
        "auto",
        None,
        "Passes to time: inference, training (forward, backward, AdamW step), both also with the suffix "
        "-bfloat16 (weights) or -autocast; auto: inference and training, also in bfloat16 if supported.",
    ),
    contenders: str = option(
        "bigbird,full,huggingface",
        None,
        "bigbird-dna's sparse and full attention; HuggingFace's BigBird.",
    ),
    reference: str | None = RELATIVE_TO,
    repeats: int = repeats(5),
    threads: int | None = THREADS,
    max_seconds: float = max_seconds(180.0),
    memory: bool = MEMORY,
    output: Path | None = OUTPUT,
) -> None:
    """Measure inference and training of complete encoders with a masked-token head, in tokens per second.

    All encoders have the same weights. In training, bigbird-dna computes the head on masked positions only
    (15 %), HuggingFace's BigBird on all positions, as released.

    Example: bigbird-dna benchmark encoder --lengths 1024,4096 -o benchmark-encoder
    """
    _benchmark("encoder", context.params, output)


def models(
    context: typer.Context,
    shapes: str = option(
        "2x128,4x256,12x768", None, "Model shapes, LAYERSxWIDTH, comma-separated."
    ),
    repeats: int = repeats(5),
    threads: int | None = THREADS,
    max_seconds: float = option(
        10.0, None, "Use fewer sequences if a training step would take longer."
    ),
    output: Path | None = output(
        None, "DIR", "Directory for benchmark.json and benchmark.md."
    ),
) -> None:
    """Measure training steps and scoring of 400-bp windows with randomly initialized models on this CPU.

    Reports tokens and windows per second and the rate of matrix products measured in the same repetitions.

    Example: bigbird-dna benchmark models -o benchmark-models
    """
    _benchmark("models", context.params, output)


def batches(
    context: typer.Context,
    windows: str = option(
        "8000,1000", "BP,...", "Window lengths, comma-separated.", "", "--window-bp"
    ),
    reference: Path | None = option(
        None,
        "FASTA",
        "Genome.",
        "part of chromosome 22 in $BIGBIRD_DNA_DATA, else a simulated genome",
    ),
    tokenizer: Path | None = option(
        None, "FILE", "DNA tokenizer.", "trained on the genome"
    ),
    vocabulary: int = option(
        4096, None, "Vocabulary size of a tokenizer trained on the genome.", least=11
    ),
    training_batch_size: int = option(
        16, None, "Number of windows per training step.", least=1
    ),
    shift: int = option(100, "BP", "Largest random shift of a window.", least=0),
    steps: int = option(
        1000, None, "Total number of steps, over all repetitions.", least=1
    ),
    repeats: int = repeats(5),
    threads: int | None = THREADS,
    output: Path | None = output(
        None, "DIR", "Directory for benchmark.json and benchmark.md."
    ),
) -> None:
    """Compare batch construction for chromatin training with a simple implementation, in windows per second.

    The simple implementation, on one thread, reads each window from the compressed reference and encodes it
    with SentencePiece. Repetitions of both are interleaved, and every batch must be identical in both.

    Example: bigbird-dna benchmark batches -o benchmark-batches
    """
    _benchmark("batches", context.params, output)


def all_parts(
    output: Path = output(
        ..., "DIR", "Directory for benchmark.json, benchmark.md and roofline.svg."
    ),
    threads: int | None = THREADS,
    repeats: int = repeats(5),
    only: str | None = option(
        None,
        "NAMES",
        "Parts, comma-separated: attention, encoder, models, variants, auc, lsgkm.",
        "all",
    ),
) -> None:
    """Compare all of this software with its alternatives, on one page and in one plot, in at most 15 minutes.

    The alternatives are those that are installed: PyTorch's attention, HuggingFace's BigBird, scikit-learn,
    LS-GKM. Repetitions of all implementations of a task are interleaved. A part that fails or lacks a program
    is listed with the reason. Results are written after each part.

    Example: bigbird-dna benchmark all -o benchmark-all
    """
    _find_benchmarks()
    from benchmarks.options import chosen
    from benchmarks.roofline import draw_roofline
    from benchmarks.suite import PARTS, Plan, run_all, suite_page

    parts = chosen("--only", only, PARTS)
    check_writable(output / "benchmark.json")
    page = ""
    for result in run_all(Plan(repeats, threads), parts):
        page = suite_page(result)
        _write(output, result, page, ("roofline.svg", draw_roofline))
    typer.echo(page, nl=False)
    _list_files(output)


def against(
    commit: str = argument("Commit, branch or tag to compare with.", "COMMIT"),
    output: Path | None = output(
        None, "DIR", "Directory for benchmark.json and benchmark.md.", "none"
    ),
    parts: str | None = option(
        None,
        "NAMES",
        "Timings, comma-separated: attention-forward, attention-training, training-step, window-scoring.",
        "all",
    ),
    threshold: float = option(
        10.0, "PERCENT", "Fail if a timing is slower by more than this."
    ),
    rounds: int = option(
        6, None, "Number of pairs of processes, one of each commit.", least=1
    ),
    seconds: float = option(1.0, None, "Least time per timing and process."),
    threads: int | None = THREADS,
) -> None:
    """Check that this checkout is not slower than COMMIT, a commit of it in git.

    Processes of both take turns, with the same script, seed and threads, so that other load on the machine
    affects both. COMMIT is checked out into a temporary directory. The ratio of a timing is the median over
    pairs of processes. Timings that seem slower are measured in twice the rounds. A timing that COMMIT does
    not have is listed as new.

    Exit code 1 if a timing is slower.

    Example: bigbird-dna benchmark against main --threshold 5
    """
    root = _find_benchmarks()
    from benchmarks.against import Comparison, against_page, faults
    from benchmarks.against import against as compare
    from benchmarks.options import chosen
    from benchmarks.stopwatch import TIMINGS

    asked = chosen("--parts", parts, TIMINGS)
    if output is not None:
        check_writable(output / "benchmark.json")
    of = Comparison(
        root, commit, asked, threshold, rounds, threads or available_cores(), seconds
    )
    result = compare(of)
    page = against_page(result)
    typer.echo(page, nl=False)
    if output is not None:
        _write(output, result, page)
        _list_files(output)
    if found := faults(result):
        for sentence in found:
            log(sentence)
        raise DataError(
            f"{len(found)} of {len(asked)} timings are slower than in {commit}, or fail"
        )


def _find_benchmarks() -> Path:
    """Make `benchmarks` importable and return the checkout; raise `UsageError` outside a source checkout."""
    root = Path(bigbird_dna.__file__).parents[1]
    if not ((root / "pyproject.toml").is_file() and (root / "benchmarks").is_dir()):
        raise UsageError(
            "benchmark: needs a checkout of the source code; the installed package has no benchmarks/"
        )
    sys.path.insert(0, str(root))  # processes that measure memory inherit this path
    return root


def _write(
    output: Path, result: dict[str, Any], page: str, *plots: tuple[str, Draw]
) -> None:
    """Write a result, its page, and its plots by file name."""
    with into_directory(output) as files:
        write_json(files / "benchmark.json", result)
        (files / "benchmark.md").write_text(page, encoding="utf-8")
        for name, draw in plots:
            draw(result, files / name)


def _list_files(output: Path) -> None:
    names = (
        path.name
        for pattern in ("benchmark.*", "roofline.*")
        for path in sorted(output.glob(pattern))
    )
    log(f"{output}: {', '.join(names)}")


def _benchmark(name: str, options: dict[str, Any], output: Path | None) -> None:
    """Run a benchmark with the options of its command."""
    _find_benchmarks()
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
        _write(output, result, page, *[("benchmark.svg", draw)] * (name not in pages))
        _list_files(output)
