"""Configuration files: their keys and values, overrides, and one error for each fault."""

import copy
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from bigbird_dna.config.run import Config
from bigbird_dna.config.safe_yaml import key_lines, plain, read_yaml, shown
from bigbird_dna.errors import ConfigError, meant, nearest, shortened

_SCHEMA = "https://json-schema.org/draft/2020-12/schema"

M = TypeVar("M", bound=BaseModel)


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file, apply `section.key=value` overrides (values are YAML), and check the result.

    `ConfigError` as in `read_values` and `checked`, or for an invalid override.
    """
    values, text = values_and_text(Path(path))
    for override in overrides:
        apply_override(values, override)
    return parse_config(values, str(path), text)


def parse_config(
    values: Mapping[str, Any], source: str = "configuration", text: str = ""
) -> Config:
    """Check a mapping of sections; errors as in `checked`.

    Only the given sections are checked against each other, because a stage's file contains a subset.
    """
    return checked(Config, values, source, text)


def complete(config: Config) -> Config:
    """Check the configuration of a whole run, including the defaults of omitted sections."""
    return parse_config(config.model_dump())


def checked(
    model: type[M], values: Mapping[str, Any], source: str, text: str = ""
) -> M:
    """Return the validated configuration of a mapping; `text` is the content of the file `source`.

    `ConfigError` has `source` and the line, key and value of the first fault, or for an unknown key the
    nearest valid key.
    """
    try:
        return model.model_validate(plain(values, source))
    except RecursionError:
        raise ConfigError(f"{source}: nested too deeply") from None
    except ValidationError as error:
        first = error.errors()[0]
    raise _error(first, model, values, source, text)


def check_keys(path: Path) -> None:
    """Check the keys of a file that other files may complete; `ConfigError` for the first unknown key."""
    values, text = values_and_text(Path(path))
    model = _model(values)
    try:
        model.model_validate(values)
    except ValidationError as error:
        for fault in error.errors():
            if fault["type"] == "extra_forbidden":
                raise _error(fault, model, values, str(path), text) from None


def _error(
    fault: Mapping[str, Any],
    model: type[BaseModel],
    values: Mapping[str, Any],
    source: str,
    text: str,
) -> ConfigError:
    """Return the error for a fault that pydantic found."""
    key = _dotted(values, fault["loc"])
    line = key_lines(text).get(key)
    where = source if line is None else f"{source}: line {line}"
    if fault["type"] == "extra_forbidden":
        near = _nearest_valid(key, fault["loc"], model)
        hint = f"; did you mean {near!r}?" if near else ""
        return ConfigError(f"{where}: unknown key {shown(key)}{hint}")
    value = fault["input"]
    reason = shortened(fault["msg"].removeprefix("Value error, "), 300)
    if not isinstance(value, dict):
        reason += f" (got {shown(value)})"
    choices = re.findall("'([^']+)'", fault.get("ctx", {}).get("expected", ""))
    return ConfigError(
        f"{where}: {key or '(top level)'}: {reason}{meant(value, choices)}"
    )


def _dotted(values: Any, location: Sequence[str | int]) -> str:
    """Return the key of a fault, without the names that pydantic inserts for members of unions."""
    parts = []
    for number, part in enumerate(location, start=1):
        try:
            values = values[part]
        except (LookupError, TypeError):
            if number < len(location):
                continue
        parts.append(str(part))
    return ".".join(parts)


def _nearest_valid(
    key: str, location: Sequence[str | int], model: type[BaseModel]
) -> str | None:
    if location[0] != "tasks" or len(location) < 4:
        return nearest_key(key, model)
    # Tasks on text: pydantic inserts the kind of the task after its name.
    kinds: Mapping[str, type[BaseModel]] = model.KINDS  # type: ignore[attr-defined]
    prefix = f"tasks.{location[1]}."
    near = nearest_key(key.removeprefix(prefix), kinds[str(location[2])])
    return near and f"{prefix}{near}"


@cache
def valid_keys(model: type[BaseModel] = Config) -> tuple[str, ...]:
    """Return every dotted key of a configuration, sections before their keys."""
    return tuple(_keys(model, ""))


def _keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        yield key
        # Of a section, or a section or null; lists of sections have no dotted keys.
        kinds = [field.annotation]
        if type(None) in get_args(field.annotation):
            kinds += get_args(field.annotation)
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _keys(kind, f"{key}.")


def nearest_key(key: str, model: type[BaseModel] = Config) -> str | None:
    """Return the valid key most similar to an unknown key; None if no valid key is similar.

    A key of the same name in another section has priority, then a key of a similar name in the given section,
    then any similar key.
    """
    key = key[:200]
    known = valid_keys(model)
    section, _, name = key.rpartition(".")
    same_name = [one for one in known if one.rpartition(".")[2] == name]
    if same_name:
        return max(
            same_name, key=lambda one: difflib.SequenceMatcher(None, one, key).ratio()
        )
    siblings = [one for one in known if one.rpartition(".")[0] == section]
    by_name = {one.rpartition(".")[2]: one for one in siblings}
    if found := nearest(name, by_name):
        return by_name[found[0]]
    return next(iter(nearest(key, known, cutoff=0.7)), None)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of configuration files, for completion and validation in editors."""
    title = {"title": "Configuration of bigbird-dna"}
    return {"$schema": _SCHEMA, **title, **Config.model_json_schema(), **title}


def check_config(paths: Sequence[Path], overrides: Sequence[str] = ()) -> Any:
    """Check files as in `snakemake --configfile`: later files override earlier files.

    The configuration of a run is also checked as a whole. `ConfigError` as in `load_config` for the first
    invalid file, or as in `complete`.
    """
    merged: dict[str, Any] = {}
    for path in paths:
        values, text = values_and_text(path)
        # A file may need keys of later files; its own keys and values must be valid.
        _overlay(merged, values)
        checked(_model(merged), merged, str(path), text)
    for override in overrides:
        apply_override(merged, override)
    config: Any = checked(_model(merged), merged, ", ".join(map(str, paths)))
    if isinstance(config, Config):
        config = complete(config)
        config.check_targets()
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


def read_values(path: Path) -> dict[str, Any]:
    """Return the keys and values of a YAML file without validation.

    `ConfigError`, with file and line if known, for a file that cannot be read or is not YAML.
    """
    return values_and_text(Path(path))[0]


def values_and_text(path: Path) -> tuple[dict[str, Any], str]:
    """Return the values of `read_values`, and the text of the file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: not readable: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{path}: not readable: the file is not UTF-8 text") from None
    values = read_yaml(text, str(path))
    if values is None:
        return {}, text
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path}: expected a mapping of sections, found {shown(values)}"
        )
    # A copy: an override of a value with aliases must change only one of them.
    try:
        return plain(values, str(path)), text
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply") from None


def apply_override(values: dict[str, Any], override: str) -> None:
    """Set the key of a `section.key=value` override in place; `ConfigError` for an invalid override."""
    source = f"--set {shown(override)}"
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"{source}: expected key=value, such as encoder.layers=4")
    *sections, last = key.split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{source}: {shown(section)} must be a section")
    values[last] = read_yaml(text, source)
