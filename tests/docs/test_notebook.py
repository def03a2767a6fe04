"""The notebook runs from top to bottom, and shows what it gave."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from docs.generators.notebook import cells, output_text


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


def test_it_names_its_directory_first() -> None:
    first = next(cell for cell in cells() if cell["cell_type"] == "code")
    assert first["source"] == 'results = "../results/demo"'


def test_its_outputs_are_few_and_texts() -> None:
    for cell in cells():
        if cell["cell_type"] == "code":
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
