"""Commands that say how like held-out windows are to the training, and figures by that."""

from pathlib import Path
from typing import Annotated

import typer

from bigbird_dna.cli.naming import LOOK, add_command
from bigbird_dna.cli.options import (
    Config,
    NegativeSet,
    RunReference,
    Set,
    Windows,
    argument,
    option,
    output,
    promoter_reference,
    read_run,
)

Table = Annotated[Path, output("FILE", "Table to write (TSV).")]


def register(app: typer.Typer) -> None:
    """Add this group's commands to the application."""
    add_command(app, find_nearest, LOOK)
    add_command(app, find_nearest_promoters, LOOK)


def find_nearest(
    held_out: Annotated[Path, argument("FASTA of windows: plain, gzip or bgzip.", "HELD_OUT")],
    training: Annotated[Path, argument("FASTA of the windows that they are compared with.", "TRAINING")],
    output: Table,
) -> None:
    """Find the most similar training window of each held-out one, on either strand.

    Writes name, similarity, nearest and orientation. Similarity is the score of the best local alignment
    (equal bases +1, others -1, a base without a partner -2) as a share of the held-out window: 1 for a copy,
    0.5 where half of it is one, or where three quarters of its bases are the same.
    """
    from bigbird_dna.tasks.homology.fasta import find_nearest as find

    find(held_out, training, output)


def find_nearest_promoters(
    config: Config,
    negative_set: NegativeSet,
    output: Table,
    overrides: Set = None,
    windows: Windows = None,
    reference: RunReference = None,
    predictions: Annotated[
        Path | None,
        option(
            "FILE", "Also write predictions that go by the nearest window (Parquet).", "", "--predictions"
        ),
    ] = None,
) -> None:
    """Find the most similar training window of each promoter window of validation and test.

    Compared with are the training promoters and their negatives of the set; similarity is as of
    find-nearest. The predictions are a baseline: the label of the nearest window, as surely as that is
    similar.
    """
    from bigbird_dna.tasks.homology.promoters import find_nearest_promoters as find

    settings, paths = read_run(config, overrides)
    find(
        settings,
        negative_set,
        windows=windows or paths.windows,
        reference=reference or promoter_reference(settings),
        output=output,
        predictions=predictions,
    )
