"""Errors that a user can cause and mend, and checks of arguments.

The command line prints their text as one line and leaves with `exit_code`; everything else is a defect of
this software and keeps its traceback.
"""

from collections.abc import Iterable, Mapping
from operator import index
from pkgutil import resolve_name
from typing import Any

_LONGEST = 1200
"""Characters of a message: more comes of a file that holds rubbish where a name or a number should be."""


class BigBirdDnaError(Exception):
    """Base of all errors whose text is meant for the user: one line, not too long, and printable."""

    exit_code = 1

    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST - 300]} … {text[-300:]}"
        super().__init__(printable(text))


class DataError(BigBirdDnaError):
    """A file holds something that can't be used; the text names file, record or line, and value."""


class ModelError(BigBirdDnaError):
    """A model directory or checkpoint is missing something, damaged, or of another kind."""


class UsageError(BigBirdDnaError):
    """The command was asked for something that it doesn't offer."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration has an unknown key, a wrong type or contradictory values."""


class Stopped(BigBirdDnaError):
    """A training has saved a checkpoint and stopped before its end, as asked: the same command goes on."""

    exit_code = 75  # of a temporary failure (sysexits.h), for who submits the command again

    def __init__(self, text: str, *, silent: bool = False) -> None:
        super().__init__(text)
        self.silent = silent  # another process reports it


def error_text(error: BaseException) -> str:
    """The message of another library's error, on one line and not too long; its type where it has none."""
    return shortened(" ".join(str(error).split()), 300) or type(error).__name__


def shortened(text: str, longest: int = 80) -> str:
    """`text` fit for a message: cut where it is longer, on one line, and printable."""
    return printable(text if len(text) <= longest else text[:longest] + "…")


def printable(text: str) -> str:
    """`text` on one line, with everything that can't be printed spelt out, as `\\n` or `\\x1b`.

    A line break or an escape sequence in the name of a file or a record does nothing to a terminal or a log.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """`UsageError` if the value of an argument is not one of its choices."""
    if value not in choices:
        raise UsageError(f"{name} {value!r}: choose one of {', '.join(choices)}")


def check_import(name: str, value: str) -> Any:
    """What the value `MODULE:NAME` of an argument names; `UsageError` where it can't be imported."""
    try:
        return resolve_name(value)
    except Exception as error:  # whatever is wrong with a user's own file
        raise UsageError(f"{name} {value!r}: can't be imported: {error_text(error)}") from error


def check_fraction(name: str, value: float, *, ends: bool = True) -> None:
    """`UsageError` if the value of an argument lies outside 0 to 1, or is one of these `ends`."""
    if not (0 <= value <= 1 if ends else 0 < value < 1):
        raise UsageError(
            f"{name} {value}: must be a fraction {'from 0 to' if ends else 'above 0 and below'} 1"
        )


def check_whole(name: str, value: object) -> None:
    """`UsageError` if the value of an argument isn't a whole number; numpy's are, truth values are not."""
    try:
        if not isinstance(value, bool):
            index(value)  # type: ignore[arg-type]  # what callers promise, Python doesn't check
            return
    except TypeError:
        pass
    raise UsageError(f"{name} {shortened(repr(value))}: must be a whole number")


def check_at_least_one(values: Mapping[str, int | None]) -> None:
    """`UsageError` for the first argument whose value isn't a whole number, or is below 1.

    None is passed over.
    """
    for name, value in values.items():
        if value is not None:
            check_whole(name, value)
            if value < 1:
                raise UsageError(f"{name} {value}: must be at least 1")
