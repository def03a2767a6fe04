"""Arguments and options that several commands share, and contexts in which their functions run.

Everything here is light to import: `--help` must be there at once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from textwrap import indent, wrap
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand
from typer.models import CommandFunctionType

from bigbird_dna.config.paths import RunPaths
from bigbird_dna.errors import UsageError

if TYPE_CHECKING:
    from bigbird_dna.config.run import Config as RunConfig
    from bigbird_dna.training.distributed import World


class PlainHelp(TyperCommand):
    """A command whose help is plain text: Rich tables of twenty options have columns of three words."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"rich_markup_mode": None})

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example; the usual way would break options at their hyphens."""
        lines = wrap(self.epilog or "", formatter.width - 2, break_on_hyphens=False)
        formatter.write("\n" + indent("\n".join(lines), "  ") + "\n")


class Commands(typer.Typer):
    """Commands in one panel of `--help`, or a group of commands."""

    def __init__(self, panel: str | None = None, help: str | None = None) -> None:
        super().__init__(no_args_is_help=True, help=help)
        self.panel = panel

    def command(  # type: ignore[override]
        self, name: str, epilog: str
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Return the decorator of a command's function; `epilog` is an example."""
        return super().command(
            name, cls=PlainHelp, rich_help_panel=self.panel, epilog=epilog
        )


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


def output_option(metavar: str, help: str, default: Path | str | None = None) -> Any:
    """Return the option `-o` of a command; `default` is shown in the help."""
    shown = True if default is None else str(default)
    return typer.Option(
        "-o", "--output", metavar=metavar, help=help, show_default=shown
    )


ResultFile = Annotated[
    Path | None, output_option("FILE", "Output file.", "standard output")
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
        help="Only this contig, or its part chr6:1-1000 (1-based); repeatable.",
        show_default="all",
    ),
]
Regions = Annotated[
    Path | None,
    typer.Option(
        metavar="BED",
        help="Only these regions, or one such as chr6:1-1000.",
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
        min=0,
        max=1,
    ),
]
Calibrated = Annotated[
    bool,
    typer.Option(
        "--calibrated",
        help="Output calibrated probabilities; not of models of start sites.",
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
    typer.Option(
        metavar="N", help="Inputs per batch; affects speed and memory only.", min=1
    ),
]
Device = Annotated[
    Literal["auto", "cpu", "cuda"],
    typer.Option(help="Device of the model."),
]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", help="Number of CPU cores.", show_default="all", min=1),
]


def allow_foreign_files(ctx: typer.Context, value: bool) -> bool:
    """Let the command replace files in its output directory that no earlier run wrote."""
    from bigbird_dna.disk.directories import FORCE

    if value:
        token = FORCE.set(True)
        ctx.call_on_close(lambda: FORCE.reset(token))
    return value


Force = Annotated[
    bool,
    typer.Option(
        "--force",
        callback=allow_foreign_files,
        help="Replace an output directory that has files of others.",
    ),
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
RunPromoters = Annotated[
    Path | None,
    typer.Option(
        "--promoters",
        metavar="TSV",
        help="Start sites, as written by prepare promoters.",
        show_default=str(RESULTS.promoters),
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
Checkpoints = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint-dir",
        metavar="DIR",
        help="Directory for checkpoints.",
        show_default=str(RESULTS.checkpoints),
    ),
]
WriteLabels = Annotated[
    Path | None,
    typer.Option(
        "--write-labels",
        metavar="DIR",
        help="chromatin: also write the test bins and their labels.",
    ),
]
NewModel = Annotated[Path, output_option("MODEL_DIR", "Model directory to write.")]
OutputDir = Annotated[Path, output_option("DIR", "Directory for the tables and plots.")]
Assembly = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="GRCh37 (hg19), GRCh38 (hg38), sacCer3 (R64-1-1), ASM294v2 or ASM584v2, with "
        "known contig names and lengths; custom or demo: contigs have the names in the "
        "files and in --aliases.",
    ),
]


def read_run(
    config: Path | None, overrides: Sequence[str] | None
) -> "tuple[RunConfig, RunPaths]":
    """Return the configuration of a run with its overrides, and the paths of its files.

    None: the package's configuration for labeled sequences.
    """
    from bigbird_dna.config.reading import load_config

    if config is None:
        resource = files("bigbird_dna.resources") / "labeled_sequences.yaml"
        with as_file(resource) as path:
            run = load_config(path, overrides or ())
    else:
        run = load_config(config, overrides or ())

    if run.pretraining.start_from is not None:
        from bigbird_dna.huggingface.starting import with_start

        run = with_start(run)

    return run, run.paths


@contextmanager
def training(device: str, threads: int | None) -> "Iterator[World]":
    """Yield the processes that train together, with this one's threads."""
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.training.distributed import world

    with (
        cpu_threads(threads),
        world(device) as processes,
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
