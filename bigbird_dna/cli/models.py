"""Commands that turn one model directory into another."""

from pathlib import Path

import typer

from bigbird_dna.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add this group's commands to the application."""
    app.command()(extend_positions)


def extend_positions(
    model_dir: Path = typer.Argument(help="Model directory."),
    output: Path = typer.Argument(help="Model directory to write."),
    positions: int = typer.Option(..., min=1, help="Longest input of the new model, tokens."),
    method: str = typer.Option(
        "tile",
        metavar="tile|interpolate|ntk",
        help="tile or interpolate for learnt positions, interpolate or ntk for rotary ones.",
    ),
) -> None:
    """Write a model for longer inputs than MODEL_DIR takes; nothing is trained or measured.

    Fine-tune and evaluate the new model at the length that it is meant for.
    """
    from bigbird_dna.console import log
    from bigbird_dna.model.positions import METHODS
    from bigbird_dna.tasks.extend import extend_model

    chosen = next((known for known in METHODS if known == method), None)
    if chosen is None:
        raise UsageError(f"--method {method}: choose {', '.join(METHODS)}")
    extend_model(model_dir, output, positions, chosen)
    log(f"{output}: takes {positions:,} tokens; nothing has been measured at that length")
