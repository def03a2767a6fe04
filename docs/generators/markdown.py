"""Texts of the package as Markdown."""

import re
import textwrap
from collections.abc import Iterable, Sequence

# What Markdown or HTML would take for its own, and options; code between backquotes is left alone.
_SPECIAL = re.compile(
    r"`[^`]*`|(?P<option>(?<![\w-])--?[a-z][a-z-]*)|(?P<sign>[\\*_<>\[\]|#])"
)

_ENTITIES = {"<": "&lt;", ">": "&gt;"}


def escaped(text: str) -> str:
    """A text that Markdown shows as it is, but for code between backquotes; options become code."""

    def shown(found: re.Match[str]) -> str:
        if found["option"]:
            return code(found["option"])
        sign = found["sign"]
        return _ENTITIES.get(sign, f"\\{sign}") if sign else found[0]

    return _SPECIAL.sub(shown, text)


def code(text: str) -> str:
    """A text as code; a table's cell may have it."""
    return f"`{text}`" if text else ""


def paragraphs(text: str) -> str:
    """Paragraphs of a docstring, each on one line; indented ones are code."""
    made = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        if all(line.startswith("    ") for line in part.splitlines()):
            made.append(f"```\n{textwrap.dedent(part)}\n```")
        else:
            made.append(escaped(" ".join(part.split())))
    return "\n\n".join(made)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def definitions(items: Iterable[tuple[str, str]]) -> str:
    """Terms with their explanations, which are Markdown."""
    return "\n\n".join(f"{term}\n:   {text}" for term, text in items)
