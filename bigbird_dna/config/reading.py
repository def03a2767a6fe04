"""Reading a configuration: YAML, overrides, and one line for the first fault."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from bigbird_dna.config.moved import moved_to
from bigbird_dna.config.run import Config
from bigbird_dna.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """YAML 1.1 takes 5e-4 for a text; here it is the number that its writer meant."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def parse_config(values: Mapping[str, Any], source: str = "configuration") -> Config:
    """Check a mapping of sections.

    Sections are checked against each other as far as they are given: a stage's file has some of them.

    Raises
    ------
    ConfigError
        Names the first fault's key and value, and `source`; of a key that has moved, its new place.
    """
    try:
        return Config.model_validate(_tuples(dict(values)))
    except ValidationError as error:
        faults = error.errors()
    places = [".".join(str(part) for part in fault["loc"]) for fault in faults]
    for fault, key in zip(faults, places, strict=True):
        if fault["type"] == "extra_forbidden" and (place := moved_to(key)):
            raise ConfigError(f"{source}: key {key!r} has moved to {place!r}")
    first, key = faults[0], places[0] or "(top level)"
    if first["type"] == "extra_forbidden":
        raise ConfigError(f"{source}: unknown key {key!r}")
    message = first["msg"].removeprefix("Value error, ")
    value = "" if isinstance(first["input"], dict) else f" (got {first['input']!r})"
    raise ConfigError(f"{source}: {key}: {message}{value}")


def complete(config: Config) -> Config:
    """The configuration of a whole run: sections that were left out, and so have defaults, must fit as well.

    Raises
    ------
    ConfigError
        As `parse_config`.
    """
    return parse_config(config.model_dump())


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file, apply `section.key=value` overrides (values are YAML), and check the result."""
    try:
        values = yaml.load(Path(path).read_text(), _Loader)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not readable: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a configuration is a mapping of sections, not {values!r:.60}")
    for override in overrides:
        _apply(values, override)
    return parse_config(values, str(path))


def _apply(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {override!r}: expected key=value, such as encoder.layers=4")
    if place := moved_to(key):
        raise ConfigError(f"--set {override!r}: key {key!r} has moved to {place!r}")
    *sections, last = key.split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {override!r}: {section!r} is no section")
    try:
        values[last] = yaml.load(text, _Loader)
    except yaml.YAMLError:
        raise ConfigError(f"--set {override!r}: {text!r} is not YAML") from None


def _tuples(value: Any) -> Any:
    """YAML's lists as tuples, which strict models ask for."""
    if isinstance(value, Mapping):
        return {key: _tuples(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    return value
