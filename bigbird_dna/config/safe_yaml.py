"""Read YAML, and check its values with pydantic; every fault is one `ConfigError`."""

import re
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from bigbird_dna.errors import ConfigError, error_text, meant, shortened

T = TypeVar("T")


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
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


# YAML 1.1 takes numbers such as 5e-4 and 1e3, without a point or a sign, for text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)


def read_yaml(text: str, source: str) -> Any:
    """Return the value of a YAML (or JSON) document; `ConfigError`, with `source` and line, if it is none."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = ""
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
            line = f"line {error.problem_mark.line + 1}: "
        reason = getattr(error, "problem", None) or error_text(error)
        raise ConfigError(f"{source}: {line}not YAML: {reason}") from None


def read_values(path: Path) -> dict[str, Any]:
    """Return the keys and values of a YAML file without validation.

    `ConfigError`, with file and line if known, for a file that cannot be read or is not a YAML mapping.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: not readable: {error_text(error)}") from None
    values = read_yaml(text, str(path)) or {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a mapping of keys, found {shown(values)}")
    return values


def shown(value: object) -> str:
    """Return a value formatted for a message."""
    return shortened(repr(value) if isinstance(value, str) else reprlib.repr(value))


def fault_text(
    error: ValidationError, values: object, known: Iterable[str] = ()
) -> str:
    """Return the key, reason and value of the first fault of `values`, or for an unknown key the nearest of the
    `known` keys."""
    faults = error.errors()
    names = ("extra_forbidden", "unexpected_keyword_argument")
    unknown = [fault for fault in faults if fault["type"] in names]
    fault = unknown[0] if unknown else faults[0]
    # Without the names that pydantic inserts for members of unions.
    parts = []
    location = fault["loc"]
    for part in location:
        try:
            values = values[part]  # type: ignore[index]
        except (LookupError, TypeError):
            if part != location[-1]:
                continue
        parts.append(str(part))
    key = ".".join(parts)
    if unknown:
        # A key of the same name in another section comes first.
        same_name = [name for name in known if name.split(".")[-1] == parts[-1]]
        return f"unknown key {shown(key)}{meant(key, same_name or known)}"
    if fault["type"] == "missing":
        return f"missing key {key!r}"
    reason = shortened(fault["msg"].removeprefix("Value error, "), 700)
    value = fault["input"]
    choices = re.findall("'([^']+)'", fault.get("ctx", {}).get("expected", ""))
    got = "" if isinstance(value, Mapping) else f" (got {shown(value)})"
    return f"{key or '(top level)'}: {reason}{got}{meant(value, choices)}"


def check_addresses(urls: tuple[str, ...]) -> tuple[str, ...]:
    """Check a list of web addresses, in ASCII without spaces; `ValueError` for another value."""
    if not urls or not all(re.fullmatch("https?://[!-~]+", url) for url in urls):
        raise ValueError("must be a list of web addresses in ASCII without spaces")
    return urls


def check_entry(
    kind: type[T], entry: object, source: str, more: Mapping[str, str] = {}
) -> T:
    """Return an entry of a list, with the additional fields `more`, as a model or dataclass of pydantic.

    `ConfigError`, with `source`, names a missing, unknown or invalid field.
    """
    if not isinstance(entry, dict):
        raise ConfigError(f"{source}: must be a mapping of fields")
    try:
        return TypeAdapter(kind).validate_python({**entry, **more})
    except ValidationError as error:
        reason = fault_text(error, entry, kind.__annotations__)
        raise ConfigError(f"{source}: {reason}") from None
