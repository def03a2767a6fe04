"""Names, numbers and lines of text files, with the same rules in all readers.

Names are later written to tables, so they must not break lines or columns, or begin with `#` (a comment).
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
"""The largest position in bp that formats and indices support."""

_LONGEST_NAME = 1000
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LONGEST_DECIMAL = 400


def whole_number(text: str, most: int = FURTHEST) -> int | None:
    """Parse a number of decimal digits only; return None for other text or a number above `most`."""
    # `int` accepts signs, spaces, underscores and digits of all scripts, and raises for thousands of digits.
    if not (text.isdigit() and text.isascii() and len(text) <= 20):
        return None
    number = int(text)
    return number if number <= most else None


def decimal(text: str) -> float | None:
    """Parse a finite decimal number with optional sign and exponent; return None for other text."""
    if len(text) > _LONGEST_DECIMAL or not _DECIMAL.fullmatch(text):
        return None
    number = float(text)
    return number if abs(number) != float("inf") else None


def quoted(text: str, longest: int = 60) -> str:
    """Return a value for a message: in quotes, on one line, truncated to `longest` characters."""
    return repr(text) if len(text) <= longest else f"{text[:longest]!r}…"


def check_name(name: str, what: str, where: str) -> str:
    """Return a name of a contig, track, locus …; `DataError` if it cannot be stored in a table.

    The error calls the name `what` and its origin `where`."""
    if name.startswith("#"):
        raise DataError(
            f"{where}: {what} {quoted(name)} begins with the comment character '#'"
        )
    if not name.isprintable():
        found = control_character(name)
        if found is not None:
            raise DataError(
                f"{where}: {what} {quoted(name)} contains a control character ({found})"
            )
    if len(name) > _LONGEST_NAME:
        raise DataError(
            f"{where}: {what} {quoted(name)} has more than {_LONGEST_NAME:,} characters"
        )
    return name


def write_rows(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Write a table atomically: header first, tab-separated columns."""
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8") as stream,
    ):
        stream.writelines("\t".join(map(str, row)) + "\n" for row in rows)


T = TypeVar("T")
Line = TypeVar("Line")  # its text, or the result of a reader


def parse_lines(
    path: Path, parse: Callable[[Line], T | None], lines: Iterable[tuple[int, Line]]
) -> Iterator[tuple[int, T]]:
    """Yield the number of each line and the result of `parse`; lines with the result None are skipped.

    A `ValueError` of `parse` becomes a `DataError` with file and line.
    """
    for number, line in lines:
        try:
            found = parse(line)
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}") from None
        if found is not None:
            yield number, found


def split_columns(line: str, least: int, exactly: bool = False) -> list[str]:
    """Return the columns of a line; there must be at least, or exactly, `least`."""
    columns = line.split("\t")
    if len(columns) < least or (exactly and len(columns) > least):
        raise ValueError(
            f"expected {least} tab-separated columns, found {len(columns)}"
        )
    return columns


def position(text: str) -> int:
    """Parse a 0-based position."""
    found = whole_number(text)
    if found is None:
        raise ValueError(f"{quoted(text)} is not a position")
    return found


def site(text: str) -> int:
    """Convert a 1-based position to a 0-based one."""
    found = position(text)
    if found == 0:
        raise ValueError("position 0 is invalid because positions are 1-based")
    return found - 1


def strand(text: str) -> Strand:
    """Return the strand; `ValueError` unless it is "+" or "-"."""
    if text not in OPPOSITE:
        raise ValueError(f"strand must be '+' or '-', not {quoted(text)}")
    return text
