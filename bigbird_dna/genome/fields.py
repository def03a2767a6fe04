"""Names, numbers and lines of text files, with the same rules in all readers.

Names are later written to tables, so they must not break lines or columns, or begin with `#` (a comment).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from bigbird_dna.disk.atomic import atomic_path
from bigbird_dna.disk.compression import control_character
from bigbird_dna.errors import DataError

FURTHEST = 2**31 - 1
"""The largest position in bp that formats and indices support."""

_LONGEST_NAME = 1000


def whole_number(text: str) -> int | None:
    """Parse a number of decimal digits only; return None for other text or a number above `FURTHEST`."""
    # `int` accepts signs, spaces, underscores and digits of all scripts, and raises for thousands of digits.
    if not (text.isdigit() and text.isascii() and len(text) <= 20):
        return None
    number = int(text)
    return number if number <= FURTHEST else None


def quoted(text: str) -> str:
    """Return a value for a message: in quotes, on one line, truncated to 60 characters."""
    return repr(text) if len(text) <= 60 else f"{text[:60]!r}…"


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
