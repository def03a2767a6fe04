"""Commands that import, export, change and publish models.

Commands that turn one model into another, and exchange models with HuggingFace's BigBird.

Commands that make models small, publish them, and fetch published ones.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bigbird_dna.cli import options as opt
from bigbird_dna.cli.options import argument, option, output, runs
from bigbird_dna.console import log
from bigbird_dna.errors import UsageError

if TYPE_CHECKING:
    from bigbird_dna.model.model import LoadedModel
    from bigbird_dna.registry.change import Compacted


def _imported(model: "LoadedModel", given: dict[str, Any]) -> list[str]:
    return [f"{given['output']}: a {model.task} model of {model.parameters:,} parameters"]


@runs("huggingface.exchange.import_huggingface", choices=("compatibility",), report=_imported)
def import_hf(
    directory: Path = argument("Checkpoint directory of a HuggingFace BigBird."),
    output: Path = argument("Model directory to write.", "MODEL_DIR"),
    compatibility: str = option(
        "huggingface",
        "huggingface|none",
        "Attention as HuggingFace evaluates it, or the paper's with random blocks.",
    ),
    tokenizer: Path | None = option(
        None, "FILE", "tokenizer.json or SentencePiece model instead of DIRECTORY's."
    ),
) -> None:
    """Turn a HuggingFace BigBird checkpoint into a model directory.

    Read are BigBirdForPreTraining, BigBirdForMaskedLM, BigBirdForSequenceClassification,
    BigBirdForQuestionAnswering and BigBirdModel, from safetensors or PyTorch files. No code of the checkpoint
    is run.

    Example: bigbird-dna import-hf bigbird-roberta-base models/bigbird
    """


@runs("huggingface.exchange.export_huggingface", report=lambda said, given: [f"{given['output']}: {said}"])
def export_hf(
    path: Path = opt.MODEL_DIRECTORY, output: Path = argument("Checkpoint directory to write.")
) -> None:
    """Turn a model directory into a checkpoint that HuggingFace's from_pretrained loads.

    A promoter model becomes a BigBirdForSequenceClassification with one output, the logit of a promoter.

    Example: bigbird-dna export-hf results/demo/models/pretrained huggingface
    """


@runs(
    "registry.change.extend_model",
    choices=("method",),
    report=lambda _, given: [
        f"{given['output']}: takes {given['positions']:,} tokens; nothing has been measured at that length"
    ],
)
def extend_positions(
    path: Path = opt.MODEL_DIRECTORY,
    output: Path = opt.NEW_MODEL,
    positions: int = option(..., None, "Longest input of the new model, tokens.", least=1),
    method: str = option(
        "tile",
        "tile|interpolate|ntk",
        "tile or interpolate for learnt positions, interpolate or ntk for rotary ones.",
    ),
) -> None:
    """Write a model for longer inputs than MODEL_DIR takes; nothing is trained or measured.

    Fine-tune and evaluate the new model at the length that it is meant for.

    Example: bigbird-dna model extend-context models/imported --positions 8192 -o models/long
    """


@runs("registry.change.combine_models")
def combine_models(
    paths: list[Path] = argument("Two or more chromatin models.", "MODEL_DIR..."),
    output: Path = opt.NEW_MODEL,
) -> None:
    """Make one model of several that were trained independently: it predicts their mean probability.

    Example: bigbird-dna model ensemble models/chromatin-8000-0 models/chromatin-8000-1 -o models/chromatin
    """


CATALOGUE = option(
    None, "FILE", "List of models in the form of the package's; docs/files/model-catalog.md has it.", "the package's"
)


def fetch_model(
    name: str | None = argument("Name of a published model; not with --list.", "NAME", default=None),
    output: Path | None = output(None, "MODEL_DIR", "Model directory to write.", "models/NAME"),
    list_models: bool = option(False, None, "Say which models there are.", "", "--list"),
    catalogue: Path | None = CATALOGUE,
) -> None:
    """Write the directory of a published model: bundled ones are copied, others downloaded and checked.

    A download that was cut goes on where it was. Commands that read a MODEL_DIR also take the name of a
    bundled model, which needn't be fetched.

    Example: bigbird-dna fetch-model yeast-promoters -o models/yeast-promoters
    """
    from bigbird_dna.model.catalogue import open_published

    if list_models:
        if name is not None:
            raise UsageError(f"--list says which models there are: leave {name!r} out")
        for line in open_published(catalogue).lines():
            typer.echo(line)
        return
    if name is None:
        raise UsageError("fetch-model needs the name of a model; --list says which there are")
    from bigbird_dna.registry.publishing import fetch_model as fetch

    fetch(name, output, catalogue)


def _compacted(made: "Compacted", given: dict[str, Any]) -> list[str]:
    parts = f"{made.half:,} of {made.tensors:,} tensors in float16; {made.change or 'nothing measured'}"
    return [f"{given['output']}: {parts}"]


@runs("registry.change.compact_model", report=_compacted)
def compact_model(path: Path = opt.MODEL_DIRECTORY, output: Path = opt.NEW_MODEL) -> None:
    """Write a model in half the room: matrices in float16, where they lose little by it.

    It is computed with in float32 as before. The log and provenance.json say how much its outputs change on
    random sequences.

    Example: bigbird-dna model to-float16 results/demo/models/promoter-genomic -o promoters-half
    """


def publish_model(
    model_dir: Path = opt.MODEL_DIRECTORY,
    output: Path = output(..., "FILE", "Archive to write, as NAME.tar."),
    licence: str = option(..., "TEXT", "Licence of the weights."),
    description: str = option(..., "TEXT", "What the model is, in one line."),
    name: str | None = option(None, "NAME", "Name to publish it by.", "the directory's"),
    command: list[str] | None = option(
        None, "TEXT", "For the card: a command that gives its figures again; repeatable."
    ),
) -> None:
    """Pack a model directory with its card into an archive; its entry for a list of models is printed.

    The archive unpacks into a directory NAME. MODEL_CARD.md is the directory's own, or else made from its
    config.json, provenance.json and metrics.json.

    Example: bigbird-dna model package results/demo/models/promoter-genomic --licence CC-BY-4.0 --description
    'Promoters of the demo genome' -o demo-promoters.tar.gz
    """
    from bigbird_dna.registry.card import Publication
    from bigbird_dna.registry.publishing import publish_model as publish

    chosen = model_dir.resolve().name if name is None else name
    typer.echo(publish(model_dir, output, Publication(chosen, description, licence, command or ())), nl=False)
    log(f"{output}: the entry is for a list of models; unpack the archive in models/ beside it, or upload it")
