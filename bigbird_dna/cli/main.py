"""The `bigbird-dna` command: registers every group and turns users' errors into one line."""

import sys
from importlib.metadata import version

import typer

from bigbird_dna.cli import (
    auc,
    benchmark,
    chromatin,
    exchange,
    genome,
    models,
    regions,
    reporting,
    scoring,
    simulation,
    sources,
    tokens,
    training,
    variant_report,
    variants,
)
from bigbird_dna.errors import BigBirdDnaError

app = typer.Typer(
    name="bigbird-dna",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"bigbird-dna {version('bigbird-dna')}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True),
) -> None:
    """Sparse-attention DNA language models: from a reference genome to promoter scores."""


GROUPS = (
    *(simulation, sources, genome, tokens, training, models, exchange),
    *(chromatin, scoring, regions, variants, variant_report, auc, reporting, benchmark),
)
for group in GROUPS:
    group.register(app)


def main() -> None:
    """Run the command line; the exit code is 0 done, 1 bad data, 2 bad usage, 130 interrupted."""
    try:
        app()
    except BigBirdDnaError as error:
        print(f"bigbird-dna: error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
