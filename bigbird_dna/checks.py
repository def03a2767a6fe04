"""Values of arguments that several functions refuse alike, in the words of the functions' callers."""

from collections.abc import Iterable, Mapping
from operator import index

from bigbird_dna.errors import UsageError, shortened


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """`UsageError` if the value of an argument is not one of its choices."""
    if value not in choices:
        raise UsageError(f"{name} {value!r}: choose one of {', '.join(choices)}")


def check_share(name: str, value: float) -> None:
    """`UsageError` if the value of an argument isn't above 0 and below 1."""
    if not 0 < value < 1:
        raise UsageError(f"{name} {value}: must be a share above 0 and below 1")


def check_fraction(name: str, value: float) -> None:
    """`UsageError` if the value of an argument lies outside 0 to 1."""
    if not 0 <= value <= 1:
        raise UsageError(f"{name} {value}: must be a fraction from 0 to 1")


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

    None is left to its default.
    """
    for name, value in values.items():
        if value is None:
            continue
        check_whole(name, value)
        if value < 1:
            raise UsageError(f"{name} {value}: must be at least 1")
