"""Commands that turn one model into another, and exchange models with HuggingFace's BigBird."""

from pathlib import Path
from typing import Annotated, cast

from bigbird_dna.checks import check_choice
from bigbird_dna.cli.options import ModelDirectory, NewModel, NewModelArgument, argument, option
from bigbird_dna.console import log

COMPATIBILITIES = ("huggingface", "none")


def import_hf(
    directory: Annotated[Path, argument("Checkpoint directory of a HuggingFace BigBird.")],
    output: NewModelArgument,
    compatibility: Annotated[
        str,
        option(
            "|".join(COMPATIBILITIES),
            "Attention as HuggingFace evaluates it, or the paper's with random blocks.",
        ),
    ] = "huggingface",
    tokenizer: Annotated[
        Path | None, option("FILE", "tokenizer.json or SentencePiece model instead of DIRECTORY's.")
    ] = None,
) -> None:
    """Turn a HuggingFace BigBird checkpoint into a model directory.

    Read are BigBirdForPreTraining, BigBirdForMaskedLM, BigBirdForSequenceClassification,
    BigBirdForQuestionAnswering and BigBirdModel, from safetensors or PyTorch files. No code of the checkpoint
    is run.
    """
    from bigbird_dna.huggingface.configuration import Compatibility
    from bigbird_dna.huggingface.importing import import_huggingface

    check_choice("compatibility", compatibility, COMPATIBILITIES)
    chosen = cast(Compatibility, compatibility)
    model = import_huggingface(directory, output, chosen, tokenizer)
    parameters = sum(p.numel() for p in model.network.parameters())
    log(f"{output}: a {model.task} model of {parameters:,} parameters")


def export_hf(
    model_dir: ModelDirectory, output: Annotated[Path, argument("Checkpoint directory to write.")]
) -> None:
    """Turn a model directory into a checkpoint that HuggingFace's from_pretrained loads.

    A promoter model becomes a BigBirdForSequenceClassification with one output, the logit of a promoter.
    """
    from bigbird_dna.huggingface.exporting import export_huggingface

    log(f"{output}: {export_huggingface(model_dir, output)}")


def extend_positions(
    model_dir: ModelDirectory,
    output: NewModelArgument,
    positions: Annotated[int, option(None, "Longest input of the new model, tokens.", least=1)],
    method: Annotated[
        str,
        option(
            "tile|interpolate|ntk",
            "tile or interpolate for learnt positions, interpolate or ntk for rotary ones.",
        ),
    ] = "tile",
) -> None:
    """Write a model for longer inputs than MODEL_DIR takes; nothing is trained or measured.

    Fine-tune and evaluate the new model at the length that it is meant for.
    """
    from bigbird_dna.model.longer_inputs import METHODS, Extension
    from bigbird_dna.registry.change import extend_model

    check_choice("method", method, METHODS)
    extend_model(model_dir, output, positions, cast(Extension, method))
    log(f"{output}: takes {positions:,} tokens; nothing has been measured at that length")


def combine_models(
    models: Annotated[list[Path], argument("Two or more chromatin models.", "MODEL_DIR...")], output: NewModel
) -> None:
    """Make one model of several that were trained independently: it predicts their mean probability."""
    from bigbird_dna.registry.change import combine_models as combine

    combine(models, output)
