"""The command-line application: every command with its name and group.

`TOP` and `BELOW` are the only lists of commands. A command is a function: the signature defines its arguments
and options, the docstring is its help text and ends with an example. Modules of commands are imported on
demand: `--help` imports no heavy libraries, and the core imports nothing from `bigbird_dna.papers`.
"""

import inspect
from collections.abc import Mapping
from functools import cached_property, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from bigbird_dna.cli import benchmark, evaluate, papers, predict, train

PREDICT, TRAIN, SHARE, GROUPS = (
    "Predict",
    "Train",
    "Evaluate and share",
    "Command groups",
)
"""The panels of `--help`, in display order."""

TOP: Mapping[str, Mapping[str, str]] = {
    PREDICT: {},
    TRAIN: {
        "check-config": "cli.prepare.check_config",
        "simulate": "cli.prepare.simulate",
        "plan": "cli.machine.plan",
    },
    SHARE: {
        "fetch-model": "cli.exchange.fetch_model",
        "import-hf": "cli.exchange.import_hf",
        "export-hf": "cli.exchange.export_hf",
    },
}
"""Panel → command name → module and function of the command."""

BELOW: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "prepare": (
        "Prepare genomes, promoters, sequences, chromatin tracks, tokens and initial models.",
        {
            "fetch": "cli.prepare.fetch",
            "reference": "cli.prepare.prepare_reference",
            "promoters": "cli.prepare.prepare_promoters",
            "promoter-windows": "cli.prepare.prepare_windows",
            "sequences": "cli.prepare.prepare_sequences",
            "chromatin": "cli.prepare.prepare_chromatin",
            "tokenizer": "cli.prepare.train_tokenizer",
            "tokens": "cli.prepare.tokenize",
        },
    ),
    "evaluate": (
        "Evaluate models and baselines on held-out data.",
        {},
    ),
    "model": (
        "Calibrate, combine and show trained models.",
        {
            "calibrate": "cli.exchange.calibrate",
            "ensemble": "cli.exchange.combine_models",
            "show": "cli.exchange.show_model",
        },
    ),
}
"""Group → help text of the group, and command name → module and function of the command."""


class _Switches:
    """Lists switches without the type of their value, which Typer would show."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for switch in (one for one in found if getattr(one, "is_flag", False)):
            switch.metavar = ""
        return found


class _Command(_Switches, TyperCommand):
    """A command of the application."""


class _Group(_Switches, TyperGroup):
    """The application or one of its command groups; imports the commands when one is requested."""

    def __init__(self, *, commands: dict[str, Any], **settings: Any) -> None:
        super().__init__(**settings)
        self._groups = commands
        del self.commands

    @cached_property
    def commands(self) -> dict[str, Any]:  # type: ignore[override]
        panels = {None: BELOW[self.name or ""][1]} if self.name in BELOW else TOP
        made = {
            name: _made(name, place, panel)
            for panel, below in panels.items()
            for name, place in below.items()
        }
        return made | self._groups

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._groups.get(cmd_name) or super().get_command(ctx, cmd_name)


def _made(name: str, place: str, panel: str | None) -> Any:
    """Return a function as a command, built by Typer as the only command of an application."""
    module, _, function = place.rpartition(".")
    alone = typer.Typer(add_completion=False)
    command = _keeping_inputs(getattr(import_module(f"bigbird_dna.{module}"), function))
    *text, example = (
        " ".join(part.split())
        for part in inspect.cleandoc(command.__doc__).split("\n\n")
    )
    words: dict[str, Any] = {
        "help": "\n\n".join(text),
        "epilog": example,
        "rich_help_panel": panel,
    }
    alone.command(name, cls=_Command, **words)(command)
    return get_command(alone)


def _keeping_inputs(command: Any) -> Any:
    """Return a command that refuses an output `-o` that is one of its inputs, or is inside an input model."""
    parameters = inspect.signature(command).parameters.values()
    outputs = [
        one.name
        for one in parameters
        if "-o" in (getattr(one.default, "param_decls", None) or ())
    ]

    @wraps(command)
    def checked(**given: Any) -> None:
        from bigbird_dna.disk.outputs import check_not_input

        listed = [
            (name, value if isinstance(value, list) else [value])
            for name, value in given.items()
        ]
        for output in (given[name] for name in outputs):
            if isinstance(output, Path) and output != Path("-"):
                others = (
                    one
                    for name, values in listed
                    if name not in outputs
                    for one in values
                )
                check_not_input(
                    output, [one for one in others if isinstance(one, Path)]
                )
        command(**given)

    return checked


app = typer.Typer(
    name="bigbird-dna",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"bigbird-dna {version('bigbird-dna')}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False,
        "--version",
        callback=_show_version,
        is_eager=True,
        help="Show the version and exit.",
    ),
) -> None:
    """Sparse-attention DNA language models: from a reference genome to promoter scores."""


for _part in (predict.app, train.app, evaluate.app, benchmark.app):
    app.add_typer(_part)
for _name, (_help, _) in BELOW.items():
    _below = typer.Typer(cls=_Group, no_args_is_help=True, help=_help)
    if _name == "evaluate":
        _below.add_typer(evaluate.evaluate)
    app.add_typer(_below, name=_name, rich_help_panel=GROUPS)
app.add_typer(train.baselines, name="train", rich_help_panel=GROUPS)
app.add_typer(evaluate.report, name="report", rich_help_panel=GROUPS)
app.add_typer(papers.experiment, name="experiment", rich_help_panel=GROUPS)
app.add_typer(papers.nlp, name="nlp", rich_help_panel=GROUPS)
