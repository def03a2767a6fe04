"""The page on theory: its code runs, and prints what stands below it."""

import io
import re
from contextlib import redirect_stdout

from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs/theory.md"


def printed(code: str) -> str:
    with redirect_stdout(io.StringIO()) as output:
        exec(compile(code, PAGE.name, "exec"), {})
    return output.getvalue()


def test_each_example_prints_what_is_shown() -> None:
    text = PAGE.read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(examples) == text.count("```python") == 3
    for code, shown in examples:
        assert printed(code) == shown
