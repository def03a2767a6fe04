"""Names, numbers and lines of text files, as every reader here takes them.

What is read is written to tables again, whose lines and columns a name must not break, and whose comments
begin with `#`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.compression import control_character
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import OPPOSITE, Strand

FURTHEST = 2**31 - 1
"""The last position that formats and indices have room for, bp."""

_LONGEST_NAME = 1000
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LONGEST_DECIMAL = 400


def whole_number(text: str, most: int = FURTHEST) -> int | None:
    """A number of decimal digits and nothing else; None if it is none, or above `most`."""
    # `int` takes signs, blanks, underscores and the digits of all scripts, and raises for thousands of them.
    if not (text.isdigit() and text.isascii() and len(text) <= 20):
        return None
    number = int(text)
    return number if number <= most else None


def decimal(text: str) -> float | None:
    """A decimal number, maybe with sign and exponent; None if it is none, or isn't finite."""
    if len(text) > _LONGEST_DECIMAL or not _DECIMAL.fullmatch(text):
        return None
    number = float(text)
    return number if abs(number) != float("inf") else None


def quoted(text: str, longest: int = 60) -> str:
    """A value as a message shows it: in quotes, on one line, cut where it is longer."""
    return repr(text) if len(text) <= longest else f"{text[:longest]!r}…"


def check_name(name: str, what: str, where: str) -> str:
    """Return a name of a contig, track, locus …; `DataError` if a table can't hold it, which calls it `what`,
    at `where`.
    """
    if name.startswith("#"):
        raise DataError(f"{where}: {what} {quoted(name)} begins with '#', as comments do")
    if not name.isprintable():
        found = control_character(name)
        if found is not None:
            raise DataError(f"{where}: {what} {quoted(name)} has a control character ({found})")
    if len(name) > _LONGEST_NAME:
        raise DataError(f"{where}: {what} {quoted(name)} has more than {_LONGEST_NAME:,} characters")
    return name


def write_rows(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Write a table, its header first and columns separated by tabs, whole or not at all."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        stream.writelines("\t".join(map(str, row)) + "\n" for row in rows)


T = TypeVar("T")
Line = TypeVar("Line")  # its text, or what a reader made of it


def parse_lines(
    path: Path, parse: Callable[[Line], T | None], lines: Iterable[tuple[int, Line]]
) -> Iterator[tuple[int, T]]:
    """What `parse` makes of each line of a file, with its number; None: nothing.

    A `ValueError` of it says what is wrong with a line, and becomes a `DataError` with file and line.
    """
    for number, line in lines:
        try:
            found = parse(line)
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}") from None
        if found is not None:
            yield number, found


def split_columns(line: str, least: int, exactly: bool = False) -> list[str]:
    """The columns of a line, at least or exactly so many."""
    columns = line.split("\t")
    if len(columns) < least or (exactly and len(columns) > least):
        raise ValueError(f"expected {least} tab-separated columns, found {len(columns)}")
    return columns


def position(text: str) -> int:
    """A position, counted from 0."""
    found = whole_number(text)
    if found is None:
        raise ValueError(f"{quoted(text)} is not a position")
    return found


def site(text: str) -> int:
    """The position, counted from 0, that a file counts from 1."""
    found = position(text)
    if found == 0:
        raise ValueError("position 0 where positions are counted from 1")
    return found - 1


def strand(text: str) -> Strand:
    """A strand that is known."""
    if text not in OPPOSITE:
        raise ValueError(f"strand must be '+' or '-', not {quoted(text)}")
    return text
