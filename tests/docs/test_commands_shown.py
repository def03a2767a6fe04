"""The commands of the README and the documentation parse, and those of the README and tutorials run."""

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from bigbird_dna.config.reading import load_config
from docs.generators.notebook import cells
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.docs.blocks import Step, blocks, commands, pages, parse

EXAMPLE_PAGES = ("README.md", "docs/tutorials/score.md")
DEMO_PAGES = (
    "README.md",
    "docs/tutorials/demo.md",
    *(
        f"docs/howto/{name}.md"
        for name in ("predict-tracks", "score-vcf", "probabilities", "similarity")
    ),
)
SETUP = {"git", "make", "pip", "python3", "source", "snakemake"}


def commands_of(page: str, program: str) -> Iterator[tuple[Step, list[str]]]:
    """The words after a program's name, wherever in a line it stands."""
    for step in commands(page):
        for words in step.programs:
            if words and Path(words[0]).name == program:
                yield step, words[1:]


@pytest.mark.parametrize("page", pages())
def test_every_command_shown_has_these_options(page: str) -> None:
    for step, words in commands_of(page, "bigbird-dna"):
        try:
            parse(["x" if word.startswith("<") else word for word in words])
        except KeyError as error:
            pytest.fail(f"{step.where}: there is no command {error}")
        except SystemExit:
            assert "--help" in words
        except Exception as error:
            pytest.fail(f"{step.where}: {' '.join(words)}: {error!r}")


@pytest.mark.parametrize("page", pages())
def test_every_line_of_snakemake_names_what_there_is(page: str) -> None:
    lines = list(commands_of(page, "snakemake"))
    if not lines:
        return
    from snakemake.cli import get_argument_parser

    parser = get_argument_parser()
    for step, words in lines:
        errors = io.StringIO()
        try:
            with redirect_stderr(errors):
                options = parser.parse_args(words)
        except SystemExit:
            pytest.fail(f"{step.where}: {errors.getvalue()}")
        for path in options.configfile or ():
            own = str(path).startswith("mine")
            assert own or (REPOSITORY / path).is_file(), (step.where, path)


@pytest.mark.parametrize("page", pages())
def test_every_configuration_shown_is_one(page: str, tmp_path: Path) -> None:
    for block in blocks(page, "yaml"):
        if not block.waits:
            path = tmp_path / "mine.yaml"
            path.write_text(block.text)
            load_config(path)


# Commands are run in their order, in one directory.


def run_commands(
    page: str, home: Path, run: Run, *, without: str = "results/mine"
) -> None:
    """This program's in this process, which has imported what it needs; those of a shell by a shell."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    }
    steps = [
        step
        for step in commands(page)
        if step.words and step.words[0] not in SETUP and without not in step.command
    ]
    assert steps
    for step in steps:
        (program, *words), *others = step.programs
        if program == "bigbird-dna" and not others and ">" not in step.command:
            with contextlib.chdir(home):
                code, out, err = run(*words)
        else:
            done = subprocess.run(
                ["bash", "-c", step.command],
                cwd=home,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            code, out, err = done.returncode, done.stdout, done.stderr
        assert code == 0, (step.where, step.command, err)
        if step.output:
            assert without_numbers(out) == without_numbers(step.output), (
                step.where,
                step.command,
            )


NUMBER = r"(?<![\w.])-?\d+(\.\d+)?(e[+-]?\d+)?(?![\w.])|[0-9a-f]{64}"


def without_numbers(text: str) -> list[str]:
    """Sorted lines with x for each number and checksum: other processors change the last digits."""
    return sorted(re.sub(NUMBER, "x", line) for line in text.splitlines())


@pytest.mark.parametrize("page", EXAMPLE_PAGES)
def test_commands_on_the_example_run(page: str, example_home: Path, run: Run) -> None:
    run_commands(page, example_home, run, without="results/")


def test_the_python_of_the_readme_runs(
    example_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(example_home)
    (block,) = blocks("README.md", "python")
    exec(compile(block.text, f"README.md, line {block.line}", "exec"), {})


def test_the_examples_of_the_theory_print_what_is_shown() -> None:
    text = (REPOSITORY / "docs/theory.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert examples
    for code, shown in examples:
        with redirect_stdout(io.StringIO()) as output:
            exec(compile(code, "docs/theory.md", "exec"), {})
        assert output.getvalue() == shown


# On the results of the demo.


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", DEMO_PAGES)
def test_commands_on_the_demo_run(page: str, demo_home: Path, run: Run) -> None:
    run_commands(page, demo_home, run)


@pytest.mark.slow
def test_the_notebook_runs(demo_home: Path) -> None:
    results = str(demo_home / "results/demo")
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells()):
        if cell["cell_type"] == "code":
            source = cell["source"].replace('"../results/demo"', repr(results))
            exec(compile(ast.parse(source), f"cell {number}", "exec"), names)
