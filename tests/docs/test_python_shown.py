"""The Python of the documentation and the notebook runs, and prints what is shown."""

import ast
import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from docs.generators.notebook import cells, output_text
from tests.conftest import REPOSITORY
from tests.docs.blocks import blocks


def _run(directory: str) -> list[tuple[str, str]]:
    """Run every cell, with the results in `directory`; what each shows, and what is stored for it."""
    names: dict[str, Any] = {}
    shown = []
    for number, cell in enumerate(cells()):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse(cell["source"].replace('results = "../results/demo"', f"results = {directory!r}"))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
            shown.append((repr(value), "\n".join(map(output_text, cell["outputs"]))))
    return shown


def test_the_notebook_names_its_directory_and_has_few_outputs() -> None:
    first, *others = [cell for cell in cells() if cell["cell_type"] == "code"]
    assert first["source"] == 'results = "../results/demo"'
    for cell in others:
        assert all(output["output_type"] == "execute_result" for output in cell["outputs"])
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
        assert all(abs(float(one) - float(other)) < 0.03 for one, other in pairs), (given, stored)


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


@pytest.mark.parametrize("page", ["README.md", "docs/howto/notebook.md"])
def test_the_python_shown_runs(page: str, toy_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(toy_home)
    (block,) = blocks(page, "python")
    assert block.text.count("\n") <= 16
    exec(compile(block.text, f"{page}, line {block.line}", "exec"), {})
