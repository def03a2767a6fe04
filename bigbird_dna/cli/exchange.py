"""Commands that import, export, calibrate, combine, show and fetch models."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError

if TYPE_CHECKING:
    from bigbird_dna.calibration.call_precision import CallPrecision
    from bigbird_dna.model.model import LoadedModel


def _imported(model: "LoadedModel", given: dict[str, Any]) -> list[str]:
    return [
        f"{given['output']}: a {model.task} model of {model.parameters:,} parameters"
    ]


@runs(
    "huggingface.exchange.import_huggingface",
    choices=("compatibility",),
    report=_imported,
)
def import_hf(
    directory: Path = argument(
        "Checkpoint directory of a HuggingFace BigBird or ModernBERT model."
    ),
    output: Path = argument("Model directory to write.", "MODEL_DIR"),
    compatibility: str = option(
        "huggingface",
        "huggingface|none",
        "Attention as in HuggingFace's evaluation mode, or as in the paper with random blocks (none).",
    ),
    tokenizer: Path | None = option(
        None,
        "FILE",
        "tokenizer.json or SentencePiece model that replaces the one in DIRECTORY.",
    ),
) -> None:
    """Convert a HuggingFace checkpoint to a model directory.

    Supported are BigBirdForPreTraining, BigBirdForMaskedLM, BigBirdForSequenceClassification,
    BigBirdForQuestionAnswering, BigBirdModel, ModernBertForMaskedLM and ModernBertModel, as safetensors or
    PyTorch files, and all checkpoints of export-hf. Code in the checkpoint is not executed.

    Example: bigbird-dna import-hf bigbird-roberta-base models/bigbird
    """


@runs(
    "huggingface.exchange.export_huggingface",
    choices=("code",),
    report=lambda said, given: [f"{given['output']}: {said}"],
)
def export_hf(
    path: Path = opt.MODEL_DIRECTORY,
    output: Path = argument("Checkpoint directory to write."),
    code: str = option(
        "auto",
        "auto|never|always",
        "Whether the checkpoint has model code that imports this package; auto: if HuggingFace's library has "
        "no class for the model.",
    ),
    license: str | None = option(
        None,
        "TEXT",
        "License of the weights, for the README.",
        "not stated",
    ),
) -> None:
    """Convert a model directory to a checkpoint that HuggingFace's from_pretrained loads.

    A promoter model becomes a BigBirdForSequenceClassification with one output, the promoter logit. Models
    with model code are loaded with trust_remote_code=True, where bigbird-dna is installed.

    Example: bigbird-dna export-hf results/demo/models/pretrained huggingface
    """


def _log_calls(fitted: "CallPrecision") -> None:
    """Log the calls of some false-discovery rates, and those of the largest F1."""
    rates = {f"--fdr {rate}": fitted.at_rate(rate) for rate in (0.1, 0.2, 0.5)}
    for name, found in {**rates, "largest F1": fitted.best()}.items():
        if found is None:
            log(f"{name}: not reached")
        else:
            log(
                f"{name}: {found.calls:,} calls, {found.calls / fitted.megabases:.3g} per Mb, "
                f"expected false-discovery rate {found.expected_fdr:.3f}, recall {found.recall:.3f}"
            )


def calibrate(
    path: Path = opt.MODEL_DIRECTORY,
    output: Path | None = output(
        None,
        "MODEL_DIR",
        "Copy of the model to write, with its calibration.",
        "calibration.json and calls.json in MODEL_DIR",
    ),
    config: Path | None = option(
        None,
        "CONFIG",
        "Configuration of a chromatin model: calibrate its tracks on validation bins.",
        "",
        "--config",
    ),
    overrides: list[str] | None = opt.OVERRIDES,
    data: Path | None = option(
        None,
        "DIR",
        "Data set of prepare chromatin, with --config.",
        opt.RESULTS.chromatin_data,
        "--data",
    ),
    promoters: Path | None = option(
        None,
        "TSV",
        "Annotated TSSs (prepare promoters): fit the expected precision of calls.",
        "",
        "--promoters",
    ),
    reference: Path | None = option(
        None,
        "FASTA",
        "Indexed genome, with --config or --promoters.",
        "",
        "--reference",
    ),
    predictions: Path | None = opt.MODEL_PREDICTIONS,
    method: Literal["auto", "platt", "isotonic"] = option(
        "auto",
        None,
        "Calibration map of promoter models and calls: platt (linear in log-odds), isotonic (any increasing "
        "curve), or auto: platt for few validation windows or calls, else isotonic.",
    ),
    thresholds: Path | None = option(
        None,
        "FILE",
        "Do not fit; write the lowest calibrated score of a promoter model for each false-discovery rate.",
        "",
        "--write-thresholds",
    ),
    rates: list[float] | None = option(
        None,
        "RATE",
        "False-discovery rate of --write-thresholds; repeatable.",
        "0.01, 0.05, 0.1, 0.2 and 0.5",
        "--fdr",
    ),
    prior: float | None = option(
        None,
        "FRACTION",
        "Fraction of promoters among the windows, for --write-thresholds.",
        "the fraction among validation windows",
    ),
    contigs: list[str] | None = option(
        None,
        "NAME",
        "Validation contig for calls; repeatable.",
        "those of the model's calibration",
        "--contig",
    ),
    test_contigs: list[str] | None = option(
        None,
        "NAME",
        "Contig on which calls are compared with the expected precision; repeatable. none: no such contig.",
        "the test contigs of the model's training",
        "--test-contig",
    ),
    stride: int | None = option(
        None,
        "BP",
        "Distance between windows, for calls.",
        "10, or the bins of a dense model",
    ),
    suppress: int = option(100, "BP", "Calls of a strand are farther apart than this."),
    within: int = option(100, "BP", "Largest distance of a correct call to its TSS."),
    batch_size: int = opt.batch_size(16),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Calibrate a model on validation data, and store the calibration with the model.

    Probabilities of a promoter model are calibrated on its validation windows, which finetune-promoter
    includes; with --config, those of each track of a chromatin model on validation bins. Commands that
    predict output calibrated probabilities with --calibrated.

    With --promoters, the model scans validation contigs on both strands, and the expected precision of its
    calls is fitted for call-promoters: a call is correct if a TSS of its strand that no better call took is
    near. The calls of the test contigs are then compared with it, in metrics.json of the model, key calls.

    Example: bigbird-dna model calibrate results/demo/models/promoter-genomic
    """
    from bigbird_dna.finetuning import calibrate as fits
    from bigbird_dna.model.inference import cpu_threads
    from bigbird_dna.scoring.calls import calibrate_calls

    if config is not None:
        settings, paths = opt.read_run(config, overrides)
        reference = reference or paths.reference
        with cpu_threads(threads):
            fits.calibrate_chromatin(
                settings.chromatin,
                path,
                output,
                data=data or paths.chromatin_data,
                reference=reference,
                batch_size=batch_size,
                device=device,
            )
    elif promoters is None and thresholds is None:
        fits.calibrate_promoter(path, output, predictions=predictions, method=method)
    if promoters is not None:
        if reference is None:
            raise UsageError("--promoters needs --reference")
        # A calibrated copy gets the precision of calls as well.
        calibrated = config is not None and output is not None
        fitted = calibrate_calls(
            output if calibrated and output is not None else path,
            reference,
            promoters,
            None if calibrated else output,
            contigs=contigs or (),
            test_contigs=test_contigs or (),
            stride=stride,
            suppress=suppress,
            within=within,
            method=method,
            batch_size=batch_size,
            device=device,
            threads=threads,
        )
        _log_calls(fitted)
    if thresholds is not None:
        fits.choose_threshold(
            path,
            None if thresholds == Path("-") else thresholds,
            rates=rates or fits.RATES,
            prior=prior,
            predictions=predictions,
        )


@runs("registry.combine_models")
def combine_models(
    paths: list[Path] = argument("Two or more chromatin models.", "MODEL_DIR..."),
    output: Path = opt.NEW_MODEL,
) -> None:
    """Combine independently trained chromatin models into an ensemble that predicts their mean probability.

    Example: bigbird-dna model ensemble models/chromatin-8000-0 models/chromatin-8000-1 -o models/chromatin
    """


def show_model(path: Path = opt.MODEL_DIRECTORY) -> None:
    """Print what a model is: its task, window, tracks, training data, calibrations and metrics.

    Example: bigbird-dna model show yeast-promoters
    """
    from bigbird_dna.model.card import describe_model, read_metrics
    from bigbird_dna.model.directory import load

    model = load(path)
    facts = describe_model(model)
    metrics = read_metrics(model)
    width = max(map(len, [*facts, *metrics]))
    for label, text in facts.items():
        typer.echo(f"{label:{width}}  {text}")
    if metrics:
        typer.echo("\nmetrics (intervals of 95 %)")
        for label, text in metrics.items():
            typer.echo(f"{label:{width}}  {text}")


CATALOG = option(
    None,
    "FILE",
    "List of published models; docs/files/model-catalog.md describes its format.",
    "the package's list",
)


def fetch_model(
    name: str | None = argument(
        "Name of a published model; not with --list.", "NAME", default=None
    ),
    output: Path | None = output(
        None, "MODEL_DIR", "Model directory to write.", "models/NAME"
    ),
    list_models: bool = option(False, None, "List the published models.", "", "--list"),
    catalog: Path | None = CATALOG,
) -> None:
    """Write the directory of a published model: copy a bundled model, or download and verify another one.

    An interrupted download resumes. Commands that read a MODEL_DIR also accept the name of a bundled model,
    without fetching it.

    Example: bigbird-dna fetch-model yeast-promoters -o models/yeast-promoters
    """
    from bigbird_dna.model.catalog import open_published

    if list_models:
        if name is not None:
            raise UsageError(f"--list lists all published models: remove {name!r}")
        for line in open_published(catalog).lines():
            typer.echo(line)
        return
    if name is None:
        raise UsageError(
            "fetch-model needs the name of a model; --list shows the available names"
        )
    from bigbird_dna.registry import fetch_model as fetch

    fetch(name, output, catalog)
