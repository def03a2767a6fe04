"""Commands that exchange models with HuggingFace's BigBird."""

from pathlib import Path
from typing import get_args

import typer

from bigbird_dna.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add this group's commands to the application."""
    app.command("import-hf")(import_hf)
    app.command("export-hf")(export_hf)


def import_hf(
    directory: Path = typer.Argument(help="Checkpoint directory of a HuggingFace BigBird."),
    output: Path = typer.Argument(help="Model directory to write."),
    compatibility: str = typer.Option(
        "huggingface",
        metavar="huggingface|none",
        help="Attention as HuggingFace evaluates it, or the paper's with random blocks.",
    ),
    tokenizer: Path | None = typer.Option(
        None, metavar="FILE", help="tokenizer.json or SentencePiece model instead of DIRECTORY's."
    ),
) -> None:
    """Turn a HuggingFace BigBird checkpoint into a model directory.

    Read are BigBirdForPreTraining, BigBirdForMaskedLM, BigBirdForSequenceClassification,
    BigBirdForQuestionAnswering and BigBirdModel, from safetensors or PyTorch files. No code of the checkpoint
    is run.
    """
    from bigbird_dna.console import log
    from bigbird_dna.huggingface.configuration import Compatibility
    from bigbird_dna.huggingface.importing import import_huggingface

    for known in get_args(Compatibility):
        if compatibility == known:
            model = import_huggingface(directory, output, known, tokenizer)
            parameters = sum(p.numel() for p in model.network.parameters())
            log(f"{output}: a {model.task} model of {parameters:,} parameters")
            return
    raise UsageError(f"--compatibility {compatibility!r}: choose huggingface or none")


def export_hf(
    model_dir: Path = typer.Argument(help="Model directory."),
    output: Path = typer.Argument(help="Checkpoint directory to write."),
) -> None:
    """Turn a model directory into a checkpoint that HuggingFace's from_pretrained loads.

    A promoter model becomes a BigBirdForSequenceClassification with one output, the logit of a promoter.
    """
    from bigbird_dna.console import log
    from bigbird_dna.huggingface.exporting import export_huggingface

    log(f"{output}: {export_huggingface(model_dir, output)}")
