"""Errors that a user can cause and mend.

The command line prints their text as one line and leaves with `exit_code`; everything else is a defect of
this software and keeps its traceback.
"""


class BigBirdDnaError(Exception):
    """Base of all errors whose text is meant for the user."""

    exit_code = 1


class DataError(BigBirdDnaError):
    """A file holds something that can't be used; the text names file, record or line, and value."""


class ModelError(BigBirdDnaError):
    """A model directory or checkpoint is missing something, damaged, or of another kind."""


class UsageError(BigBirdDnaError):
    """The command was asked for something that it doesn't offer."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration has an unknown key, a wrong type or contradictory values."""


def error_text(error: BaseException) -> str:
    """What another library's error says, on one line; its type where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__
