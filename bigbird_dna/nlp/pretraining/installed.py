"""English text that is on the machine already: Python's documentation, and Debian's King James Bible."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.nlp.sections import InstalledConfig

_VERSE = re.compile(r"(\w+?)(\d+):\d+ (.*)")
_SECONDS = 60


def installed_documents(config: InstalledConfig, split: str) -> Iterator[dict[str, Any]]:
    """The documents of a split: chapters of books, or topics of Python's documentation.

    Raises
    ------
    DataError
        The text is not installed.
    ConfigError
        A book or topic of the configuration isn't in it.
    """
    groups = _bible() if config.text == "bible" else _python()
    for held_out in (*config.valid, *config.test):
        if held_out not in groups:
            raise ConfigError(f"data.installed: {held_out!r} is not one of {', '.join(groups)}")
    chosen = {"valid": config.valid, "test": config.test}.get(split)
    if chosen is None:
        chosen = tuple(name for name in groups if name not in {*config.valid, *config.test})
    for name in chosen:
        for number, text in groups[name].items():
            yield {"id": f"{name}{number}", "text": text}


def _bible() -> dict[str, dict[str, str]]:
    """Books by the names that the program `bible` prints, each its chapters' texts by number."""
    program = shutil.which("bible")
    if program is None:
        raise DataError(
            "the text bible is not installed: the program `bible` (Debian's bible-kjv) is missing"
        )
    command = [program, "-f", "gen1:1-rev22:21"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        raise DataError(f"{program}: doesn't print its text") from None
    books: dict[str, dict[str, list[str]]] = {}
    for line in found.splitlines():
        if match := _VERSE.fullmatch(line):
            books.setdefault(match[1], {}).setdefault(match[2], []).append(match[3])
    return {book: {number: " ".join(verses) for number, verses in own.items()} for book, own in books.items()}


def _python() -> dict[str, dict[str, str]]:
    """Topics of the documentation that Python shows for `help()`."""
    from pydoc_data.topics import topics

    return {name: {"": text} for name, text in topics.items()}
