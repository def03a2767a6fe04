"""Safe YAML: plain data of limited size.

Values of a configuration are strings, numbers, booleans, nulls, lists and sections. Type tags, merge keys,
repeated keys and ambiguous numbers are errors. Values with aliases are counted once per occurrence (`plain`).
"""

import math
import re
import reprlib
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any, ClassVar

import yaml

from bigbird_dna.errors import ConfigError, error_text

DEEPEST = 50
MOST_VALUES = 20_000
LONGEST_TEXT = 4096
_LARGEST = 2**63 - 1
# Control characters, surrogates, line and paragraph separators, and two characters that YAML excludes.
_UNFIT = {"Cc", "Cs", "Zl", "Zp"}
_NO_YAML = "\ufffe\uffff"


class _ShownValue(reprlib.Repr):
    """Formats values for messages with limited length."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80
        self.maxtuple = self.maxlist = self.maxdict = 6
        self.maxlevel = 3

    def repr_int(self, x: int, level: int) -> str:
        # Python raises an error for integers with thousands of digits.
        return (
            repr(x) if abs(x) <= _LARGEST else f"<an integer of {x.bit_length()} bits>"
        )


def shown(value: object) -> str:
    """Return a value formatted for a message: on one line, shortened in the center."""
    return shortened(" ".join(_ShownValue().repr(value).split()))


def shortened(text: str, longest: int = 160) -> str:
    """Return a text, with its center replaced by an ellipsis if it is too long for a message."""
    return (
        text
        if len(text) <= longest
        else f"{text[: longest // 2]}…{text[-longest // 2 :]}"
    )


def key_shown(key: str) -> str:
    """Return a dotted key formatted for the start of a message."""
    return shown(key) if unfit(key) else shortened(key)


def unfit(text: str) -> str | None:
    """Return the first character that is invalid in files and messages, escaped; None if all are valid."""
    found = next(
        (one for one in text if unicodedata.category(one) in _UNFIT or one in _NO_YAML),
        None,
    )
    return found and found.encode("unicode_escape", "surrogatepass").decode()


def plain(values: Mapping[Any, Any], source: str) -> dict[str, Any]:
    """Return a copy of a mapping of plain data, with tuples for lists, as strict pydantic models require.

    `ConfigError`, with `source` and key: a value is too large, or is not a string, number, boolean, list,
    section or null; or there are too many values, counting each alias.
    """
    return _Copy(source).section(values, ())


class _Copy:
    """A traversal of a mapping that counts values."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.count = 0

    def section(
        self, values: Mapping[Any, Any], place: tuple[str, ...]
    ) -> dict[str, Any]:
        for key in values:
            if not isinstance(key, str):
                raise self.fault(
                    place, f"key {shown(key)} must be a string: put it in quotes"
                )
        return {key: self.value(value, (*place, key)) for key, value in values.items()}

    def items(self, values: Iterable[Any], place: tuple[str, ...]) -> tuple[Any, ...]:
        return tuple(
            self.value(value, (*place, str(number)))
            for number, value in enumerate(values)
        )

    def value(self, value: Any, place: tuple[str, ...]) -> Any:
        self.count += 1
        if self.count > MOST_VALUES:
            raise ConfigError(
                f"{self.source}: contains more than {MOST_VALUES:,} values"
            )
        if len(place) > DEEPEST:
            raise ConfigError(
                f"{self.source}: contains more than {DEEPEST} nested levels"
            )
        if isinstance(value, Mapping):
            return self.section(value, place)
        if isinstance(value, list | tuple):
            return self.items(value, place)
        if problem := _value_problem(value):
            raise self.fault(place, problem)
        return value

    def fault(self, place: tuple[str, ...], problem: str) -> ConfigError:
        key = ".".join(place)
        return ConfigError(
            f"{self.source}: {key_shown(key)}: {problem}"
            if key
            else f"{self.source}: {problem}"
        )


def _value_problem(value: Any) -> str | None:
    """Return the reason why a single value is not valid data; None for a valid value."""
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            return f"must have at most {LONGEST_TEXT:,} characters, has {len(value):,} (got {shown(value)})"
        if found := unfit(value):
            return f"must not contain the character {found} (got {shown(value)})"
    elif isinstance(value, int):
        if abs(value) > _LARGEST:
            return f"must be an integer of at most 64 bits, has {value.bit_length()}"
    elif isinstance(value, float):
        if not math.isfinite(value):
            return f"must be a finite number (got {value})"
    elif isinstance(value, date):
        return f"{value} is a date in YAML: put it in quotes"
    elif value is not None:
        return f"unsupported type {type(value).__name__} in a configuration"
    return None


_TAG = "tag:yaml.org,2002:"
# Excludes octal numbers (leading 0) and base-60 numbers (colon), which are almost always unintended.
_NUMBER = re.compile(
    r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+|[^:]*[.eE][^:]*)", re.IGNORECASE
)


EXPONENT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+")
"""Numbers that YAML 1.1 reads as text, such as 1e-3."""
_EXACT = 2**53  # integers below are exact as floating-point numbers


def exponent_number(text: str) -> int | float:
    """Return the number that a text of `EXPONENT` stands for: 1e5 is an integer."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < _EXACT else value


class _Refused(yaml.MarkedYAMLError):
    """Valid YAML that is not allowed in a configuration."""

    def __init__(self, problem: str, mark: yaml.Mark) -> None:
        super().__init__(problem=problem, problem_mark=mark)


class _Loader(yaml.SafeLoader):
    """Loads strings, numbers, booleans, null, lists and mappings with string keys, within limits."""

    yaml_constructors: ClassVar[dict[str | None, Callable[..., Any]]] = {}
    depth = 0
    count = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if self.depth > DEEPEST:
            raise _Refused(f"more than {DEEPEST} nested levels", event.start_mark)
        if self.count > 2 * MOST_VALUES:  # keys are also nodes
            raise _Refused(f"more than {MOST_VALUES:,} values", event.start_mark)
        self.depth, self.count = self.depth + 1, self.count + 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            seen = set()
            for key, _ in node.value:
                if key.tag == f"{_TAG}merge":
                    raise _Refused(
                        "merge keys ('<<') are not supported: write the keys",
                        key.start_mark,
                    )
                if key.tag != f"{_TAG}str":
                    name = (
                        shown(key.value)
                        if isinstance(key, yaml.ScalarNode)
                        else f"of kind {key.id}"
                    )
                    raise _Refused(
                        f"key {name} must be a string: put it in quotes", key.start_mark
                    )
                if key.value in seen:
                    raise _Refused(
                        f"key {shown(key.value)} is given twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def _number(self, node: yaml.ScalarNode) -> int | float:
        text = self.construct_scalar(node)
        try:
            if EXPONENT.fullmatch(text):
                return exponent_number(text)
            if _NUMBER.fullmatch(text):
                whole = node.tag == f"{_TAG}int"
                return (
                    self.construct_yaml_int(node)
                    if whole
                    else self.construct_yaml_float(node)
                )
        except (ValueError, IndexError):
            pass
        problem = (
            "has too many digits"
            if len(text) > 1000
            else "is not a plain decimal number"
        )
        raise _Refused(f"{shown(text)} {problem}", node.start_mark)

    def _truth(self, node: yaml.ScalarNode) -> bool:
        try:
            return self.construct_yaml_bool(node)
        except KeyError:
            raise _Refused(
                f"{shown(node.value)} must be true or false", node.start_mark
            ) from None

    def _date(self, node: yaml.Node) -> None:
        raise _Refused(
            f"{shown(node.value)} is a date in YAML: put it in quotes", node.start_mark
        )

    def _undefined(self, node: yaml.Node) -> None:
        raise _Refused(
            f"tag {shown(node.tag.replace(_TAG, '!!'))} is not supported",
            node.start_mark,
        )


_Loader.add_implicit_resolver(
    f"{_TAG}float", re.compile(f"{EXPONENT.pattern}$"), list("-+.0123456789")
)
for _kind, _constructor in {
    "null": _Loader.construct_yaml_null,
    "str": _Loader.construct_yaml_str,
    "seq": _Loader.construct_yaml_seq,
    "map": _Loader.construct_yaml_map,
    "int": _Loader._number,
    "float": _Loader._number,
    "bool": _Loader._truth,
    "timestamp": _Loader._date,
}.items():
    _Loader.add_constructor(f"{_TAG}{_kind}", _constructor)
_Loader.add_constructor(None, _Loader._undefined)


def read_yaml(text: str, source: str) -> Any:
    """Return the value of a YAML (or JSON) document.

    `ConfigError`, with `source`, and line and column if known: invalid YAML, or YAML other than plain data.
    """
    try:
        return yaml.load(text, _Loader)
    except _Refused as error:
        raise ConfigError(f"{source}: {_place(error)}{error.problem}") from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError(
            f"{source}: not YAML: {_place(error)}{_syntax_problem(error)}"
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{source}: not YAML: line {line}: character U+{ord(text[error.position]):04X} is not allowed"
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(
            f"{source}: not YAML: {shortened(error_text(error))}"
        ) from None


def compose_yaml(text: str) -> yaml.Node | None:
    """Return the nodes of a YAML document that `read_yaml` accepts, with lines and columns."""
    return yaml.compose(text, _Loader)


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _syntax_problem(error: yaml.MarkedYAMLError) -> str:
    problems = (
        [error.context, error.problem]
        if (error.problem or "").startswith("but ")
        else [error.problem]
    )
    return shortened(" ".join(" ".join(part.split()) for part in problems if part))
