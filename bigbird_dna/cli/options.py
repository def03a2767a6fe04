"""What commands have in common: options, each declared once and with one meaning, and `runs`.

A command whose work a function of the package does is declared by a signature and a docstring: its arguments
have the function's names. Help texts need nothing of the function, which is imported once the command runs.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from bigbird_dna.config.paths import RunPaths
from bigbird_dna.console import log
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.errors import UsageError, check_at_least_one, check_choice

if TYPE_CHECKING:
    from bigbird_dna.config import Config as RunConfig
    from bigbird_dna.training.distributed import World

RESULTS = RunPaths(Path("RESULTS"))
"""A run's files as help texts show them."""

TRACK_TABLE = ("--track-table", "--tracks")
"""Of commands that read a table of tracks; where tracks are chosen by name, `--tracks` is `Tracks`."""


def option(
    metavar: str | None, help: str, default: str | Path = "", *names: str, least: int | None = None
) -> Any:
    """An option; `default` says in the help what holds without it, where its value doesn't.

    One in RESULTS is a file of the run (`run_path`), under its own directory.
    """
    made = typer.Option(*names, metavar=metavar, help=help, show_default=str(default) or True, min=least)
    made.run_path = default.relative_to(RESULTS.results) if isinstance(default, Path) else None
    return made


def output(metavar: str, help: str, default: str | Path = "") -> Any:
    """The option `-o`: where a result goes."""
    return option(metavar, help, default, "-o", "--output")


def argument(help: str, metavar: str | None = None) -> Any:
    """A word that the command can't do without."""
    return typer.Argument(metavar=metavar, help=help)


def named_files(option: str, values: Sequence[str]) -> dict[str, Path]:
    """The files of an option's `NAME=FILE` values by name, in their order.

    `UsageError` for a value of another form, or a name that is given twice.
    """
    named: dict[str, Path] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not (name and equals and path):
            raise UsageError(f"{option} {value!r}: expected NAME=FILE")
        if name in named:
            raise UsageError(f"{option}: {name!r} is given twice")
        named[name] = Path(path)
    return named


def read_run(config: Path, overrides: Sequence[str] | None) -> "tuple[RunConfig, RunPaths]":
    """The configuration of a run with its overrides, and the names of the run's files."""
    from bigbird_dna.config import load_config

    settings = load_config(config, overrides or ())
    return settings, settings.paths


Device = Annotated[str, option("auto|cpu|cuda", "Where the model runs.")]
Threads = Annotated[int | None, option(None, "CPU cores; they change speed only.", "all", "--threads")]
BatchSize = Annotated[int, option(None, "Windows run together; changes speed and memory only.")]
Precision = Annotated[
    str,
    option(
        "float32|bfloat16|float16",
        "What the model computes in; float16 on GPUs. The last two are faster there, and less exact.",
    ),
]
Set = Annotated[
    list[str] | None,
    option("KEY=VALUE", "Override a key of CONFIG, as encoder.layers=4; repeatable.", "", "--set"),
]
Config = Annotated[
    Path,
    argument(
        "Configuration (YAML), as workflow/config/demo.yaml. RESULTS below is its key `results`.", "CONFIG"
    ),
]
Tracks = Annotated[
    str | None, option("PATTERN", "Tracks, groups or shell patterns, comma-separated.", "all", "--tracks")
]
Reference = Annotated[Path, option("FASTA", "Indexed reference, plain or bgzip.")]
MaxN = Annotated[
    float, option("FRACTION", "What has a larger share of N in its window is listed, but not scored.")
]
Assembly = Annotated[
    str,
    option(
        None,
        "Whose contigs hold: GRCh37 (hg19), GRCh38 (hg38), sacCer3 (R64-1-1), or custom and demo, where no "
        "length is checked, and names stand for themselves and for those that --aliases gives them.",
    ),
]
Aliases = Annotated[
    Path | None,
    option(
        "FILE",
        "Contigs' other names: all names of one on a line, tabs between them, or NCBI's assembly report.",
        "none",
        "--aliases",
    ),
]
ResultFile = Annotated[Path | None, output("FILE", "File to write, whole or not at all.", "standard output")]
Contigs = Annotated[
    list[str] | None,
    option("NAME", "Only this contig, by any name that its assembly knows; repeatable.", "all", "--contig"),
]
Regions = Annotated[
    Path | None, option("BED", "Only what lies in these regions, with --contig only on that contig.", "all")
]
Calibrated = Annotated[
    bool,
    option(
        None,
        "Give the model's probabilities as its calibration corrects them, which it must have.",
        "",
        "--calibrated",
    ),
]
Prior = Annotated[
    float | None,
    option(
        "SHARE",
        "Share of the windows that are promoters, which calibrated probabilities are shifted to; with "
        "--calibrated.",
        "as among the validation windows",
        "--prior",
    ),
]
PieceOption = Annotated[
    str | None,
    option(
        "K/N",
        "Only piece K of N, into a file that merge-shards reads; -o names it, whatever its ending.",
        "the whole",
        "--shard",
    ),
]
Directory = Annotated[Path, output("DIR", "Directory for the tables and figures.")]
NegativeSet = Annotated[
    str,
    option(
        None,
        "substituted, permuted, dinucleotide_shuffled, genomic, upstream or given.",
        "",
        "--negative-set",
    ),
]
ModelDirectory = Annotated[Path, argument("Model directory.", "MODEL_DIR")]
NewModel = Annotated[Path, output("MODEL_DIR", "Model directory to write.")]
ModelPredictions = Annotated[
    Path | None,
    option(
        "FILE",
        "The model's predictions of held-out windows (Parquet).",
        "predictions.parquet of MODEL_DIR",
        "--predictions",
    ),
]
CalibratedModel = Annotated[
    Path | None,
    output(
        "MODEL_DIR",
        "Write a copy of the model with its calibration.",
        "MODEL_DIR itself gets calibration.json",
    ),
]
NewModelArgument = Annotated[Path, argument("Model directory to write.", "MODEL_DIR")]
RunReference = Annotated[
    Path | None, option("FASTA", "Indexed reference, plain or bgzip.", RESULTS.reference, "--reference")
]
RunTokenizer = Annotated[Path | None, option("FILE", "Tokenizer of DNA.", RESULTS.tokenizer, "--tokenizer")]
Pretrained = Annotated[
    Path | None, option("MODEL_DIR", "What fine-tuning starts from.", RESULTS.pretrained, "--pretrained")
]
Checkpoints = Annotated[
    Path | None, option("DIR", "Of the running training.", RESULTS.checkpoints, "--checkpoint-dir")
]
TimeLimit = Annotated[
    str | None,
    option(
        "[D-]HH:MM:SS",
        "Save a checkpoint and stop, with exit code 75, before so much time has passed.",
        "the end of the Slurm job",
        "--time-limit",
    ),
]
Windows = Annotated[
    Path | None, option("DIR", "Data set of prepare promoter-windows.", RESULTS.windows, "--windows")
]
ChromatinData = Annotated[
    Path | None, option("DIR", "Data set of prepare chromatin.", RESULTS.chromatin_data, "--data")
]


def check_benchmarks(directory: Path | None) -> None:
    """`UsageError` where the directory of Snakemake's benchmark files isn't one."""
    if directory is not None and not directory.is_dir():
        raise UsageError(f"--benchmarks {directory}: is not a directory")


def promoter_reference(config: "RunConfig") -> Path:
    """Where the windows of promoters are read from: a genome, or sequences."""
    return config.paths.sequences if config.has_sequences else config.paths.reference


def scoring(batch_size: int, *without: str) -> list[Parameter]:
    """The last options of every command that scores, `without` those that it doesn't have."""
    shared: list[tuple[str, Any, object]] = [
        ("max_n", MaxN, 0.25),
        ("calibrated", Calibrated, False),
        ("prior", Prior, None),
        ("piece", PieceOption, None),
        ("precision", Precision, "float32"),
        ("batch_size", BatchSize, batch_size),
        ("device", Device, "auto"),
        ("threads", Threads, None),
    ]
    kind = Parameter.POSITIONAL_OR_KEYWORD
    return [Parameter(key, kind, default=x, annotation=t) for key, t, x in shared if key not in without]


Command = Callable[..., None]
Report = Callable[[Any, dict[str, Any]], Iterable[str]]
"""The lines about what a function returned, and what it was given."""


def runs(
    work: str,
    *,
    part: str = "",
    inputs: Sequence[str] = (),
    choices: Sequence[str] = (),
    also: Sequence[Parameter] = (),
    report: Report | None = None,
    say: Callable[[str], None] = log,
    **usual: "Callable[[RunConfig], object]",
) -> Callable[[Command], Command]:
    """Make a command of its declaration: it calls `work`, a function by its module and name.

    The function gets the arguments by their names. What was not given is its default. `config` and
    `overrides` are read to settings, of which the function gets the `part`; a path that stands in RESULTS is
    then the run's, and `usual` has what others are. `workers` are CPU cores; `threads` are those of the whole
    call, unless the function has such an argument. The output may not be one of `inputs`, nor lie in one;
    `choices` are arguments whose values are the words of their help; `also` come last in the signature. Lines
    of `report` go to the log, or to `say`.
    """
    module, _, name = f"bigbird_dna.{work}".rpartition(".")

    def declare(declaration: Command) -> Command:
        hints = get_type_hints(declaration, include_extras=True) | {one.name: one.annotation for one in also}
        extras: dict[str, Any] = {key: getattr(hint, "__metadata__", [0])[0] for key, hint in hints.items()}

        @wraps(declaration)
        def command(**given: Any) -> None:
            for key in choices:
                check_choice(key, given[key], extras[key].metavar.split("|"))
            if "config" in given:
                settings = _run_files(given, extras, usual)
                given["config"] = attrgetter(part)(settings) if part else settings
            if inputs:
                check_output(given["output"], [path for key in inputs for path in _listed(given[key])])
            function = getattr(import_module(module), name)
            known = signature(function).parameters
            computing: AbstractContextManager[None] = nullcontext()
            if "threads" in given and "threads" not in known:
                computing = import_module("bigbird_dna.model.inference").cpu_threads(given.pop("threads"))
            if "workers" in given:
                given["workers"] = cores(given["workers"])
            needed = {key for key in known if known[key].default is Parameter.empty}
            words = {key: value for key, value in given.items() if value is not None or key in needed}
            with computing:
                result = function(**words)
            for line in report(result, given) if report is not None else ():
                say(line)

        whole = Signature([*signature(declaration).parameters.values(), *also])
        vars(command).update(work=(module, name), __signature__=whole)
        command.__annotations__ = hints
        return command

    return declare


def _run_files(
    given: dict[str, Any], extras: dict[str, Any], usual: "dict[str, Callable[[RunConfig], object]]"
) -> "RunConfig":
    """The settings of a command; arguments that were not given become what its run has."""
    settings, paths = read_run(given["config"], given.pop("overrides", None))
    for key in (key for key, value in given.items() if value is None):
        place: Any = getattr(extras[key], "run_path", None)
        if key in usual or place is not None:
            given[key] = usual[key](settings) if key in usual else paths.results / place
    return settings


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def cores(threads: int | None) -> int:
    """How many CPU cores to use: those asked for, or all that this process may have."""
    check_at_least_one({"threads": threads})
    return threads or len(os.sched_getaffinity(0))


@contextmanager
def training(
    config: Path, overrides: Sequence[str] | None, device: str, threads: int | None, time_limit: str | None
) -> "Iterator[tuple[RunConfig, RunPaths, World]]":
    """The settings of a training, the names of the run's files, and the processes that train together."""
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.training.distributed import time_of_end, world

    ends = time_of_end(time_limit)
    settings, paths = read_run(config, overrides)
    with cpu_threads(threads), world(device, ends) as here:
        yield settings, paths, here
