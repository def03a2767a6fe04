"""Commands and options: their names, and what the help says of all of them."""

import inspect
import json
import re
import subprocess
import sys
from importlib import import_module

import click
import pytest
import typer

from bigbird_dna.cli.app import BELOW, TOP, app
from bigbird_dna.cli.app import GROUPS as GROUPS_PANEL
from tests.cli.command import Run

COMMANDS = typer.main.get_command(app).commands
GROUPS = {name: list(one.commands.items()) for name, one in COMMANDS.items() if hasattr(one, "commands")}
ALL = [*COMMANDS.items(), *(pair for pairs in GROUPS.values() for pair in pairs)]


def test_the_help_has_panels_by_purpose_in_their_order(run: Run) -> None:
    text = run("--help").out
    panels = re.findall(r"^╭─ (.*?) ─+╮", text, re.MULTILINE)
    assert panels == ["Options", *TOP, GROUPS_PANEL]
    assert all(f"│ {name} " in text for name in COMMANDS)
    assert {*COMMANDS} == {name for panel in TOP.values() for name in panel} | {*BELOW}


@pytest.mark.parametrize("words", ["", *BELOW, "prepare tokens", "evaluate pretraining"])
def test_help_imports_neither_libraries_nor_the_configuration(words: str) -> None:
    """It is there at once. In groups Typer itself needs pydantic, and `experiment` reads configurations."""
    code = """if True:
        import contextlib, io, json, sys
        from bigbird_dna.cli.main import main
        sys.argv[0] = "bigbird-dna"
        with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
            main()
        print(json.dumps([shown.getvalue(), list(sys.modules)]))
    """
    done = subprocess.run([sys.executable, "-c", code, *words.split(), "--help"], stdout=-1, check=True)
    shown, modules = json.loads(done.stdout)
    heavy = {"torch", "numpy", "pandas", "scipy", "sentencepiece", "pysam", "matplotlib", "sklearn", "h5py"}
    heavy |= set() if words else {"pydantic", "importlib.metadata"}
    heavy |= set() if words == "experiment" else {"yaml", "bigbird_dna.config.run"}
    assert "Usage:" in shown and heavy & {*modules} == set()


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_every_option_says_what_it_does_and_nothing_is_swallowed(
    run: Run, name: str, command: click.Command
) -> None:
    """Words in brackets are markup to the help's renderer: what stands in them vanishes."""
    assert command.help, name
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        if parameter.name not in ("help", "context") and not getattr(parameter, "hidden", False):
            assert text, (name, parameter.name)
            assert "[default" not in text, (name, parameter.name, text)


@pytest.mark.parametrize("command", [one for _, one in ALL if hasattr(one.callback, "work")])
def test_a_command_declares_arguments_of_its_function(command: click.Command) -> None:
    """All that it needs, and no others; what both say holds without a word is the same."""
    module, name = command.callback.work
    known = inspect.signature(getattr(import_module(module), name)).parameters
    declared = {one.name: one.default for one in command.params if one.name not in ("help", "overrides")}
    assert {*declared} - {*known} <= {"threads"}
    assert {key for key, one in known.items() if one.default is one.empty} <= {*declared}
    for key, value in declared.items():
        if value not in (None, []) and known[key].default is not inspect.Parameter.empty:
            assert (name, key) == ("generate_samples", "number") or known[key].default == value, key


def test_a_genome_of_no_named_assembly_is_ones_own() -> None:
    assert {p.default for _, command in ALL for p in command.params if "--assembly" in p.opts} == {"custom"}


def test_options_of_one_name_mean_one_thing() -> None:
    """The same text wherever they are; `--tracks` chooses tracks, or is short for `--track-table`."""
    shared = {"--device": set(), "--threads": set(), "--max-n": set(), "--batch-size": set()}
    for name, command in ALL:
        for parameter in command.params:
            for option in parameter.opts:
                if option in shared:
                    shared[option].add((parameter.metavar, parameter.help))
            if "--set" in parameter.opts and not getattr(parameter, "hidden", False):
                assert parameter.metavar == "KEY=VALUE", name
            if "--tracks" in parameter.opts:
                assert "--track-table" in parameter.opts or parameter.metavar == "PATTERN", name
            assert ("-o" in parameter.opts) == ("--output" in parameter.opts), name
    assert all(len(meanings) == 1 for meanings in shared.values()), shared
