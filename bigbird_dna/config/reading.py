"""Configuration files: their keys and values, overrides, and one error for each fault."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from bigbird_dna.config.run import Config
from bigbird_dna.config.safe_yaml import fault_text, read_values, read_yaml, shown
from bigbird_dna.errors import ConfigError

M = TypeVar("M", bound=BaseModel)


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file, apply `section.key=value` overrides (values are YAML), and check the result.

    `ConfigError` as in `read_values` and `checked`, or for an invalid override.
    """
    values = read_values(path)
    for override in overrides:
        apply_override(values, override)
    return parse_config(values, str(path))


def parse_config(values: Mapping[str, Any], source: str = "configuration") -> Config:
    """Check a mapping of sections; errors as in `checked`.

    Only the given sections are checked against each other, because a stage's file contains a subset.
    """
    return checked(Config, values, source)


def complete(config: Config, source: str = "configuration") -> Config:
    """Check the configuration of a whole run, including the defaults of omitted sections; errors as in `checked`."""
    return parse_config(config.model_dump(), source)


def checked(model: type[M], values: Mapping[str, Any], source: str) -> M:
    """Return the validated configuration of a mapping.

    `ConfigError` has `source` and the key and value of the first fault, or for an unknown key the nearest
    valid key.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        reason = fault_text(error, values, list(valid_keys(model)))
        raise ConfigError(f"{source}: {reason}") from None


def valid_keys(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[str]:
    """Yield every dotted key of a configuration, sections before their keys."""
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        # Of a section, or a section or null; lists of sections have no dotted keys.
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from valid_keys(kind, f"{prefix}{name}.")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of configuration files, for completion and validation in editors."""
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    title = {"title": "Configuration of bigbird-dna"}
    return draft | title | Config.model_json_schema() | title


def check_config(paths: Sequence[Path], overrides: Sequence[str] = ()) -> Any:
    """Check files as in `snakemake --configfile`: later files override earlier files.

    The configuration of a run is also checked as a whole. `ConfigError` as in `load_config` for the first
    invalid file, or as in `complete`.
    """
    merged: dict[str, Any] = {}
    for path in paths:
        # A file may need keys of later files; its own keys and values must be valid.
        _overlay(merged, read_values(path))
        checked(_model(merged), merged, str(path))

    for override in overrides:
        apply_override(merged, override)

    source = ", ".join(map(str, paths))
    config: Any = checked(_model(merged), merged, source)
    if isinstance(config, Config):
        config = complete(config, source)
        config.check_targets(source)

    return config


def _model(values: Mapping[str, Any]) -> type[BaseModel]:
    """Return the schema of a file: a run, or text tasks, whose module is imported by name."""
    if "tasks" not in values:
        return Config
    found: type[BaseModel] = import_module("bigbird_dna.papers.nlp.config").NlpConfig
    return found


def _overlay(values: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Override keys of earlier files by those of a later file, section by section, in place."""
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), dict):
            _overlay(values[key], value)
        else:
            values[key] = copy.deepcopy(value)


def apply_override(values: dict[str, Any], override: str) -> None:
    """Set the key of a `section.key=value` override in place; `ConfigError` for an invalid override."""
    source = f"--set {shown(override)}"
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"{source}: expected key=value, such as encoder.layers=4")

    *sections, last = key.split(".")
    for section in sections:
        # A copy: another section may be an alias of this one.
        values[section] = copy.copy(values.get(section, {}))
        values = values[section]
        if not isinstance(values, dict):
            raise ConfigError(f"{source}: {shown(section)} must be a section")

    values[last] = read_yaml(text, source)
