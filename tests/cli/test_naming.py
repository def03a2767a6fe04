"""Commands and options: their names, the former ones, and what the help says of all of them."""

import re

import click
import pytest
import typer

from bigbird_dna.cli.app import app
from bigbird_dna.cli.naming import EXCHANGE, LOOK, PREPARE, TEXT, TRAIN, USE
from tests.cli.command import Run

COMMANDS = typer.main.get_command(app).commands
GROUPS = {name: list(one.commands.items()) for name, one in COMMANDS.items() if hasattr(one, "commands")}
ALL = [*COMMANDS.items(), *(pair for pairs in GROUPS.values() for pair in pairs)]
RENAMED = {
    "promoter-windows": "prepare promoter-windows",
    "chromatin-data": "prepare chromatin",
    "promoter-baseline": "train baseline-promoter",
    "chromatin-baseline": "train baseline-chromatin",
    "chromatin-predictions": "evaluate test-bins",
    "tokenizer-statistics": "prepare token-stats",
    "promoter-report": "evaluate promoters",
    "variant-report": "evaluate variants",
    "pretraining-report": "report pretraining",
    "loss-figure": "report plot-loss",
    "score-figure": "report plot-scores",
    "attention-figure": "report plot-attention",
    "summary": "report summary",
}


def test_the_help_has_panels_by_purpose_in_their_order(run: Run) -> None:
    text = run("--help").out
    panels = re.findall(r"^╭─ (.*?) ─+╮", text, re.MULTILINE)
    assert panels == ["Options", USE, LOOK, PREPARE, TRAIN, EXCHANGE, TEXT]
    for name, command in COMMANDS.items():
        assert (f"│ {name} " in text) != command.hidden, name


def test_former_names_are_hidden_and_lead_to_the_new_ones() -> None:
    assert {name for name, command in COMMANDS.items() if command.hidden} == set(RENAMED)
    for old, new in RENAMED.items():
        assert [p.name for p in COMMANDS[old].params] == [p.name for p in COMMANDS[new].params]


def test_a_former_name_works_and_names_the_new_one(run: Run, tmp_path) -> None:
    log = tmp_path / "training.jsonl"
    log.write_text('{"step": 1, "loss": 2.0, "learning_rate": 0.1, "tokens_per_second": 1}\n' * 2)
    results = [
        run(name, f"run={log}", "-o", tmp_path / f"{name}.svg")
        for name in ("report plot-loss", "loss-figure")
    ]
    assert [result.code for result in results] == [0, 0]
    assert results[0].err == ""
    assert (
        "loss-figure is called report plot-loss now" in results[1].err
        and len(results[1].err.splitlines()) == 1
    )
    assert (tmp_path / "draw-loss.svg").read_bytes() == (tmp_path / "loss-figure.svg").read_bytes()


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_every_option_says_what_it_does_and_nothing_is_swallowed(
    run: Run, name: str, command: click.Command
) -> None:
    """Words in brackets are markup to the help's renderer: what stands in them vanishes."""
    assert command.help or command.hidden, name
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        if parameter.name not in ("help", "context") and not getattr(parameter, "hidden", False):
            assert text, (name, parameter.name)
            assert "[default" not in text, (name, parameter.name, text)


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
