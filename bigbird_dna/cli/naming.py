"""Commands under their names, in panels by purpose, and for one version under the names they had before."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from bigbird_dna.console import log

USE, LOOK, PREPARE, TRAIN, EXCHANGE, TEXT = (
    "Use a model",
    "Look at results",
    "Prepare data",
    "Train",
    "Exchange and change models",
    "Tasks on text",
)
"""The panels of `--help`, in this order."""

Command = Callable[..., None]


def add_command(app: typer.Typer, command: Command, panel: str, formerly: str = "") -> None:
    """Register a function as the command of its name; `formerly` is a name that still leads to it."""
    name = command.__name__.replace("_", "-")
    app.command(name, rich_help_panel=panel)(command)
    if formerly:
        app.command(formerly, hidden=True)(_renamed(command, formerly, name))


def _renamed(command: Command, old: str, new: str) -> Command:
    @wraps(command)
    def call(*arguments: Any, **options: Any) -> None:
        log(f"{old} is called {new} now; version 0.2 will not know the old name")
        command(*arguments, **options)

    return call
