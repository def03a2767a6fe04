"""Errors that a user can cause and fix, and checks of arguments.

The command line prints their message as one line and exits with `exit_code`; any other exception is a defect
of this software and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from numbers import Integral
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pydantic import ValidationError

_LONGEST = 1200
"""Maximum length of a message: longer ones quote garbage from a damaged file as a name or number."""


class BigBirdDnaError(Exception):
    """Base class of all errors with a message for the user: one printable line of limited length."""

    exit_code = 1

    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST - 300]} … {text[-300:]}"
        super().__init__(printable(text))


class DataError(BigBirdDnaError):
    """A file contains invalid data; the message contains the file, the record or line, and the value."""


class ModelError(BigBirdDnaError):
    """A model directory or checkpoint is incomplete, damaged, or of another kind."""


class UsageError(BigBirdDnaError):
    """An invalid argument, option, or combination of options."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration has an unknown key, a wrong type or contradictory values."""


class Stopped(BigBirdDnaError):
    """A training saved a checkpoint and stopped early, as requested; the same command resumes it."""

    exit_code = 75  # temporary failure (sysexits.h), so that a scheduler can submit the command again

    def __init__(self, text: str, *, silent: bool = False) -> None:
        super().__init__(text)
        self.silent = silent  # another process reports it


def error_text(error: BaseException) -> str:
    """Return the message of another library's error on one line, shortened, or its type if it has none."""
    return shortened(" ".join(str(error).split()), 300) or type(error).__name__


class Fault(NamedTuple):
    """An invalid value in the data that pydantic validated."""

    key: str  # keys and positions from the outermost, with a dot between two; "" for the data as a whole
    kind: str  # pydantic's type of the fault
    reason: str  # shortened
    value: Any


def first_fault(error: ValidationError) -> Fault:
    """The first invalid value of a failed validation."""
    first = error.errors()[0]
    reason = shortened(first["msg"].removeprefix("Value error, "), 300)
    return Fault(
        ".".join(map(str, first["loc"])), first["type"], reason, first["input"]
    )


def shortened(text: str, longest: int = 80) -> str:
    """Return `text` for a message: at most `longest` characters, on one line, and printable."""
    return printable(text if len(text) <= longest else text[:longest] + "…")


def printable(text: str) -> str:
    """Return `text` on one line, with non-printable characters escaped, such as `\\n` or `\\x1b`.

    Line breaks and escape sequences in names of files or records then cannot affect a terminal or a log.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text
    )


def counted(count: int, noun: str) -> str:
    """Format a count as the start of a sentence: `3 sequences are`."""
    return f"{count:,} {noun} is" if count == 1 else f"{count:,} {noun}s are"


def listed(texts: Sequence[str]) -> str:
    """List the first three texts and the number of further ones."""
    text = ", ".join(texts[:3])
    return text if len(texts) <= 3 else f"{text} and {len(texts) - 3:,} more"


def meant(name: object, known: Iterable[object]) -> str:
    """Return the end of a message about an unknown name: the most similar known name, ignoring case, or ""."""
    folded = {text.casefold(): text for text in map(str, islice(known, 10_000))}
    best = get_close_matches(str(name)[:200].casefold(), folded, 1)
    same = not best or folded[best[0]] == str(name)
    return "" if same else f"; did you mean {folded[best[0]]!r}?"


def one_of(value: object, choices: Iterable[str]) -> str:
    """Return the end of a message about a value that is not one of its choices."""
    listed = ", ".join(choices) or "(none)"
    return f"must be one of {shortened(listed, 600)}{meant(value, choices)}"


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """`UsageError` if the value of an argument is not one of its choices."""
    if value not in choices:
        raise UsageError(f"{name} {value!r}: {one_of(value, choices)}")


def check_import(name: str, value: str) -> Any:
    """Return the object named by the value `MODULE:NAME` of an argument; `UsageError` if the import fails."""
    try:
        return resolve_name(value)
    except Exception as error:  # a user's file may raise any error
        raise UsageError(
            f"{name} {value!r}: cannot be imported: {error_text(error)}"
        ) from error


def check_fraction(name: str, value: float) -> None:
    """`UsageError` if the value of an argument is outside 0 to 1."""
    if not 0 <= value <= 1:
        raise UsageError(f"{name} {value}: must be a fraction from 0 to 1")


def check_whole(name: str, value: object) -> None:
    """`UsageError` if the value of an argument is not an integer; numpy integers are, booleans are not."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise UsageError(f"{name} {shortened(repr(value))}: must be an integer")


def check_at_least_one(values: Mapping[str, int | None]) -> None:
    """`UsageError` for the first argument whose value is not an integer, or is below 1; None is valid."""
    for name, value in values.items():
        if value is not None:
            check_whole(name, value)
            if value < 1:
                raise UsageError(f"{name} {value}: must be at least 1")
