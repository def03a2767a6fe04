"""What commands have in common: options, each declared once and with one meaning, and `runs`.

A command whose work a function of the package does is declared by a signature and a docstring: its arguments
have the function's names. Help texts need nothing of the function, which is imported once the command runs.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bigbird_dna.config.paths import RunPaths
from bigbird_dna.console import log
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.errors import UsageError, check_at_least_one, check_choice

if TYPE_CHECKING:
    from bigbird_dna.config import Config as RunConfig

RESULTS = RunPaths(Path("RESULTS"))
"""A run's files as help texts show them."""


def option(
    default: Any,
    metavar: str | None,
    help: str,
    usual: str | Path = "",
    *names: str,
    least: int | None = None,
) -> Any:
    """An option, `default` is `...` where it must be given; `usual` says in the help what holds without it.

    One in RESULTS is a file of the run (`run_path`), under its own directory.
    """
    made = typer.Option(
        default, *names, metavar=metavar, help=help, show_default=str(usual) or True, min=least
    )
    made.run_path = usual.relative_to(RESULTS.results) if isinstance(usual, Path) else None
    return made


def output(default: Any, metavar: str, help: str, usual: str | Path = "") -> Any:
    """The option `-o`: where a result goes."""
    return option(default, metavar, help, usual, "-o", "--output")


def argument(help: str, metavar: str | None = None, default: Any = ...) -> Any:
    """A word of the command, which can't do without it where it has no default."""
    return typer.Argument(default, metavar=metavar, help=help)


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


DEVICE = option("auto", "auto|cpu|cuda", "Where the model runs.")
THREADS = option(None, None, "CPU cores; they change speed only.", "all", "--threads")


def batch_size(default: int) -> Any:
    """The option of commands whose models need different memory."""
    return option(default, None, "Windows run together; changes speed and memory only.")


PRECISION = option(
    "float32",
    "float32|bfloat16|float16",
    "What the model computes in; float16 on GPUs. The last two are faster there, and less exact.",
)
OVERRIDES = option(
    None, "KEY=VALUE", "Override a key of CONFIG, as encoder.layers=4; repeatable.", "", "--set"
)
CONFIG = argument(
    "Configuration (YAML), as workflow/config/demo.yaml. RESULTS below is its key `results`.", "CONFIG"
)
TRACKS = option(None, "PATTERN", "Tracks, groups or shell patterns, comma-separated.", "all", "--tracks")
REFERENCE = option(..., "FASTA", "Indexed reference, plain or bgzip.")
MAX_N = option(0.25, "FRACTION", "What has a larger share of N in its window is listed, but not scored.")
ASSEMBLY = option(
    "custom",
    None,
    "Whose contigs hold: GRCh37 (hg19), GRCh38 (hg38), sacCer3 (R64-1-1), or custom and demo, where no "
    "length is checked, and names stand for themselves and for those that --aliases gives them.",
)
ALIASES = option(
    None,
    "FILE",
    "Contigs' other names: all names of one on a line, tabs between them, or NCBI's assembly report.",
    "none",
    "--aliases",
)
RESULT_FILE = output(None, "FILE", "File to write, whole or not at all.", "standard output")
CONTIGS = option(
    None, "NAME", "Only this contig, by any name that its assembly knows; repeatable.", "all", "--contig"
)
REGIONS = option(None, "BED", "Only what lies in these regions, with --contig only on that contig.", "all")
CALIBRATED = option(
    False,
    None,
    "Give the model's probabilities as its calibration corrects them, which it must have.",
    "",
    "--calibrated",
)
PRIOR = option(
    None,
    "SHARE",
    "Share of the windows that are promoters, which calibrated probabilities are shifted to; with "
    "--calibrated.",
    "as among the validation windows",
    "--prior",
)
SHARD = option(
    None,
    "K/N",
    "Only piece K of N, into a file that merge-shards reads; -o names it, whatever its ending.",
    "the whole",
    "--shard",
)
DIRECTORY = output(..., "DIR", "Directory for the tables and figures.")
NEGATIVE_SET = option(
    ...,
    None,
    "substituted, permuted, dinucleotide_shuffled, genomic, upstream or given.",
    "",
    "--negative-set",
)
MODEL_DIRECTORY = argument("Model directory.", "MODEL_DIR")
NEW_MODEL = output(..., "MODEL_DIR", "Model directory to write.")
MODEL_PREDICTIONS = option(
    None,
    "FILE",
    "The model's predictions of held-out windows (Parquet).",
    "predictions.parquet of MODEL_DIR",
    "--predictions",
)
CALIBRATED_MODEL = output(
    None,
    "MODEL_DIR",
    "Write a copy of the model with its calibration.",
    "MODEL_DIR itself gets calibration.json",
)
RUN_REFERENCE = option(None, "FASTA", "Indexed reference, plain or bgzip.", RESULTS.reference, "--reference")
RUN_TOKENIZER = option(None, "FILE", "Tokenizer of DNA.", RESULTS.tokenizer, "--tokenizer")
PRETRAINED = option(None, "MODEL_DIR", "What fine-tuning starts from.", RESULTS.pretrained, "--pretrained")
CHECKPOINTS = option(None, "DIR", "Of the running training.", RESULTS.checkpoints, "--checkpoint-dir")
TIME_LIMIT = option(
    None,
    "[D-]HH:MM:SS",
    "Save a checkpoint and stop, with exit code 75, before so much time has passed.",
    "the end of the Slurm job",
    "--time-limit",
)
WINDOWS = option(None, "DIR", "Data set of prepare promoter-windows.", RESULTS.windows, "--windows")
CHROMATIN_DATA = option(None, "DIR", "Data set of prepare chromatin.", RESULTS.chromatin_data, "--data")


def check_benchmarks(directory: Path | None) -> None:
    """`UsageError` where the directory of Snakemake's benchmark files isn't one."""
    if directory is not None and not directory.is_dir():
        raise UsageError(f"--benchmarks {directory}: is not a directory")


def promoter_reference(config: "RunConfig", _: "Given") -> Path:
    """Where the windows of promoters are read from: a genome, or sequences."""
    return config.paths.sequences if config.has_sequences else config.paths.reference


def scoring(windows: int, *without: str) -> list[Parameter]:
    """The last options of every command that scores, `without` those that it doesn't have."""
    shared: dict[str, tuple[Any, Any]] = {
        "max_n": (float, MAX_N),
        "calibrated": (bool, CALIBRATED),
        "prior": (float | None, PRIOR),
        "shard": (str | None, SHARD),
        "precision": (str, PRECISION),
        "batch_size": (int, batch_size(windows)),
        "device": (str, DEVICE),
        "threads": (int | None, THREADS),
    }
    return [_parameter(key, *of) for key, of in shared.items() if key not in without]


def _parameter(key: str, of: Any, default: Any) -> Parameter:
    return Parameter(key, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=of)


TRAINING = [
    _parameter("checkpoints", Path | None, CHECKPOINTS),
    _parameter("time_limit", str | None, TIME_LIMIT),
    _parameter("device", str, DEVICE),
    _parameter("threads", int | None, THREADS),
]
"""The last options of every command that trains a model of a run."""


Command = Callable[..., None]
Given = dict[str, Any]
"""The arguments of a command by their names."""

Usual = Callable[["RunConfig", Given], object]
"""What a run has for an argument that was not given; those before it are."""

Report = Callable[[Any, Given], Iterable[str]]
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
    **usual: Usual,
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
        parameters = [*signature(declaration).parameters.values(), *also]
        declared = {one.name: one.default for one in parameters}

        @wraps(declaration)
        def command(**given: Any) -> None:
            for key in choices:
                check_choice(key, given[key], declared[key].metavar.split("|"))
            if "config" in given:
                settings = _run_files(given, declared, usual)
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

        vars(command).update(work=(module, name))
        return _with_signature(command, parameters)

    return declare


def trains(work: str, **usual: Usual) -> Callable[[Command], Command]:
    """Make a command of its declaration: it trains `work`, a task by its module and name.

    The task gets the run's settings as `run`, and the other arguments by their names; what was not given is
    as of `runs`. `TRAINING` comes last in the signature.
    """
    module, _, name = f"bigbird_dna.{work}".rpartition(".")

    def declare(declaration: Command) -> Command:
        parameters = [*signature(declaration).parameters.values(), *TRAINING]
        declared = {one.name: one.default for one in parameters}

        @wraps(declaration)
        def command(**given: Any) -> None:
            from bigbird_dna.genome.reference import Reference
            from bigbird_dna.model.inference import cpu_threads
            from bigbird_dna.training.distributed import time_of_end, world
            from bigbird_dna.training.task import train

            ends = time_of_end(given.pop("time_limit"))
            run = _run_files(given, declared, usual)
            del given["config"]
            output, checkpoints, device, threads = (
                given.pop(key) for key in ("output", "checkpoints", "device", "threads")
            )
            with cpu_threads(threads), world(device, ends) as here:
                if "reference" in given:
                    given["reference"] = Reference(given["reference"])
                train(getattr(import_module(module), name)(run=run, **given), output, checkpoints, here)

        return _with_signature(command, parameters)

    return declare


def _with_signature(command: Command, parameters: Sequence[Parameter]) -> Command:
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    vars(command).update(__signature__=Signature(parameters))
    return command


def _run_files(given: Given, declared: Given, usual: Mapping[str, Usual]) -> "RunConfig":
    """The settings of a command; arguments that were not given become what its run has."""
    settings, paths = read_run(given["config"], given.pop("overrides", None))
    for key in (key for key, value in given.items() if value is None):
        place: Any = getattr(declared[key], "run_path", None)
        if key in usual or place is not None:
            given[key] = usual[key](settings, given) if key in usual else paths.results / place
    return settings


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def cores(threads: int | None) -> int:
    """How many CPU cores to use: those asked for, or all that this process may have."""
    check_at_least_one({"threads": threads})
    return threads or len(os.sched_getaffinity(0))
