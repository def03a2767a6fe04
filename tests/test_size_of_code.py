"""No module and no function of the package is longer than the house's style has it."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter

import grimp

from tests.conftest import REPOSITORY

LONGEST_MODULE, LONGEST_FUNCTION = 400, 60  # lines; of a function without its docstring


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Names of functions, and how many lines they have beside their docstrings."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = len(range(node.lineno, (node.end_lineno or 0) + 1))
            said = node.body[0] if ast.get_docstring(node) else None
            yield node.name, size - (len(range(said.lineno, (said.end_lineno or 0) + 1)) if said else 0)


def test_what_counts() -> None:
    inner = "    def b(\n        x,\n    ): return x\n"
    text = f'def a():\n    """One.\n\n    Two.\n    """\n{inner}    return b\n'
    assert dict(functions(text)) == {"a": 5, "b": 3}


def test_modules_and_functions_are_short() -> None:
    modules, long = {}, {}
    for path in sorted((REPOSITORY / "bigbird_dna").rglob("*.py")):
        text, name = path.read_text(encoding="utf-8"), str(path.relative_to(REPOSITORY))
        modules[name] = len(text.splitlines())
        long |= {(name, function): size for function, size in functions(text) if size > LONGEST_FUNCTION}
    assert len(modules) > 200
    assert {name: size for name, size in modules.items() if size > LONGEST_MODULE} == {}
    assert long == {}


def test_no_modules_import_one_another_in_a_circle() -> None:
    """Also inside functions, where Python would not mind."""
    graph = grimp.build_graph("bigbird_dna", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 200
    assert tuple(TopologicalSorter(imports).static_order())  # CycleError has the circle
