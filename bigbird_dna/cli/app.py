"""The application: every group of commands, registered."""

from importlib.metadata import version

import typer

from bigbird_dna.cli import (
    benchmark,
    chromatin,
    comparators,
    exchange,
    homology,
    nlp,
    pages,
    predict,
    prepare,
    publishing,
    reports,
    study,
    tables,
    tokens,
    training,
)

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
def _options(version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True)) -> None:
    """Sparse-attention DNA language models: from a reference genome to promoter scores."""


# The panels of `--help` appear in this order.
for group in (
    *(predict, reports, homology, pages, study, tables, prepare, tokens),
    *(chromatin, training, comparators, exchange, nlp, publishing, benchmark),
):
    group.register(app)
