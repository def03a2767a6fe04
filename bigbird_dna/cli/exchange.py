"""Commands that import, export, calibrate and check, extend, combine, compress, package and fetch models."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError

if TYPE_CHECKING:
    from bigbird_dna.calibration.call_precision import CallPrecision
    from bigbird_dna.genome.profile import TrainingProfile
    from bigbird_dna.model.model import LoadedModel
    from bigbird_dna.registry.change import Compacted


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


@runs("huggingface.starting.prepare_start")
def prepare_start(
    config: Path = opt.CONFIG,
    output: Path | None = output(
        None, "MODEL_DIR", "Model directory to write.", opt.RESULTS.pretrained
    ),
    overrides: list[str] | None = opt.OVERRIDES,
) -> None:
    """Copy the model that fine-tuning starts from, pretraining.start_from, to the directory of the run.

    It is a model directory of any task, the name of a published model, or a HuggingFace checkpoint, which is
    converted as by import-hf. Fine-tuning then takes the place of pretraining followed by fine-tuning.

    Example: bigbird-dna prepare start mine.yaml --set pretraining.start_from=yeast
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
        "that in MODEL_CARD.md, if any",
    ),
) -> None:
    """Convert a model directory to a checkpoint that HuggingFace's from_pretrained loads.

    A promoter model becomes a BigBirdForSequenceClassification with one output, the promoter logit. Models
    with model code are loaded with trust_remote_code=True, where bigbird-dna is installed.

    Example: bigbird-dna export-hf results/demo/models/pretrained huggingface
    """


@runs(
    "registry.change.extend_model",
    choices=("method",),
    report=lambda _, given: [
        f"{given['output']}: accepts up to {given['positions']:,} tokens; not evaluated at this length"
    ],
)
def extend_positions(
    path: Path = opt.MODEL_DIRECTORY,
    output: Path = opt.NEW_MODEL,
    positions: int = option(
        ..., None, "Maximum input length of the new model, tokens.", least=1
    ),
    method: str = option(
        "tile",
        "tile|interpolate|ntk",
        "Extension method: tile or interpolate for learned positions, interpolate or ntk for rotary ones.",
    ),
) -> None:
    """Extend the maximum input length of a model, without training or evaluation.

    Fine-tune and evaluate the new model at its intended input length.

    Example: bigbird-dna model extend-context models/imported --positions 8192 -o models/long
    """


@runs("finetuning.calibrate.calibrate_promoter", choices=("method",))
def calibrate_promoter(
    path: Path = opt.MODEL_DIRECTORY,
    output: Path | None = opt.CALIBRATED_MODEL,
    predictions: Path | None = opt.MODEL_PREDICTIONS,
    method: str = option(
        "auto",
        "auto|platt|isotonic",
        "Calibration map: platt (linear in log-odds), isotonic (any increasing curve), or auto: isotonic "
        "from 1,000 promoters and 1,000 negatives on, else platt.",
    ),
) -> None:
    """Calibrate the probabilities of a promoter model on its validation windows, and store the calibration.

    finetune-promoter includes this step; use this command for models from earlier versions, or for another
    method. Commands that score output calibrated probabilities with --calibrated.

    Example: bigbird-dna model calibrate-promoter results/demo/models/promoter-genomic
    """


def _rates(fitted: "CallPrecision", _: dict[str, Any]) -> Iterator[str]:
    rates = {f"--fdr {rate}": fitted.at_rate(rate) for rate in (0.1, 0.2, 0.5)}
    for name, found in {**rates, "largest F1": fitted.best()}.items():
        if found is None:
            yield f"{name}: not reached"
            continue
        yield (
            f"{name}: {found.calls:,} calls, {found.calls / fitted.megabases:.3g} per Mb, expected "
            f"false-discovery rate {found.expected_fdr:.3f}, recall {found.recall:.3f}"
        )


@runs("scoring.calls.calibrate_calls", choices=("method",), report=_rates)
def calibrate_calls(
    path: Path = opt.MODEL_DIRECTORY,
    reference: Path = opt.REFERENCE,
    promoters: Path = option(
        ..., None, "Annotated TSSs: the TSV of prepare promoters."
    ),
    contigs: list[str] | None = option(
        None,
        "NAME",
        "Validation contig, on which the model was not trained; repeatable.",
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
    output: Path | None = output(
        None,
        "MODEL_DIR",
        "Copy of the model to write, with the expected precision.",
        "calls.json in MODEL_DIR",
    ),
    stride: int | None = option(
        None, "BP", "Distance between windows.", "10, or the bins of a dense model"
    ),
    suppress: int = option(100, "BP", "Calls of a strand are farther apart than this."),
    within: int = option(100, "BP", "Largest distance of a correct call to its TSS."),
    method: str = option(
        "auto",
        "auto|platt|isotonic",
        "Map from scores to precision: platt (linear in log-odds), isotonic (increasing curve of groups of "
        "calls), or auto: isotonic. With fewer than 50 correct calls: platt.",
    ),
    batch_size: int = opt.batch_size(32),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Fit the expected precision of a promoter model's calls on validation contigs, for call-promoters.

    Scans the contigs on both strands, calls promoters, and compares the calls with annotated TSSs. A call is
    correct if a TSS of its strand that no better call took is near. The calls that call-promoters writes by
    default are also compared on the test contigs; average precision and the other metrics are in metrics.json
    of the model, key calls. Time is that of score-promoters.

    Example: bigbird-dna model calibrate-calls models/promoter-genomic --reference genome.fa.gz --promoters
    promoters.tsv -o models/promoter-calls
    """


@runs("finetuning.calibrate.calibrate_chromatin", part="chromatin")
def calibrate_chromatin(
    config: Path = opt.CONFIG,
    path: Path = opt.MODEL_DIRECTORY,
    output: Path | None = opt.CALIBRATED_MODEL,
    overrides: list[str] | None = opt.OVERRIDES,
    data: Path | None = opt.CHROMATIN_DATA,
    reference: Path | None = opt.RUN_REFERENCE,
    batch_size: int = opt.batch_size(16),
    device: str = opt.DEVICE,
    threads: int | None = opt.THREADS,
) -> None:
    """Calibrate the probabilities of a chromatin model, per track, on validation bins.

    Commands that predict output calibrated probabilities with --calibrated. chromatin.calibration sets the
    method and the number of bins, chromatin.evaluation.center_fraction the bins predicted per window.

    Example: bigbird-dna model calibrate-chromatin workflow/config/demo.yaml
    results/demo/models/chromatin-8000-0
    """


@runs("registry.change.merge_adapter")
def merge_adapter(
    path: Path = argument(
        "Directory of a model trained with adapt frozen or lora.", "MODEL_DIR"
    ),
    base: Path = option(
        ..., "MODEL_DIR", "Model that its training started from.", "", "--base"
    ),
    output: Path = opt.NEW_MODEL,
) -> None:
    """Restore a model from its adapter and its initial model.

    Training with adapt frozen or lora stores the trained tensors alone in adapter.safetensors. To share or
    keep many such models, delete their model.safetensors, which this command writes again.

    Example: bigbird-dna model merge-adapter models/mine --base models/gena-lm -o models/mine-merged
    """


@runs("registry.change.combine_models")
def combine_models(
    paths: list[Path] = argument("Two or more chromatin models.", "MODEL_DIR..."),
    output: Path = opt.NEW_MODEL,
) -> None:
    """Combine independently trained chromatin models into an ensemble that predicts their mean probability.

    Example: bigbird-dna model ensemble models/chromatin-8000-0 models/chromatin-8000-1 -o models/chromatin
    """


def _profiled(profile: "TrainingProfile", given: dict[str, Any]) -> list[str]:
    place = given["output"] or given["path"]
    return [
        f"{place}: profile of {profile.bases:,} bp of {profile.name}, GC {profile.gc:.1%}"
    ]


@runs("registry.change.add_profile", report=_profiled)
def add_profile(
    path: Path = opt.MODEL_DIRECTORY,
    reference: Path = opt.REFERENCE,
    output: Path | None = output(
        None,
        "MODEL_DIR",
        "Copy of the model to write, with the profile.",
        "training_profile.json in MODEL_DIR",
    ),
) -> None:
    """Store the k-mer profile of the genome that a model was trained on in the model's directory.

    Commands that score warn if an input differs from this profile. Fine-tuning includes this step; use this
    command for models from earlier versions. The reference is that of the training; its training contigs are
    those in provenance.json.

    Example: bigbird-dna model add-profile models/promoters --reference genome.fa.gz
    """


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
    from bigbird_dna.registry.publishing import fetch_model as fetch

    fetch(name, output, catalog)


def _compacted(made: "Compacted", given: dict[str, Any]) -> list[str]:
    parts = f"{made.half:,} of {made.tensors:,} tensors in float16; {made.change or 'outputs not compared'}"
    return [f"{given['output']}: {parts}"]


@runs("registry.change.compact_model", report=_compacted)
def compact_model(
    path: Path = opt.MODEL_DIRECTORY, output: Path = opt.NEW_MODEL
) -> None:
    """Halve the size of a model: store matrices as float16 where this loses little precision.

    The model still computes in float32. The log and provenance.json contain the change of its outputs on
    random sequences.

    Example: bigbird-dna model to-float16 results/demo/models/promoter-genomic -o promoters-half
    """


def publish_model(
    model_dir: Path = opt.MODEL_DIRECTORY,
    output: Path = output(..., "FILE", "Archive to write, such as NAME.tar."),
    license: str = option(..., "TEXT", "License of the weights."),
    description: str = option(..., "TEXT", "Description of the model, in one line."),
    name: str | None = option(
        None, "NAME", "Name of the published model.", "name of the directory"
    ),
    command: list[str] | None = option(
        None,
        "TEXT",
        "Command that reproduces the model's metrics, for the model card; repeatable.",
    ),
) -> None:
    """Pack a model directory and its model card into an archive, and print its entry for a list of models.

    The archive unpacks into a directory NAME. An existing MODEL_CARD.md of the model is kept; otherwise the
    card is generated from config.json, provenance.json and metrics.json.

    Example: bigbird-dna model package results/demo/models/promoter-genomic --license CC-BY-4.0 --description
    'Promoters of the demo genome' -o demo-promoters.tar
    """
    from bigbird_dna.model.card import Publication
    from bigbird_dna.registry.publishing import publish_model as publish

    chosen = model_dir.resolve().name if name is None else name
    typer.echo(
        publish(
            model_dir, output, Publication(chosen, description, license, command or ())
        ),
        nl=False,
    )
    log(
        f"{output}: add the entry to a list of models; unpack the archive in models/ next to it or upload it"
    )
