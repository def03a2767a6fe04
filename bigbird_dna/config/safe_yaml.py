"""Read YAML, and check its values with pydantic; every fault is one `ConfigError`."""

import re
import reprlib
from collections.abc import Mapping
from datetime import date
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from bigbird_dna.errors import ConfigError, error_text, first_fault, meant, shortened

T = TypeVar("T")

# YAML 1.1 takes numbers such as 5e-4 and 1e3, without a point or a sign, for text.
_EXPONENT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$")


class _Loader(yaml.SafeLoader):
    """Also numbers such as 5e-4; a key given twice is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag.endswith(":str") and key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key.value!r} is given twice",
                    problem_mark=key.start_mark,
                )
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        value = self.construct_yaml_float(node)
        # 2e5 is a whole number of steps.
        whole = "e" in node.value.lower() and value.is_integer() and abs(value) < 2**53
        return int(value) if whole else value


_FLOAT = "tag:yaml.org,2002:float"
_Loader.add_implicit_resolver(_FLOAT, _EXPONENT, list("-+.0123456789"))
_Loader.add_constructor(_FLOAT, _Loader.construct_number)


def read_yaml(text: str, source: str) -> Any:
    """Return the value of a YAML (or JSON) document; `ConfigError`, with `source` and line, if it is none."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise ConfigError(f"{source}: {line}{error.problem or error}") from None
    except (
        Exception
    ) as error:  # such as those of Python's int, or of a tag without a value
        raise ConfigError(f"{source}: not YAML: {error_text(error)}") from None


def key_lines(text: str) -> dict[str, int]:
    """Return the line, from 1, of each dotted key in a YAML text that `read_yaml` accepts."""
    lines: dict[str, int] = {}

    def walk(node: yaml.Node | None, prefix: str) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                name = f"{prefix}{key.value}"
                lines.setdefault(name, key.start_mark.line + 1)
                walk(value, f"{name}.")

    walk(yaml.compose(text, _Loader), "")
    return lines


def shown(value: object) -> str:
    """Return a value formatted for a message."""
    return shortened(repr(value) if isinstance(value, str) else reprlib.repr(value))


def plain(value: Any, source: str, key: str = "") -> Any:
    """Return a copy of plain data with tuples for lists, which strict pydantic models require.

    `ConfigError` for keys that are not text, and for values that JSON lacks.
    """
    where = f"{source}: {key}" if key else source
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise ConfigError(f"{where}: key {shown(name)} must be in quotes")
        return {
            name: plain(one, source, f"{key}.{name}" if key else name)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return tuple(plain(one, source, key) for one in value)
    if isinstance(value, date):
        raise ConfigError(f"{where}: {value} is a date in YAML: put it in quotes")
    if isinstance(value, str) and not value.isprintable():
        raise ConfigError(f"{where}: {shown(value)} has a control character")
    if value is None or isinstance(value, str | int | float):
        return value
    raise ConfigError(f"{where}: a {type(value).__name__} is not a value")


def check_entry(
    kind: type[T], entry: object, source: str, more: Mapping[str, str] = {}
) -> T:
    """Return an entry of a list, with the additional fields `more`, as a model or dataclass of pydantic.

    `ConfigError`, with `source`, names a missing, unknown or invalid field.
    """
    if not isinstance(entry, dict):
        raise ConfigError(f"{source}: must be a mapping of fields")
    try:
        return TypeAdapter(kind).validate_python({**plain(entry, source), **more})
    except ValidationError as error:
        fault = first_fault(error)
    match fault.kind:
        case "missing":
            reason = f"missing field {fault.key!r}"
        case "extra_forbidden" | "unexpected_keyword_argument":
            near = meant(fault.key, kind.__annotations__)
            reason = f"unknown field {shown(fault.key)}{near}"
        case _:
            reason = f"{fault.key}: {fault.reason} (got {shown(fault.value)})"
    raise ConfigError(f"{source}: {reason}")


def from_text(value: Any, annotation: Any) -> Any:
    """Return the number, boolean or null that a text stands for, where a key needs one.

    Snakemake passes values inside a section of `--config` as text, and reads 5e-4 in files as text.
    """
    leaves = _leaves(annotation)
    if isinstance(value, list | tuple):
        return tuple(from_text(one, annotation) for one in value)
    if isinstance(value, Mapping):
        is_section = any(
            isinstance(leaf, type) and issubclass(leaf, BaseModel) for leaf in leaves
        )
        if is_section:
            return value
        return {key: from_text(one, annotation) for key, one in value.items()}
    if not isinstance(value, str) or value in leaves:
        return value
    others = [leaf for leaf in leaves if leaf in (int, float, bool, Any)]
    if str in leaves and not others:
        return None if value == "null" and NoneType in leaves else value
    try:
        number = yaml.load(value, _Loader)
    except Exception:  # as in `read_yaml`
        return value
    return number if number is None or isinstance(number, int | float) else value


def _leaves(annotation: Any) -> list[Any]:
    """Return the types and literal values that a type consists of; of a dict, those of its values."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return [*args]
    if origin is dict:
        args = args[1:]
    elif origin is Annotated:
        args = args[:1]
    if not args:
        return [annotation]
    return [leaf for argument in args for leaf in _leaves(argument)]
