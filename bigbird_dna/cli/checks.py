"""Values of options that several commands refuse alike."""

from collections.abc import Iterable, Mapping, Sequence

from bigbird_dna.errors import UsageError


def check_choice(option: str, value: str, choices: Iterable[str]) -> None:
    """`UsageError` if the value of an option is none of its choices."""
    if value not in choices:
        raise UsageError(f"{option} {value!r}: choose one of {', '.join(choices)}")


def check_fraction(option: str, value: float) -> None:
    """`UsageError` if the value of an option lies outside 0 to 1."""
    if not 0 <= value <= 1:
        raise UsageError(f"{option} {value}: must be a fraction from 0 to 1")


def check_at_least_one(values: Mapping[str, int | None]) -> None:
    """`UsageError` for the first option whose value is below 1; None is left to its default."""
    for option, value in values.items():
        if value is not None and value < 1:
            raise UsageError(f"{option} {value}: must be at least 1")


def named_files(option: str, values: Sequence[str]) -> dict[str, str]:
    """The files of an option's `NAME=FILE` values by name, in their order.

    Raises
    ------
    UsageError
        A value of another form, or a name that is given twice.
    """
    named: dict[str, str] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not (name and equals and path):
            raise UsageError(f"{option} {value!r}: expected NAME=FILE")
        if name in named:
            raise UsageError(f"{option}: {name!r} is given twice")
        named[name] = path
    return named
