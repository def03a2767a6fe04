"""The commands of the README and the documentation: they parse, and they do what is shown."""

import ast
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

from bigbird_dna.config import load_config
from docs.generators.notebook import cells, output_text
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.docs.blocks import Step, blocks, commands, pages, parse
from tests.golden.messages import fails
from tests.toys import written
from tests.workflow.dry_runs import dry_run, jobs

HOWTO = (
    "score-fasta",
    "predict-tracks",
    "score-vcf",
    "shards",
    "models",
    "huggingface",
)
RUN = [
    "README.md",
    *(f"docs/tutorials/{name}.md" for name in ("score", "demo", "own-genome")),
]
RUN += [
    f"docs/howto/{name}.md" for name in HOWTO
]  # commands are run in their order, in one directory
DEMO = [
    f"docs/howto/{name}.md" for name in ("streams", "probabilities", "similarity")
]  # not toys
SHELL = {"grep", "head", "zgrep", "printf", "cut", "mkdir", "cat"}
ELSEWHERE = {
    "git",
    "make",
    "pip",
    "python3",
    "source",
    "snakemake",
}  # of a checkout; checked below, not run


def _shown(page: str) -> list[Step]:
    return [step for step in commands(page) if step.words]


def _runnable(page: str) -> list[Step]:
    """The commands that need no checkout and no run of a user's."""
    return [
        s
        for s in _shown(page)
        if s.words[0] not in ELSEWHERE and "results/mine" not in s.command
    ]


def _own(page: str, program: str) -> Iterator[tuple[Step, list[str]]]:
    """The commands of a program, with their words, wherever in a line they stand."""
    for step in _shown(page):
        for words in step.programs:
            if Path(words[0]).name == program:
                yield step, words[1:]


@pytest.mark.parametrize("page", pages())
def test_every_command_shown_has_these_options(page: str) -> None:
    for step, words in _own(page, "bigbird-dna"):
        try:
            parse(["x" if word.startswith("<") else word for word in words])
        except KeyError as error:
            pytest.fail(f"{step.where}: there is no command {error}")
        except SystemExit:
            assert "--help" in words
        except Exception as error:
            pytest.fail(f"{step.where}: {' '.join(words)}: {error!r}")


def test_a_wrong_option_would_be_noticed() -> None:
    with fails(Exception):
        parse(["score-promoters", "m", "f", "--no-such", "3"])
    with pytest.raises(KeyError):
        parse(["no-such-command"])


@pytest.mark.parametrize("page", pages())
def test_every_line_of_snakemake_names_what_there_is(page: str) -> None:
    """The shipped configurations are planned by the tests of the workflow."""
    lines = list(_own(page, "snakemake"))
    if not lines:
        return
    from snakemake.cli import get_argument_parser

    parser = get_argument_parser()
    for step, words in lines:
        errors = io.StringIO()
        try:
            with redirect_stderr(errors):
                given = parser.parse_args(words)
        except SystemExit:
            pytest.fail(f"{step.where}: {errors.getvalue()}")
        for path in given.configfile or ():
            assert str(path).startswith("mine") or (REPOSITORY / path).is_file(), (
                step.where,
                path,
            )
        assert (
            not given.workflow_profile
            or (REPOSITORY / given.workflow_profile / "config.yaml").is_file()
        )


@pytest.mark.parametrize("page", pages())
def test_every_configuration_shown_is_one(page: str, tmp_path: Path) -> None:
    for block in blocks(page, "yaml"):
        if not block.waits:
            load_config(written(tmp_path / "mine.yaml", block.text))


# Run on toys


def _do(step: Step, run: Run) -> str:
    """Run a command in this directory, what is piped onwards by a shell; what it prints."""
    first = step.words[0]
    if first != "bigbird-dna":
        assert first in SHELL, f"{step.where}: {first}"
        return subprocess.run(
            ["bash", "-c", step.command], check=True, capture_output=True, text=True
        ).stdout
    result = run(*step.words[1:])
    assert result.code == 0, (step.where, step.command, result.err)
    onwards = re.split(r"\s\|\s", step.command.replace("\\\n", " "), maxsplit=1)[1:]
    if not onwards:
        return result.out
    shell = ["bash", "-c", onwards[0]]
    return subprocess.run(
        shell, input=result.out, check=True, capture_output=True, text=True
    ).stdout


# Their commands are much like the README's.
LONG = ("docs/tutorials/score.md", "docs/howto/score-fasta.md")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow) if page in LONG else page
        for page in RUN
    ],
)
def test_the_commands_run(
    page: str, toy_home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(toy_home)
    assert len(_runnable(page)) >= 3
    for step in _runnable(page):
        printed = _do(step, run)
        if step.output:
            assert _header(printed) == _header(step.output), (step.where, step.command)


def _header(text: str) -> list[str]:
    """The names of a table's columns, or a row without its numbers; toys have fewer tracks than the demo."""
    return _without_numbers(
        "\n".join(line for line in text.splitlines() if not line.startswith("##"))
    )[:1]


# Run on the demo's results


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN + DEMO)
def test_the_commands_print_what_is_shown(page: str, demo_home: Path) -> None:
    """Up to numbers, whose last digits other processors change, and the order that follows from them."""
    programs = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    options: dict[str, Any] = {
        "cwd": demo_home,
        "env": environment,
        "capture_output": True,
        "text": True,
    }
    for step in _runnable(page):
        done = subprocess.run(["bash", "-c", step.command], check=False, **options)
        assert done.returncode == 0, (step.where, step.command, done.stderr)
        if step.output:
            assert _without_numbers(done.stdout) == _without_numbers(step.output), (
                step.where,
                step.command,
            )


@pytest.mark.slow
def test_the_tutorial_s_own_run_can_be_planned(toy_home: Path, run: Run) -> None:
    assert run("simulate", toy_home / "mine/data", "--megabases", "2").code == 0
    files = [
        toy_home / name for name in ("workflow/config/minimal.yaml", "mine/run.yaml")
    ]
    planned = jobs(dry_run(toy_home, "--configfile", *files))
    assert planned.keys() >= {"finetune_promoter", "finetune_chromatin", "pretrain"}


def _without_numbers(text: str) -> list[str]:
    """Lines with x for each decimal fraction and checksum."""
    return [re.sub(r"-?\d+\.\d+|[0-9a-f]{64}", "x", line) for line in text.splitlines()]


# The Python of the documentation and the notebook runs, and prints what is shown


def _run(directory: str) -> list[tuple[str, str]]:
    """Run every cell, with the results in `directory`; what each shows, and what is stored for it."""
    names: dict[str, Any] = {}
    shown = []
    for number, cell in enumerate(cells()):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse(
            cell["source"].replace(
                'results = "../results/demo"', f"results = {directory!r}"
            )
        )
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(
                compile(ast.Expression(last.value), f"cell {number}", "eval"), names
            )
            shown.append((repr(value), "\n".join(map(output_text, cell["outputs"]))))
    return shown


def test_the_notebook_names_its_directory_and_has_few_outputs() -> None:
    first, *others = [cell for cell in cells() if cell["cell_type"] == "code"]
    assert first["source"] == 'results = "../results/demo"'
    for cell in others:
        assert all(
            output["output_type"] == "execute_result" for output in cell["outputs"]
        )
        assert sum(len(output_text(output)) for output in cell["outputs"]) < 1000


def test_it_runs_on_toys(toy_home: Path) -> None:
    shown = _run(str(toy_home / "results/demo"))
    assert len(shown) >= 7
    for given, stored in shown:
        assert _form(given) == _form(stored)


def _form(text: str) -> tuple[str, int]:
    """What kind of output it is: what stands in front of a bracket, and the number of lines."""
    return text.partition("(")[0] if "(" in text else "", len(text.splitlines())


@pytest.mark.slow
def test_it_shows_what_it_gives_on_the_demo(demo_home: Path) -> None:
    """Other processors change the last digits."""
    for given, stored in _run(str(demo_home / "results/demo")):
        number = re.compile(r"-?\d+\.\d+")
        assert number.sub("x", given).split() == number.sub("x", stored).split()
        pairs = zip(number.findall(given), number.findall(stored), strict=True)
        assert all(abs(float(one) - float(other)) < 0.03 for one, other in pairs), (
            given,
            stored,
        )


def printed(code: str) -> str:
    with redirect_stdout(io.StringIO()) as output:
        exec(compile(code, "docs/theory.md", "exec"), {})
    return output.getvalue()


def test_each_example_prints_what_is_shown() -> None:
    text = (REPOSITORY / "docs/theory.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(examples) == text.count("```python") == 3
    for code, shown in examples:
        assert printed(code) == shown


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script:DeprecationWarning"
)  # by PEFT, as the next
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_the_python_of_exchange_runs(
    toy_home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block after the commands above it."""
    modules = pytest.importorskip(
        "transformers.dynamic_module_utils", reason="transformers is not installed"
    )
    pytest.importorskip("peft")
    monkeypatch.setattr(modules, "HF_MODULES_CACHE", str(toy_home / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(toy_home)
    page = "docs/howto/huggingface.md"
    steps = [step for step in _runnable(page) if "-hf" in step.command]
    for block in blocks(page, "python"):
        while steps and int(steps[0].where.rpartition(" ")[2]) < block.line:
            _do(steps.pop(0), run)
        exec(compile(block.text, f"{page}, line {block.line}", "exec"), {})


def test_the_python_shown_runs(toy_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(toy_home)
    (block,) = blocks("README.md", "python")
    assert block.text.count("\n") <= 16
    exec(compile(block.text, f"README.md, line {block.line}", "exec"), {})
