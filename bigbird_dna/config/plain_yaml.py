"""YAML that is data: no tags of types, no merged keys, no key twice, no number that reads as another one.

Aliases are values that stand in several places; `plain` counts them in each.
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar

import yaml

from bigbird_dna.config.plain import DEEPEST, MOST_VALUES, shortened, shown
from bigbird_dna.errors import ConfigError, error_text

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

    Raises
    ------
    ConfigError
        Names `source`, and line and column where there is one; see the module's first line.
    """
    try:
        return yaml.load(text, _Loader)
    except _Refused as error:
        raise ConfigError(f"{source}: {_place(error)}{error.problem}") from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"{source}: not YAML: {_place(error)}{_problem(error)}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{source}: not YAML: line {line}: character U+{ord(text[error.position]):04X} can't stand there"
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not YAML: {shortened(error_text(error))}") from None


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _problem(error: yaml.MarkedYAMLError) -> str:
    said = [error.context, error.problem] if (error.problem or "").startswith("but ") else [error.problem]
    return shortened(" ".join(" ".join(part.split()) for part in said if part))
