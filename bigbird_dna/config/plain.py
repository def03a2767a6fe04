"""Values of a configuration are data of a bounded size: texts, numbers, lists and sections, and no more."""

import math
import reprlib
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from bigbird_dna.errors import ConfigError

DEEPEST = 50
MOST_VALUES = 20_000
LONGEST_TEXT = 4096
_LARGEST = 2**63 - 1
# Controls, halves of characters, what ends a line for some readers, and two that YAML doesn't have.
_UNFIT = {"Cc", "Cs", "Zl", "Zp"}
_NO_YAML = "\ufffe\uffff"


class _Shown(reprlib.Repr):
    """Values as messages have them: of a bounded length, however large they are."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80
        self.maxtuple = self.maxlist = self.maxdict = 6
        self.maxlevel = 3

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write out thousands of digits.
        return repr(x) if abs(x) <= _LARGEST else f"<a whole number of {x.bit_length()} bits>"


def shown(value: object) -> str:
    """A value as a message has it: on one line, and shortened in its middle."""
    return shortened(" ".join(_Shown().repr(value).split()))


def shortened(text: str, longest: int = 160) -> str:
    """A text, its middle left out where it is too long for a message."""
    return text if len(text) <= longest else f"{text[: longest // 2]}…{text[-longest // 2 :]}"


def key_shown(key: str) -> str:
    """A dotted key as a message starts with it."""
    return shown(key) if unfit(key) else shortened(key)


def unfit(text: str) -> str | None:
    """The first character of a text that no line of a file or message can hold, escaped; none: all can."""
    found = next((one for one in text if unicodedata.category(one) in _UNFIT or one in _NO_YAML), None)
    return found and found.encode("unicode_escape", "surrogatepass").decode()


def plain(values: Mapping[Any, Any], source: str) -> dict[str, Any]:
    """A copy of a mapping that is data through and through, with tuples for lists, as strict models ask for.

    Raises
    ------
    ConfigError
        Names `source`, and the first key whose value is not text, number, truth value, list, section or null,
        or is too large; or says that there are too many values, counting repeated ones (YAML's aliases).
    """
    return _Copy(source).section(values, ())


class _Copy:
    """One walk over a mapping."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.count = 0

    def section(self, values: Mapping[Any, Any], place: tuple[str, ...]) -> dict[str, Any]:
        for key in values:
            if not isinstance(key, str):
                raise self.fault(place, f"key {shown(key)} is not text: put it in quotes")
        return {key: self.value(value, (*place, key)) for key, value in values.items()}

    def items(self, values: Iterable[Any], place: tuple[str, ...]) -> tuple[Any, ...]:
        return tuple(self.value(value, (*place, str(number))) for number, value in enumerate(values))

    def value(self, value: Any, place: tuple[str, ...]) -> Any:
        self.count += 1
        if self.count > MOST_VALUES:
            raise ConfigError(f"{self.source}: more than {MOST_VALUES:,} values")
        if len(place) > DEEPEST:
            raise ConfigError(f"{self.source}: nested more than {DEEPEST} deep")
        if isinstance(value, Mapping):
            return self.section(value, place)
        if isinstance(value, list | tuple):
            return self.items(value, place)
        if problem := _problem(value):
            raise self.fault(place, problem)
        return value

    def fault(self, place: tuple[str, ...], problem: str) -> ConfigError:
        key = ".".join(place)
        return ConfigError(
            f"{self.source}: {key_shown(key)}: {problem}" if key else f"{self.source}: {problem}"
        )


def _problem(value: Any) -> str | None:
    """What keeps a single value from being data."""
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            return f"a text of {len(value):,} characters, above {LONGEST_TEXT:,} (got {shown(value)})"
        if found := unfit(value):
            return f"a text can't hold the character {found} (got {shown(value)})"
    elif isinstance(value, int):
        if abs(value) > _LARGEST:
            return f"a whole number of {value.bit_length()} bits, above 64"
    elif isinstance(value, float):
        if not math.isfinite(value):
            return f"must be a finite number (got {value})"
    elif isinstance(value, date):
        return f"YAML takes {value} for a date: put it in quotes"
    elif value is not None:
        return f"a {type(value).__name__} is not a value of a configuration"
    return None
