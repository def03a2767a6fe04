"""Code in the documentation: what a page shows, and the commands in it with what they print."""

import re
import shlex
from itertools import groupby, takewhile
from typing import Any, NamedTuple

from typer.main import get_command

from bigbird_dna.cli.main import app
from tests.conftest import REPOSITORY

CHECK = "<!-- check"
"""Stands before a block of which some part isn't there yet; such a block isn't run."""

JOINED = {"|", "&&", "||", ";"}
RESULTS = r"<!-- results: [\w-]+ -->.*?<!-- end -->"
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    waits: bool


class Step(NamedTuple):
    """A command of a console block, without its prompt, and the lines shown below it."""

    command: str
    output: str
    where: str

    @property
    def words(self) -> list[str]:
        """The words of the first program."""
        return next(iter(self.programs), [])

    @property
    def programs(self) -> list[list[str]]:
        """The words of each program, where several are joined by pipes or run after one another."""
        shell = shlex.shlex(
            self.command.replace("\\\n", " "), posix=True, punctuation_chars="|&;"
        )
        shell.whitespace_split = True
        parts = groupby(shell, key=lambda word: word in JOINED)
        return [
            list(takewhile(lambda word: word != ">", words))
            for joined, words in parts
            if not joined
        ]


def pages() -> list[str]:
    """The pages of the documentation, by their names in the repository."""
    written = sorted((REPOSITORY / "docs").rglob("*.md"))
    return [
        "README.md",
        "CONTRIBUTING.md",
        "config/README.md",
        *(str(p.relative_to(REPOSITORY)) for p in written),
    ]


def blocks(page: str, language: str) -> list[Block]:
    """The blocks of a page in a language."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    # Commands of stored results ran with the version of their commit.
    text = re.sub(RESULTS, lambda match: "\n" * match[0].count("\n"), text, flags=re.S)
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()].rstrip()
        waits = (
            before[before.rfind("\n\n") :].strip().rpartition("\n")[2].startswith(CHECK)
        )
        found.append(Block(page, before.count("\n") + 2, match[1], match[2], waits))
    return [block for block in found if block.language == language]


def steps(block: Block) -> list[Step]:
    """The commands of a console block; a line that ends in a backslash goes on."""
    made: list[Step] = []
    where = f"{block.page}, line {block.line}"
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        end = (
            next(number for number, line in enumerate(lines) if not line.endswith("\\"))
            + 1
        )
        made.append(Step("\n".join(lines[:end]), "\n".join(lines[end:]), where))
    return made


def commands(page: str) -> list[Step]:
    """Every command of a page that can be run now."""
    return [
        step
        for block in blocks(page, "console")
        if not block.waits
        for step in steps(block)
    ]


def parse(words: list[str]) -> None:
    """Read a command's words as `bigbird-dna` does, without running it."""
    command: Any = get_command(app)
    name = ""
    while hasattr(command, "commands"):
        name, *words = words
        if any(name in parameter.opts for parameter in command.params):
            return
        command = command.commands[name]
    command.make_context(name, words)
