"""The help of every command, and how fast it is there."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from bigbird_dna.cli.main import app
from bigbird_dna.cli.options import PlainHelp
from tests.cli.command import Run

PANELS = ["Options", "Predict", "Train", "Evaluate and share", "Command groups"]


def commands(group: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its group and name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *words, name)
        else:
            yield (*words, name), command


ROOT: Any = typer.main.get_command(app)
COMMANDS = dict(commands(ROOT))


def test_panels_by_purpose(run: Run) -> None:
    text = run("--help").out
    titles = [line.strip("╭─╮ ") for line in text.splitlines() if line.startswith("╭─")]
    assert titles == PANELS
    assert all(f"│ {name} " in text for name in ROOT.commands)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fits_a_page_and_ends_with_an_example_that_the_command_reads(
    words: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    command = COMMANDS[words]
    text = run(*words, "--help").out
    if isinstance(command, PlainHelp):
        lines = text.splitlines()
        assert len(lines) <= 60
        assert max(map(len, lines)) <= 80
    undocumented = [
        parameter.name
        for parameter in command.params
        if parameter.name != "help" and not parameter.help
    ]
    assert undocumented == []
    example = " ".join(text[text.index("Example: bigbird-dna ") :].split())
    name, *given = shlex.split(example)[2 + len(words) - 1 :]
    assert name == words[-1]
    command.make_context(name, given)


def modules_after(*words: str) -> set[str]:
    """The modules that a command has imported at its end."""
    code = """if True:
        import json, os, sys
        from bigbird_dna.cli.main import main
        sys.argv[0] = "bigbird-dna"
        sys.stdout = open(os.devnull, "w")
        try:
            main()
        except SystemExit as end:
            assert not end.code, end.code
        print(json.dumps(list(sys.modules)), file=sys.__stdout__)
    """
    done = subprocess.run(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, check=True
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("words", [(), ("prepare",), ("score-promoters",)])
def test_help_imports_no_libraries(words: tuple[str, ...]) -> None:
    heavy = {"torch", "numpy", "pandas", "pysam", "matplotlib", "sklearn", "yaml"}
    heavy |= {"bigbird_dna.config.run"}
    if not words:
        heavy.add("pydantic")  # which Typer needs for a command
    assert heavy & modules_after(*words, "--help") == set()


@pytest.mark.parametrize("first", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_scoring_imports_no_compiler(
    first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of torch takes longer to import than torch; even in the first run, which builds the kernel."""
    if first:
        monkeypatch.setenv("BIGBIRD_DNA_CACHE", str(tmp_path / "cache"))
    fasta, output = tmp_path / "a.fa", tmp_path / "scores.tsv"
    fasta.write_text(">a\n" + "ACGT" * 250 + "\n")
    modules = modules_after(
        *("score-promoters", "yeast-promoters-window", str(fasta), "-o", str(output))
    )
    assert output.exists() and "torch" in modules
    compilers = {"torch._dynamo", "torch._inductor", "sympy"}
    assert (compilers | {"scipy", "sklearn", "matplotlib"}) & modules == set()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["score-promoter"], "'score-promoters'"),
        (["score-promoters", "m", "f", "--formt", "tsv"], "--format"),
        (["score-promoters", "m", "f", "--format", "x"], "'bedgraph'"),
        (["score-promoters", "m"], "FASTA"),
        (["score-promoters", "m", "f", "--stride", "x"], "--stride"),
    ],
)
def test_wrong_usage_is_named(words: list[str], named: str, run: Run) -> None:
    result = run(*words)
    assert (result.code, result.out) == (2, "")
    assert named in result.err


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["score-promoters", "no such model", "-"], 1, "no such model"),
        (["check-config", "no such file"], 2, "no such file"),
        (["fetch-model", "none", "-o", "x"], 2, "yeast-promoters"),
    ],
)
def test_an_error_is_one_line(
    words: list[str], code: int, named: str, run: Run
) -> None:
    result = run(*words)
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith("bigbird-dna: error: ")
    assert named in result.err and result.err.count("\n") == 1
