"""Read YAML, and word the faults that pydantic finds in its values."""

import re
import reprlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from bigbird_dna.errors import ConfigError, error_text, meant, shortened


class _Loader(yaml.SafeLoader):
    """Also numbers such as 5e-4 and 1e3, which YAML 1.1 takes for text. A key that is given twice, of which YAML
    takes the last value, is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key.value!r} is given twice",
                    problem_mark=key.start_mark,
                )
            seen.add(str(key.value))

        return super().construct_mapping(node, deep)


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
        raise ConfigError(f"{source}: not YAML: {error_text(error)}") from None


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


def fault_text(error: ValidationError, values: Any, known: Iterable[str] = ()) -> str:
    """Return the key, reason and value of the first fault of `values`.

    For an unknown key, the nearest of the `known` keys is suggested.
    """
    faults = error.errors()
    unknown = [fault for fault in faults if fault["type"] == "extra_forbidden"]
    fault = unknown[0] if unknown else faults[0]

    # Pydantic inserts the names of members of unions, which are no keys of the values.
    location = fault["loc"]
    parts = []
    for part in location:
        try:
            values = values[part]
        except (LookupError, TypeError):
            if part != location[-1]:
                continue

        parts.append(str(part))

    key = ".".join(parts)

    if unknown:
        # A key of the same name in another section comes first.
        name = str(fault["loc"][-1])
        same_name = [other for other in known if other.split(".")[-1] == name]
        return f"unknown key {shown(key)}{meant(key, same_name or known)}"

    if fault["type"] == "missing":
        return f"missing key {key!r}"

    reason = shortened(fault["msg"].removeprefix("Value error, "), 700)
    choices = re.findall("'([^']+)'", fault.get("ctx", {}).get("expected", ""))
    hint = meant(fault["input"], choices)
    return f"{key or '(top level)'}: {reason} (got {shown(fault['input'])}){hint}"
