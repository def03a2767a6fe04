"""Commands that fetch, import, export, calibrate, combine and show models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bigbird_dna.cli.options import (
    RESULTS,
    SHARE,
    BatchSize,
    Commands,
    Device,
    Force,
    ModelDir,
    NewModel,
    Overrides,
    Threads,
    output_option,
    read_run,
)
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError

if TYPE_CHECKING:
    from bigbird_dna.calibration.call_precision import CallPrecision

app = Commands(SHARE)
group = Commands(help="Calibrate, combine and show trained models.")


@app.command(
    "fetch-model",
    epilog="Example: bigbird-dna fetch-model yeast-promoters -o models/yeast-promoters",
)
def fetch_model(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Name of a published model; not with --list."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        output_option("MODEL_DIR", "Model directory to write.", "models/NAME"),
    ] = None,
    list_models: Annotated[
        bool, typer.Option("--list", help="List the published models.")
    ] = False,
    catalog: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="List of published models; docs/files.md describes its format.",
            show_default="the package's list",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Write the directory of a published model: copy a bundled model, or download and verify another one.

    An interrupted download resumes. Commands that read a MODEL_DIR also accept the name of a bundled model,
    without fetching it.
    """
    from bigbird_dna.model.published import fetch_model, read_published

    if list_models:
        if name is not None:
            raise UsageError(f"--list lists all published models: remove {name!r}")

        typer.echo("name\ttask\tfrom\tlicense\tdescription")
        for label, model in read_published(catalog).items():
            source = "address" if model.urls else "bundled"
            cells = (label, model.task, source, model.license, model.description)
            typer.echo("\t".join(cells))

        return

    if name is None:
        raise UsageError(
            "fetch-model needs the name of a model; --list shows the available names"
        )

    fetch_model(name, output, catalog)


@app.command(
    "import-hf",
    epilog="Example: bigbird-dna import-hf bigbird-roberta-base models/bigbird",
)
def import_hf(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIRECTORY",
            help="Checkpoint directory of a HuggingFace BigBird or RoBERTa model.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Argument(metavar="MODEL_DIR", help="Model directory to write."),
    ],
    compatibility: Annotated[
        Literal["huggingface", "none"],
        typer.Option(
            help="Attention as in HuggingFace's evaluation mode, or as in the paper with "
            "random blocks (none)."
        ),
    ] = "huggingface",
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="tokenizer.json or SentencePiece model that replaces the one in "
            "DIRECTORY.",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Convert a HuggingFace checkpoint to a model directory.

    Supported are BigBirdForPreTraining, BigBirdForMaskedLM, BigBirdForSequenceClassification,
    BigBirdForQuestionAnswering and BigBirdModel, as safetensors or PyTorch files. Code in the checkpoint is not executed.
    """
    from bigbird_dna.huggingface.exchange import import_huggingface

    imported = import_huggingface(directory, output, compatibility, tokenizer)
    log(f"{output}: a {imported.task} model of {imported.parameters:,} parameters")


@app.command(
    "export-hf",
    epilog="Example: bigbird-dna export-hf results/demo/models/pretrained huggingface",
)
def export_hf(
    model: ModelDir,
    output: Annotated[
        Path,
        typer.Argument(metavar="OUTPUT", help="Checkpoint directory to write."),
    ],
    force: Force = False,
) -> None:
    """Convert a model directory to a checkpoint that HuggingFace's from_pretrained loads.

    A promoter model becomes a BigBirdForSequenceClassification with one output, the promoter logit. Models
    with parts that HuggingFace's BigBird lacks cannot be exported.
    """
    from bigbird_dna.huggingface.exchange import export_huggingface

    log(f"{output}: {export_huggingface(model, output)}")


@group.command(
    "show",
    epilog="Example: bigbird-dna model show yeast-promoters",
)
def show_model(path: ModelDir) -> None:
    """Print what a model is: its task, window, tracks, training data, calibrations and metrics."""
    from bigbird_dna.model.card import describe_model, read_metrics
    from bigbird_dna.model.directory import load

    loaded = load(path)
    facts = describe_model(loaded)
    metrics = read_metrics(loaded)
    width = max(map(len, [*facts, *metrics]))
    for label, text in facts.items():
        typer.echo(f"{label:{width}}  {text}")

    if metrics:
        typer.echo("\nmetrics (intervals of 95 %)")

    for label, text in metrics.items():
        typer.echo(f"{label:{width}}  {text}")


@group.command(
    "ensemble",
    epilog="Example: bigbird-dna model ensemble models/chromatin-8000-0 "
    "models/chromatin-8000-1 -o models/chromatin",
)
def combine_models(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL_DIR...", help="Two or more chromatin models."),
    ],
    output: NewModel,
    force: Force = False,
) -> None:
    """Combine independently trained chromatin models into an ensemble that predicts their mean probability."""
    from bigbird_dna.model.directory import combine_models

    combine_models(models, output)


@group.command(
    "regressions",
    epilog="Example: bigbird-dna model regressions results/demo/models/chromatin-8000-0 "
    "-o models/regressions",
)
def regressions_alone(model: ModelDir, output: NewModel, force: Force = False) -> None:
    """Write the regressions of a chromatin model without its network: the baseline of its predictions.

    All commands that take a chromatin model take it as well.
    """
    from bigbird_dna.model.directory import regressions_alone

    regressions_alone(model, output)


@group.command(
    "calibrate",
    epilog="Example: bigbird-dna model calibrate results/demo/models/promoter-genomic",
)
def calibrate(
    model: ModelDir,
    output: Annotated[
        Path | None,
        output_option(
            "MODEL_DIR",
            "Copy of the model to write, with its calibration.",
            "MODEL_DIR itself",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG",
            help="Configuration of a chromatin model: calibrate its tracks.",
        ),
    ] = None,
    overrides: Overrides = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With --config: data set of prepare chromatin.",
            show_default=str(RESULTS.chromatin_data),
        ),
    ] = None,
    promoters: Annotated[
        Path | None,
        typer.Option(
            metavar="TSV",
            help="Annotated TSSs (prepare promoters): fit the expected precision of "
            "calls.",
        ),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(metavar="FASTA", help="Genome, for --config or --promoters."),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Held-out predictions.",
            show_default="in MODEL_DIR",
        ),
    ] = None,
    method: Annotated[
        Literal["auto", "platt", "isotonic"],
        typer.Option(
            help="platt (linear in log-odds), isotonic, or auto: platt for little data."
        ),
    ] = "auto",
    contigs: Annotated[
        list[str] | None,
        typer.Option(
            "--contig",
            metavar="NAME",
            help="Validation contig for calls; repeatable.",
            show_default="the model's",
        ),
    ] = None,
    test_contigs: Annotated[
        list[str] | None,
        typer.Option(
            "--test-contig",
            metavar="NAME",
            help="Test contig for calls; repeatable.",
            show_default="the model's",
        ),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            metavar="BP",
            help="Length of the intervals of a scan, or distance of windows, for calls.",
            show_default="10",
        ),
    ] = None,
    suppress: Annotated[
        int,
        typer.Option(
            metavar="BP", help="Calls of a strand are farther apart than this."
        ),
    ] = 100,
    within: Annotated[
        int,
        typer.Option(
            metavar="BP", help="Largest distance of a correct call to its TSS."
        ),
    ] = 100,
    batch_size: BatchSize = 16,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Calibrate a model on validation data, and store the calibration with the model.

    Probabilities of a promoter model are calibrated on its validation windows, which finetune-promoter
    includes; with --config, those of each track of a chromatin model on validation bins.

    With --promoters, the model scans validation contigs, and the expected precision of its calls is fitted
    for call-promoters: a call is correct if a TSS of its strand that no better call took is near.
    """
    from bigbird_dna.finetuning.calibrate import (
        calibrate_chromatin,
        calibrate_promoter,
    )
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.scoring.calls import calibrate_calls

    if promoters is not None and reference is None:
        raise UsageError("--promoters needs --reference")

    with cpu_threads(threads):
        if config is not None:
            run, paths = read_run(config, overrides)
            calibrate_chromatin(
                run.chromatin,
                model,
                output,
                data=data or paths.chromatin_data,
                reference=reference or paths.reference,
                batch_size=batch_size,
                device=device,
            )
        elif promoters is None:
            calibrate_promoter(model, output, predictions=predictions, method=method)

        if promoters is not None and reference is not None:
            if config is not None and output is not None:
                model, output = output, None  # the copy gets the precision as well

            log_calls(
                calibrate_calls(
                    model,
                    reference,
                    promoters,
                    output,
                    contigs=contigs or (),
                    test_contigs=test_contigs or (),
                    stride=stride,
                    suppress=suppress,
                    within=within,
                    batch_size=batch_size,
                    device=device,
                    threads=threads,
                )
            )


def log_calls(precision: "CallPrecision") -> None:
    """Log the calls of some false-discovery rates, and those of the largest F1."""
    rows = {f"--fdr {rate}": precision.at_rate(rate) for rate in (0.1, 0.2, 0.5)}
    for name, row in {**rows, "largest F1": precision.best()}.items():
        if row is None:
            log(f"{name}: not reached")
        else:
            log(
                f"{name}: {precision.calls[row]:,} calls, "
                f"{precision.calls[row] / precision.megabases:.3g} per Mb, expected "
                f"false-discovery rate {precision.expected_fdr[row]:.3f}, recall "
                f"{precision.found[row] / precision.tss:.3f}"
            )
