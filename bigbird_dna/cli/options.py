"""Options shared by commands, each declared once, and `runs` and `trains`, which make commands.

A command that calls one function of the package is declared by a signature and a docstring; its arguments
have the names of the function's arguments. The function is imported only when the command runs.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from importlib import import_module
from importlib.resources import as_file, files
from inspect import Parameter, Signature, signature
from operator import attrgetter
from pathlib import Path
from textwrap import indent, wrap
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from bigbird_dna.config.paths import RunPaths
from bigbird_dna.console import log
from bigbird_dna.disk.outputs import check_output
from bigbird_dna.errors import UsageError, check_at_least_one, check_choice
from bigbird_dna.gpus import available_cores, checked_threads, keep_kernels

if TYPE_CHECKING:
    from bigbird_dna.config import Config as RunConfig
    from bigbird_dna.training.distributed import World


class PlainHelp(TyperCommand):
    """A command whose help is plain text: Rich tables of twenty options have columns of three words."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"rich_markup_mode": None})

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example; the usual way would break options at their hyphens."""
        lines = wrap(self.epilog or "", formatter.width - 2, break_on_hyphens=False)
        formatter.write("\n" + indent("\n".join(lines), "  ") + "\n")


PREDICT = "Predict"
TRAIN = "Train"
SHARE = "Evaluate and share"
GROUPS = "Command groups"
"""The panels of `--help`."""


ModelDir = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL_DIR", help="Model directory, or name of a bundled model."
    ),
]
FastaInput = Annotated[
    Path,
    typer.Argument(
        metavar="FASTA",
        help="FASTA file, plain, gzip or bgzip; - reads standard input.",
    ),
]

ResultFile = Annotated[
    Path | None,
    typer.Option(
        *("-o", "--output"),
        metavar="FILE",
        help="Output file.",
        show_default="standard output",
    ),
]

Reference = Annotated[
    Path,
    typer.Option(metavar="FASTA", help="Indexed genome, plain or bgzip."),
]
OptionalReference = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        metavar="FASTA",
        help="Indexed genome of regions or variants, plain or bgzip.",
    ),
]
Aliases = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Contig names, those of a contig per line, or an NCBI assembly report.",
    ),
]
Contigs = Annotated[
    list[str] | None,
    typer.Option(
        "--contig",
        metavar="NAME",
        help="Only this contig, by any known name, or a part such as chr6:1-1000 "
        "(1-based, inclusive); repeatable.",
        show_default="all",
    ),
]
Regions = Annotated[
    Path | None,
    typer.Option(
        metavar="BED",
        help="Only these regions: a BED file, or one such as chr6:1-1000.",
        show_default="all",
    ),
]
Tracks = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN",
        help="Tracks or groups, by name or pattern, comma-separated.",
        show_default="all",
    ),
]
SequenceColumn = Annotated[
    str,
    typer.Option(metavar="NAME", help="Column of a table with the sequences."),
]

MaxN = Annotated[
    float,
    typer.Option(
        metavar="FRACTION",
        help="List, but do not score, windows with a larger fraction of N.",
    ),
]
Calibrated = Annotated[
    bool,
    typer.Option(
        "--calibrated",
        help="Output calibrated probabilities; the model needs a calibration.",
    ),
]
Prior = Annotated[
    float | None,
    typer.Option(
        metavar="FRACTION",
        help="Fraction of promoters, for --calibrated.",
        show_default="that of the validation windows",
    ),
]
Precision = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"],
    typer.Option(
        help="auto: bfloat16 on GPUs that support it, except for variants, calls and "
        "embeddings; else float32."
    ),
]
BatchSize = Annotated[
    int,
    typer.Option(metavar="N", help="Inputs per batch; affects speed and memory only."),
]
Device = Annotated[
    Literal["auto", "cpu", "cuda", "mps"],
    typer.Option(help="Device of the model."),
]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", help="Number of CPU cores.", show_default="all"),
]
RequireBackend = Annotated[
    Literal["flex", "native", "blocked", "dense"] | None,
    typer.Option(help="Fail if attention uses another backend."),
]


RESULTS = RunPaths(Path("RESULTS"))
"""The files of a run as shown in help texts."""

Config = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG",
        help="Configuration (YAML), such as workflow/config/demo.yaml; its key "
        "`results` sets RESULTS below.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of CONFIG, such as encoder.layers=4; repeatable.",
    ),
]
RunReference = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        metavar="FASTA",
        help="Indexed reference genome.",
        show_default=str(RESULTS.reference),
    ),
]
RunTokenizer = Annotated[
    Path | None,
    typer.Option(
        "--tokenizer",
        metavar="FILE",
        help="DNA tokenizer.",
        show_default=str(RESULTS.tokenizer),
    ),
]
RunTokens = Annotated[
    Path | None,
    typer.Option(
        "--tokens",
        metavar="DIR",
        help="Token stores.",
        show_default=str(RESULTS.tokens),
    ),
]
RunWindows = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Data set of prepare promoter-windows.",
        show_default=str(RESULTS.windows),
    ),
]
RunBins = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Data set of prepare chromatin.",
        show_default=str(RESULTS.chromatin_data),
    ),
]
Pretrained = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL_DIR",
        help="Pretrained model to fine-tune.",
        show_default=str(RESULTS.pretrained),
    ),
]
NegativeSet = Annotated[
    str,
    typer.Option(
        metavar="SET",
        help="Negative set: substituted, permuted, dinucleotide_shuffled, genomic, "
        "intergenic, upstream or user.",
    ),
]
Checkpoints = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint-dir",
        metavar="DIR",
        help="Directory for checkpoints.",
        show_default=str(RESULTS.checkpoints),
    ),
]
TimeLimit = Annotated[
    str | None,
    typer.Option(
        metavar="[D-]HH:MM:SS",
        help="Save a checkpoint and stop with exit code 75 before this much time has "
        "passed.",
        show_default="the end of the Slurm job",
    ),
]
NewModel = Annotated[
    Path,
    typer.Option(
        *("-o", "--output"), metavar="MODEL_DIR", help="Model directory to write."
    ),
]
OutputDir = Annotated[
    Path,
    typer.Option(
        *("-o", "--output"),
        metavar="DIR",
        help="Directory for the tables and plots.",
    ),
]
Figure = Annotated[
    Path,
    typer.Option(
        *("-o", "--output"),
        metavar="FILE",
        help="Plot to write: .svg, .png or .pdf.",
    ),
]
Assembly = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="GRCh37 (hg19), GRCh38 (hg38), sacCer3 (R64-1-1) or ASM294v2, with known "
        "contig names and lengths; custom or demo: contigs have the names in the files "
        "and in --aliases.",
    ),
]


def read_run(
    config: Path | None, overrides: Sequence[str] | None
) -> "tuple[RunConfig, RunPaths]":
    """Return the configuration of a run with its overrides, and the paths of its files.

    None: the package's configuration for labeled sequences.
    """
    from bigbird_dna.config import load_config

    if config is None:
        resource = files("bigbird_dna.resources") / "labeled_sequences.yaml"
        with as_file(resource) as path:
            run = load_config(path, overrides or ())
    else:
        run = load_config(config, overrides or ())
    keep_kernels(run.kernel_cache)
    if run.pretraining.start_from is not None:
        from bigbird_dna.huggingface.starting import with_start

        run = with_start(run)
    return run, run.paths


@contextmanager
def training(
    device: str, time_limit: str | None, threads: int | None, backend: str | None
) -> "Iterator[World]":
    """Yield the processes that train together, with this one's threads and attention backend."""
    from bigbird_dna.attention import required_backend
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.training.distributed import time_of_end, world

    with (
        required_backend(backend),
        cpu_threads(threads),
        world(device, time_of_end(time_limit)) as processes,
    ):
        yield processes


def named_files(option: str, values: Sequence[str] | None) -> dict[str, Path]:
    """Return the files of an option's `NAME=FILE` values by name, in order.

    `UsageError`: a value of another form, or a repeated name.
    """
    named: dict[str, Path] = {}
    for value in values or ():
        name, _, path = value.partition("=")
        if not (name and path):
            raise UsageError(f"{option} {value!r}: expected NAME=FILE")
        if name in named:
            raise UsageError(f"{option}: {name!r} is given twice")
        named[name] = Path(path)
    return named


def output_option(metavar: str, help: str, default: Path | str | None = None) -> Any:
    """Return the option `-o` of a command; `default` is shown in the help."""
    shown = True if default is None else str(default)
    return typer.Option(
        "-o", "--output", metavar=metavar, help=help, show_default=shown
    )


# Options of commands that are declared for `runs` and `trains`

USUAL_CONFIG = "labeled_sequences.yaml"
"""The configuration, among the package's resources, of commands that are called without one."""


def option(
    default: Any,
    metavar: str | None,
    help: str,
    usual: str | Path = "",
    *names: str,
    least: int | None = None,
) -> Any:
    """Return a Typer option; `default` is `...` if required, `usual` is the default shown in the help.

    A `usual` path is a file of the run in RESULTS; its relative path is stored as `run_path`.
    """
    made = typer.Option(
        default,
        *names,
        metavar=metavar,
        help=help,
        show_default=str(usual) or True,
        min=least,
    )
    made.run_path = (
        usual.relative_to(RESULTS.results) if isinstance(usual, Path) else None
    )
    return made


def output(default: Any, metavar: str, help: str, usual: str | Path = "") -> Any:
    """Return the option `-o` for an output."""
    return option(default, metavar, help, usual, "-o", "--output")


def argument(help: str, metavar: str | None = None, default: Any = ...) -> Any:
    """Return a Typer argument, which is required unless it has a default."""
    return typer.Argument(default, metavar=metavar, help=help)


DEVICE = option("auto", "auto|cpu|cuda|mps", "Device on which the model runs.")
REQUIRE_BACKEND = option(
    None, "flex|native|blocked|dense", "Fail if attention uses another backend.", "any"
)
THREADS = option(
    None, None, "Number of CPU cores; affects speed only.", "all", "--threads"
)


def batch_size(default: int) -> Any:
    """Return the option `--batch-size`; the default depends on the memory that the models need."""
    return option(
        default, None, "Number of inputs per batch; affects speed and memory only."
    )


PRECISION = option(
    "auto",
    "auto|float32|bfloat16|float16",
    "Floating-point format of the model; auto: bfloat16 on GPUs that support it, except for variants, calls "
    "and embeddings, else float32. bfloat16 and float16 (GPU only) are faster on GPUs and less exact.",
)
OVERRIDES = option(
    None,
    "KEY=VALUE",
    "Override a key of CONFIG, such as encoder.layers=4; repeatable.",
    "",
    "--set",
)
CONFIG = argument(
    "Configuration (YAML), such as workflow/config/demo.yaml; its key `results` sets RESULTS below.",
    "CONFIG",
)
TRACKS = option(
    None,
    "PATTERN",
    "Tracks or groups, by name or pattern, comma-separated.",
    "all",
    "--tracks",
)
REFERENCE = option(..., "FASTA", "Indexed reference genome, plain or bgzip.")
MAX_N = option(
    0.25, "FRACTION", "List, but do not score, windows with a larger fraction of N."
)
ASSEMBLY = option(
    "custom",
    None,
    "Assembly: GRCh37 (hg19), GRCh38 (hg38), sacCer3 (R64-1-1) or ASM294v2, with known contig names and "
    "lengths; custom or demo: lengths are not checked, and contigs have the names in the files and in "
    "--aliases.",
)
ALIASES = option(
    None,
    "FILE",
    "Alternative contig names: all names of a contig per line, tab-separated, or an NCBI assembly report.",
    "none",
    "--aliases",
)
RESULT_FILE = output(
    None, "FILE", "Output file, written atomically.", "standard output"
)
CONTIGS = option(
    None,
    "NAME",
    "Restrict to this contig, by any name that is known for it; repeatable.",
    "all",
    "--contig",
)
REGIONS = option(
    None,
    "BED",
    "Restrict to these regions; with --contig, to those on that contig.",
    "all",
)
CALIBRATED = option(
    False,
    None,
    "Output calibrated probabilities; the model needs a calibration.",
    "",
    "--calibrated",
)
PRIOR = option(
    None,
    "FRACTION",
    "Fraction of promoters among the windows, which adjusts calibrated probabilities; needs --calibrated.",
    "the fraction among validation windows",
    "--prior",
)
DIRECTORY = output(..., "DIR", "Directory for the tables and plots.")
FIGURE = output(..., "FILE", "Plot to write: .svg, .png or .pdf.")
NEGATIVE_SET = option(
    ...,
    None,
    "Negative set: substituted, permuted, dinucleotide_shuffled, genomic, intergenic, upstream or user.",
    "",
    "--negative-set",
)
MODEL_DIRECTORY = argument("Model directory.", "MODEL_DIR")
NEW_MODEL = output(..., "MODEL_DIR", "Model directory to write.")
MODEL_PREDICTIONS = option(
    None,
    "FILE",
    "The model's predictions for held-out windows (Parquet).",
    "predictions.parquet of MODEL_DIR",
    "--predictions",
)
CALIBRATED_MODEL = output(
    None,
    "MODEL_DIR",
    "Copy of the model to write, with its calibration.",
    "calibration.json in MODEL_DIR",
)
RUN_REFERENCE = option(
    None,
    "FASTA",
    "Indexed reference genome, plain or bgzip.",
    RESULTS.reference,
    "--reference",
)
RUN_TOKENIZER = option(None, "FILE", "DNA tokenizer.", RESULTS.tokenizer, "--tokenizer")
PRETRAINED = option(
    None,
    "MODEL_DIR",
    "Pretrained model to fine-tune.",
    RESULTS.pretrained,
    "--pretrained",
)
CHECKPOINTS = option(
    None, "DIR", "Directory for checkpoints.", RESULTS.checkpoints, "--checkpoint-dir"
)
TIME_LIMIT = option(
    None,
    "[D-]HH:MM:SS",
    "Save a checkpoint and stop with exit code 75 before this much time has passed.",
    "the end of the Slurm job",
    "--time-limit",
)
SEQUENCE_FILES = argument(
    "FASTA of positives, or tables (CSV, TSV, Parquet) of sequences with labels 0 and 1; each also .gz.",
    "DATA...",
)
SEQUENCE_COLUMN = option(
    "sequence", "NAME", "Column of a table with the sequences.", "", "--sequence-column"
)
LABEL_COLUMN = option(
    "label", "NAME", "Column of a table with the labels.", "", "--label-column"
)
SPLIT_COLUMN = option(
    "split",
    "NAME",
    "Column of a table with the splits, if it has one.",
    "",
    "--split-column",
)
LABEL_COLUMNS = option(
    [],
    "NAME",
    "Column of a table with labels, or a pattern such as 'track_*'; repeatable.",
    "label, or label_0, label_1 …",
    "--label-column",
)
WINDOWS = option(
    None, "DIR", "Data set of prepare promoter-windows.", RESULTS.windows, "--windows"
)
CHROMATIN_DATA = option(
    None, "DIR", "Data set of prepare chromatin.", RESULTS.chromatin_data, "--data"
)


def promoter_reference(config: "RunConfig", _: "Given") -> Path:
    """Return the FASTA that promoter windows are read from: the genome, or the user's sequences."""
    return config.paths.sequences if config.has_sequences else config.paths.reference


def model_tokenizer(config: "RunConfig", _: "Given") -> Path:
    """Return the tokenizer of fine-tuned models."""
    return config.model_tokenizer


def scoring(windows: int, *without: str) -> list[Parameter]:
    """Return the last options of every command that scores, except those in `without`."""
    shared: dict[str, tuple[Any, Any]] = {
        "max_n": (float, MAX_N),
        "calibrated": (bool, CALIBRATED),
        "prior": (float | None, PRIOR),
        "precision": (str, PRECISION),
        "batch_size": (int, batch_size(windows)),
        "device": (str, DEVICE),
        "threads": (int | None, THREADS),
    }
    return [_parameter(key, *of) for key, of in shared.items() if key not in without]


def _parameter(key: str, of: Any, default: Any) -> Parameter:
    return Parameter(
        key, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=of
    )


Command = Callable[..., None]
Given = dict[str, Any]
"""The arguments of a command by their names."""

Usual = Callable[["RunConfig", Given], object]
"""Returns the run's value for an omitted argument, given the configuration and the preceding arguments."""

Report = Callable[[Any, Given], Iterable[str]]
"""Returns log lines about the result of a function, given the result and the arguments."""


def runs(
    work: str,
    *,
    part: str = "",
    inputs: Sequence[str] = (),
    choices: Sequence[str] = (),
    named: Sequence[str] = (),
    also: Sequence[Parameter] = (),
    report: Report | None = None,
    say: Callable[[str], None] = log,
    **usual: Usual,
) -> Callable[[Command], Command]:
    """Make a command from its declaration: it calls `work`, a function given by module and name.

    The function receives the arguments by name; omitted arguments have its defaults. `config` and `overrides`
    are read to a configuration, of which the function receives the section `part`. Omitted paths in RESULTS
    are those of the run; `usual` computes other omitted arguments. `workers` are CPU cores; `threads` limits
    the whole call, unless the function has this argument. The output must be neither one of `inputs` nor
    inside one. `choices` are arguments whose metavar lists the valid values. Values NAME=FILE of `named`
    become a dictionary. `also` are appended to the signature. The lines of `report` go to the log, or `say`.
    """

    def declare(declaration: Command) -> Command:
        parameters = [*signature(declaration).parameters.values(), *also]
        declared = {one.name: one.default for one in parameters}

        @wraps(declaration)
        def command(**given: Any) -> None:
            for key in choices:
                if given[key] is not None:
                    check_choice(
                        f"--{key}", given[key], declared[key].metavar.split("|")
                    )
            given.update(
                {
                    key: named_files(f"--{key.replace('_', '-')}", given[key] or ())
                    for key in named
                }
            )
            read = [path] if inputs and (path := given.get("config")) else []
            if "config" in given:
                settings = _run_files(given, declared, usual)
                given["config"] = attrgetter(part)(settings) if part else settings
            if inputs:
                read += [path for key in inputs for path in _listed(given[key])]
                check_output(given["output"], read)
            function = _function(work)
            known = signature(function).parameters
            computing: AbstractContextManager[None] = nullcontext()
            if "threads" in given and "threads" not in known:
                computing = import_module("bigbird_dna.model.inference").cpu_threads(
                    given.pop("threads")
                )
            if "workers" in given:
                check_at_least_one({"--threads": given["workers"]})
                given["workers"] = checked_threads(
                    given["workers"] or available_cores()
                )
            needed = {key for key in known if known[key].default is Parameter.empty}
            words = {
                key: value
                for key, value in given.items()
                if value is not None or key in needed
            }
            with computing:
                result = function(**words)
            for line in report(result, given) if report is not None else ():
                say(line)

        vars(command).update(work=f"bigbird_dna.{work}".rpartition(".")[::2])
        return _with_signature(command, parameters)

    return declare


def _function(path: str) -> Any:
    """The function or class of the package that is given by module and name."""
    module, _, name = f"bigbird_dna.{path}".rpartition(".")
    gc.disable()  # torch's import creates a million objects, none garbage, now or later: a tenth of a start
    try:
        return getattr(import_module(module), name)
    finally:
        if (
            not gc.get_freeze_count()
        ):  # once: what is garbage later in this process remains so
            gc.freeze()
        gc.enable()


def _with_signature(command: Command, parameters: Sequence[Parameter]) -> Command:
    """The command with these parameters; one that runs a model can require an attention backend."""
    if {"device", "threads"} <= {one.name for one in parameters}:
        parameters = [
            *parameters,
            _parameter("require_backend", str | None, REQUIRE_BACKEND),
        ]
        command = _requiring(command)
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    vars(command).update(__signature__=Signature(parameters))
    return command


def _requiring(inner: Command) -> Command:
    @wraps(inner)
    def command(*, require_backend: str | None = None, **given: Any) -> None:
        backends = import_module("bigbird_dna.attention") if require_backend else None
        with backends.required_backend(require_backend) if backends else nullcontext():
            inner(**given)

    return command


def _run_files(
    given: Given, declared: Given, usual: Mapping[str, Usual]
) -> "RunConfig":
    """Return the configuration of a command, and replace omitted arguments by the values of its run."""
    overrides = given.pop("overrides", None)
    if given["config"] is None:
        with as_file(files("bigbird_dna.resources").joinpath(USUAL_CONFIG)) as path:
            settings, paths = read_run(path, overrides)
    else:
        settings, paths = read_run(given["config"], overrides)
    for key in (
        key for key, value in given.items() if value is None and key != "config"
    ):
        place: Any = getattr(declared[key], "run_path", None)
        if key in usual or place is not None:
            given[key] = (
                usual[key](settings, given) if key in usual else paths.results / place
            )
    return settings


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
