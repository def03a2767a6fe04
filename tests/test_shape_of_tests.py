"""The shape of the tests: they know public names alone, and no sentence of a message."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

MOST_LINES = 60638  # of all tests; only tests of a feature raise it
MOST_SENTENCES = 0  # in assertions: they are stored messages
# Of other packages, which have no public name for it.
OTHERS = {
    "_exit",
    "_replace",
    "_asdict",
    "_fields",
    "_name",
    "_forward_hooks",
    "_to_copy",
    "_ntuple_diskusage",
    "_C",
    "_cdata",
    "_disable_current_modes",
}
CHECKS = {"refused", "fails", "message", "raises", "pytest.raises"}
SENTENCE = re.compile(r"(?:[a-z][a-z',]+ ){3,}[a-z]+")
FILES = sorted((REPOSITORY / "tests").rglob("*.py"))


def is_private(name: str) -> bool:
    """Of a module or class alone: `_x`, and neither `__x__` nor `_`."""
    return re.match(r"_[a-zA-Z]", name) is not None and name not in OTHERS


def private_names(tree: ast.AST) -> Iterator[str]:
    """Private names that code imports, reads from another object, or replaces."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (name.name for name in node.names if is_private(name.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            if ast.unparse(node.value) not in ("self", "cls"):
                yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith((".setattr", ".delattr")):
            words = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
            yield from (word for word in map(str, words) if is_private(word.rpartition(".")[2]))


def sentences(tree: ast.AST) -> Iterator[str]:
    """Words of messages that an assertion compares with, or that a check of errors is given."""
    for node in ast.walk(tree):
        found: list[ast.AST] = []
        if isinstance(node, ast.Assert):
            found = [part for part in ast.walk(node.test) if isinstance(part, ast.Compare)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in CHECKS:
            found = [*node.args, *(keyword.value for keyword in node.keywords)]
        for part in found:
            texts = (one.value for one in ast.walk(part) if isinstance(one, ast.Constant))
            yield from (text for text in texts if isinstance(text, str) and SENTENCE.search(text))


@pytest.mark.parametrize(
    ("code", "names", "said"),
    [
        ("from a import _b", ["_b"], 0),
        ("a._b, self._c, a.__d__, os._exit", ["_b"], 0),
        ("patch.setattr(a, '_b', 1); patch.setattr('a.b._c', 1)", ["_b", "a.b._c"], 0),
        ("assert 'there is no such file' in text", [], 1),
        ("assert text == 'file.txt: 3'", [], 0),
        ("refused(run(), 2, 'there is no such file')", [], 1),
    ],
)
def test_what_counts(code: str, names: list[str], said: int) -> None:
    tree = ast.parse(code)
    assert list(private_names(tree)) == names and len(list(sentences(tree))) == said


def test_tests_know_no_private_name() -> None:
    found = {
        str(path.relative_to(REPOSITORY)): [*private_names(ast.parse(path.read_text()))] for path in FILES
    }
    assert {path: names for path, names in found.items() if names} == {}


def test_sentences_of_messages_are_stored() -> None:
    """In `tests/golden/messages.txt`, which the tests compare with."""
    here = Path(__file__)
    counted = sum(len([*sentences(ast.parse(path.read_text()))]) for path in FILES if path != here)
    assert counted <= MOST_SENTENCES


def test_the_tests_become_no_longer() -> None:
    assert sum(len(path.read_text().splitlines()) for path in FILES) <= MOST_LINES
