"""YAML as data, within limits.

Values of a configuration are data of a bounded size: texts, numbers, lists and sections, and no more.

YAML that is data: no tags of types, no merged keys, no key twice, no number that reads as another one.

Aliases are values that stand in several places; `plain` counts them in each.
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
# Controls, halves of characters, what ends a line for some readers, and two that YAML doesn't have.
_UNFIT = {"Cc", "Cs", "Zl", "Zp"}
_NO_YAML = "\ufffe\uffff"


class _ShownValue(reprlib.Repr):
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
    return shortened(" ".join(_ShownValue().repr(value).split()))


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

    `ConfigError` names `source`, and the first key whose value is not text, number, truth value, list,
    section or null, or is too large; or says that there are too many values, counting each alias.
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
        if problem := _value_problem(value):
            raise self.fault(place, problem)
        return value

    def fault(self, place: tuple[str, ...], problem: str) -> ConfigError:
        key = ".".join(place)
        return ConfigError(
            f"{self.source}: {key_shown(key)}: {problem}" if key else f"{self.source}: {problem}"
        )


def _value_problem(value: Any) -> str | None:
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


_TAG = "tag:yaml.org,2002:"
# 0 in front makes a number octal, a colon counts in sixties: nobody means either.
_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+|[^:]*[.eE][^:]*)", re.IGNORECASE)


class _Refused(yaml.MarkedYAMLError):
    """YAML, but none that a configuration may have."""

    def __init__(self, problem: str, mark: yaml.Mark) -> None:
        super().__init__(problem=problem, problem_mark=mark)


class _Loader(yaml.SafeLoader):
    """Texts, numbers, truth values, null, lists and mappings of texts, within bounds."""

    yaml_constructors: ClassVar[dict[str | None, Callable[..., Any]]] = {}
    depth = 0
    count = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if self.depth > DEEPEST:
            raise _Refused(f"nested more than {DEEPEST} deep", event.start_mark)
        if self.count > 2 * MOST_VALUES:  # keys are nodes as well
            raise _Refused(f"more than {MOST_VALUES:,} values", event.start_mark)
        self.depth, self.count = self.depth + 1, self.count + 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            seen = set()
            for key, _ in node.value:
                if key.tag == f"{_TAG}merge":
                    raise _Refused("keys can't be merged ('<<'): write them out", key.start_mark)
                if key.tag != f"{_TAG}str":
                    name = shown(key.value) if isinstance(key, yaml.ScalarNode) else f"of kind {key.id}"
                    raise _Refused(f"the key {name} is not text: put it in quotes", key.start_mark)
                if key.value in seen:
                    raise _Refused(f"the key {shown(key.value)} is given twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def _number(self, node: yaml.ScalarNode) -> int | float:
        text = self.construct_scalar(node)
        try:
            if _NUMBER.fullmatch(text):
                whole = node.tag == f"{_TAG}int"
                return self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)
        except (ValueError, IndexError):
            pass
        problem = "has too many digits" if len(text) > 1000 else "is not a plain decimal number"
        raise _Refused(f"{shown(text)} {problem}", node.start_mark)

    def _truth(self, node: yaml.ScalarNode) -> bool:
        try:
            return self.construct_yaml_bool(node)
        except KeyError:
            raise _Refused(f"{shown(node.value)} is neither true nor false", node.start_mark) from None

    def _date(self, node: yaml.Node) -> None:
        raise _Refused(f"YAML takes {shown(node.value)} for a date: put it in quotes", node.start_mark)

    def _undefined(self, node: yaml.Node) -> None:
        raise _Refused(f"the tag {shown(node.tag.replace(_TAG, '!!'))} is not data", node.start_mark)


# YAML 1.1 takes 5e-4 for a text; here it is the number that its writer meant.
_Loader.add_implicit_resolver(
    f"{_TAG}float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
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
    """The value of a YAML document, which JSON's are as well.

    `ConfigError` names `source`, and line and column where there is one; see the module's first line.
    """
    try:
        return yaml.load(text, _Loader)
    except _Refused as error:
        raise ConfigError(f"{source}: {_place(error)}{error.problem}") from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"{source}: not YAML: {_place(error)}{_syntax_problem(error)}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{source}: not YAML: line {line}: character U+{ord(text[error.position]):04X} can't stand there"
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not YAML: {shortened(error_text(error))}") from None


def compose_yaml(text: str) -> yaml.Node | None:
    """The nodes of a YAML document that `read_yaml` reads, each with its line and column."""
    return yaml.compose(text, _Loader)


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _syntax_problem(error: yaml.MarkedYAMLError) -> str:
    problems = [error.context, error.problem] if (error.problem or "").startswith("but ") else [error.problem]
    return shortened(" ".join(" ".join(part.split()) for part in problems if part))
