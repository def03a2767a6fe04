"""The shape of the package: short modules and functions, names that occur once, imports in one direction."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "bigbird_dna"
LONGEST_MODULE, SHORTEST_MODULE = 400, 40
LONGEST_FUNCTION = 50  # lines; of a function without its docstring
MOST_FILES, MOST_LINES = 322, 75943  # of the package; a fix lowers them, only a feature raises them
MOST_RULES = 1843  # lines of the workflow
# Found by their names and no import: the application, which documentation and tests open as well, and the
# models that the code of exported checkpoints imports.
REGISTERED = {"bigbird_dna.cli.app", "bigbird_dna.huggingface.hub_models"}


def modules() -> dict[str, Path]:
    """Every module of the package that has code of its own, by its dotted name."""
    paths = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
    return {".".join(path.relative_to(REPOSITORY).with_suffix("").parts): path for path in paths}


MODULES = modules()
LENGTHS = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Names of functions, and how many lines they have beside their docstrings."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = len(range(node.lineno, (node.end_lineno or 0) + 1))
            said = node.body[0] if ast.get_docstring(node) else None
            yield node.name, size - (len(range(said.lineno, (said.end_lineno or 0) + 1)) if said else 0)


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Module → what it imports of the package, also inside functions."""
    graph = grimp.build_graph("bigbird_dna", cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_what_counts() -> None:
    inner = "    def b(\n        x,\n    ): return x\n"
    text = f'def a():\n    """One.\n\n    Two.\n    """\n{inner}    return b\n'
    assert dict(functions(text)) == {"a": 5, "b": 3}


def test_modules_and_functions_are_short() -> None:
    assert len(MODULES) > 200
    wrong = {name: size for name, size in LENGTHS.items() if not SHORTEST_MODULE <= size <= LONGEST_MODULE}
    assert wrong == {}
    sizes = {(name, f): size for name, path in MODULES.items() for f, size in functions(path.read_text())}
    assert {place: size for place, size in sizes.items() if size > LONGEST_FUNCTION} == {}


def test_the_package_and_the_workflow_do_not_grow() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) <= MOST_FILES
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= MOST_LINES
    rules = [*(REPOSITORY / "workflow").rglob("*.smk"), REPOSITORY / "workflow/Snakefile"]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in rules) <= MOST_RULES


def test_names_of_classes_occur_once() -> None:
    """Two of one name are taken for each other."""
    found = Counter(
        node.name
        for path in MODULES.values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    # The public ones are those of `load`; what they are made of has other names.
    assert {name for name, count in found.items() if count > 1} == set()


def test_a_module_with_one_importer_beside_it_is_part_of_that(imports: dict[str, set[str]]) -> None:
    """Unless both together would be too long, or it is found by its name."""
    importers: dict[str, set[str]] = defaultdict(set)
    for module, imported in imports.items():
        for one in imported:
            importers[one].add(module)
    alone = {
        name: only
        for name in MODULES
        if len(importers[name]) == 1 and name not in REGISTERED
        for only in importers[name]
        if only.rpartition(".")[0] == name.rpartition(".")[0] and only in LENGTHS
    }
    assert {a: b for a, b in alone.items() if LENGTHS[a] + LENGTHS[b] <= LONGEST_MODULE} == {}


def test_no_modules_import_one_another_in_a_circle(imports: dict[str, set[str]]) -> None:
    """Also inside functions, where Python would not mind."""
    assert len(imports) > 200
    assert tuple(TopologicalSorter(imports).static_order())  # CycleError has the circle
