"""Configuration files: valid keys, overrides, and values from `snakemake --config`.

Snakemake passes values inside a section of `--config` as strings, without quotes:
`--config 'ablation={seeds: [1, 2]}'` gives {"seeds": ["1", "2"]}. Such a string is parsed as YAML and remains
a string if the key accepts only strings, such as contig names.
"""

import copy
import difflib
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from bigbird_dna.config.run import Config
from bigbird_dna.config.safe_yaml import (
    EXPONENT,
    compose_yaml,
    exponent_number,
    key_shown,
    plain,
    read_yaml,
    shortened,
    shown,
    unfit,
)
from bigbird_dna.errors import ConfigError, first_fault, meant, nearest

_SCHEMA = "https://json-schema.org/draft/2020-12/schema"


@cache
def valid_keys(model: type[BaseModel] = Config) -> tuple[str, ...]:
    """Return every dotted key of a configuration, sections before their keys."""
    return tuple(_keys(model, ""))


def _keys(model: type[BaseModel], above: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{above}{name}"
        yield key
        for section in _sections(field.annotation):
            yield from _keys(section, f"{key}.")


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """Return the section that is the value of a key, if any; lists of sections have no dotted keys."""
    candidates = [
        annotation,
        *(get_args(annotation) if type(None) in get_args(annotation) else ()),
    ]
    return [
        one
        for one in candidates
        if isinstance(one, type) and issubclass(one, BaseModel)
    ]


def nearest_key(key: str, model: type[BaseModel] = Config) -> str | None:
    """Return the valid key most similar to an unknown key; None if no valid key is similar.

    A key of the same name in another section has priority, then a key of a similar name in the given section,
    then any similar key.
    """
    known, (section, _, name) = valid_keys(model), key[:200].rpartition(".")
    elsewhere = [one for one in known if one.rpartition(".")[2] == name]
    if elsewhere:
        return max(
            elsewhere,
            key=lambda one: difflib.SequenceMatcher(None, one, key[:200]).ratio(),
        )
    beside = {
        one.rpartition(".")[2]: one
        for one in known
        if one.rpartition(".")[0] == section
    }
    if found := nearest(name, beside):
        return beside[found[0]]
    return next(iter(nearest(key, known, cutoff=0.7)), None)


def key_lines(text: str) -> Mapping[str, int]:
    """Return the 1-based line of each dotted key in a YAML text that `read_yaml` accepts."""
    found: dict[str, int] = {}

    def walk(node: Any, above: str) -> None:
        if getattr(node, "id", None) != "mapping":
            return
        for key, value in node.value:
            name = f"{above}{key.value}"
            found.setdefault(name, key.start_mark.line + 1)
            walk(value, f"{name}.")

    walk(compose_yaml(text), "")
    return MappingProxyType(found)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of configuration files, for completion and validation in editors."""
    title = {"title": "Configuration of bigbird-dna"}
    return {"$schema": _SCHEMA, **title, **Config.model_json_schema(), **title}


LARGEST_FILE = 250_000
"""Maximum size in bytes: twice that of a stage's file, read in about a second."""


M = TypeVar("M", bound=BaseModel)


def parse_config(
    values: Mapping[str, Any], source: str = "configuration", text: str = ""
) -> Config:
    """Check a mapping of sections; errors as in `checked`.

    Only the given sections are checked against each other, because a stage's file contains a subset.
    """
    return checked(Config, values, source, text)


def checked(
    model: type[M], values: Mapping[str, Any], source: str, text: str = ""
) -> M:
    """Return the validated configuration of a mapping; `text` is the content of the file `source`.

    Texts such as 1e-3, which other YAML readers (Snakemake's) return for such numbers, are numbers where a
    key needs one. `ConfigError` contains, on one line, `source` and the line, key and value of the first
    fault, or for an unknown key the nearest valid key.
    """
    try:
        return model.model_validate(plain(values, source))
    except ValidationError as error:
        faults, reason = error.errors(), first_fault(error).reason
    first, numbers = faults[0], copy.deepcopy({**values})
    for fault in faults:
        given = fault["input"]
        if (
            fault["type"] in ("float_type", "int_type")
            and isinstance(given, str)
            and EXPONENT.fullmatch(given)
        ):
            place = _within(numbers, fault["loc"])
            if place and not isinstance(_at(numbers, place[:-1]), tuple):
                _put(numbers, place, exponent_number(given))
    if numbers != values:
        return checked(model, numbers, source, text)
    key = _key(first)
    if first["type"] == "extra_forbidden":
        raise _unknown(first, model, source, text)
    value = (
        "" if isinstance(first["input"], dict) else f" (got {shown(first['input'])})"
    )
    choices = re.findall("'([^']+)'", first.get("ctx", {}).get("expected", ""))
    near = meant(first["input"], choices)
    raise ConfigError(
        f"{_at_line(source, key, text)}: {key_shown(key)}: {reason}{value}{near}"
    )


def check_keys(path: Path) -> None:
    """Check the keys of a file that other files may complete.

    `ConfigError` as in `read_values`, or for the first unknown key, with its line and the nearest valid key.
    """
    values, text = values_and_text(Path(path))
    model = _model(values)
    try:
        model.model_validate(values)
    except ValidationError as error:
        for fault in error.errors():
            if fault["type"] == "extra_forbidden":
                raise _unknown(fault, model, named(path), text) from None


def _model(values: Mapping[str, Any]) -> type[BaseModel]:
    """Return the schema of a file: a run, or text tasks, whose module is imported by name."""
    if "tasks" not in values:
        return Config
    found: type[BaseModel] = import_module("bigbird_dna.papers.nlp.config").NlpConfig
    return found


def _key(fault: Mapping[str, Any]) -> str:
    place = [str(part) for part in fault["loc"]]
    if (
        place[:1] == ["tasks"] and len(place) > 3
    ):  # pydantic inserts the kind of the task after its name
        del place[2]
    return ".".join(place) or "(top level)"


def _at_line(source: str, key: str, text: str) -> str:
    line = key_lines(text).get(key)
    return source if line is None else f"{source}: line {line}"


def _unknown(
    fault: Mapping[str, Any], model: type[BaseModel], source: str, text: str
) -> ConfigError:
    key, above, section = _key(fault), "", model
    if fault["loc"][0] == "tasks" and len(fault["loc"]) > 3:
        tasks, name, kind, *_ = map(str, fault["loc"])
        above, section = f"{tasks}.{name}.", model.KINDS[kind]  # type: ignore[attr-defined]
    nearest = nearest_key(key.removeprefix(above), section)
    meant = f"; did you mean {shown(above + nearest)}?" if nearest else ""
    return ConfigError(
        f"{_at_line(source, key, text)}: unknown key {shown(key)}{meant}"
    )


def complete(config: Config) -> Config:
    """Check the configuration of a whole run, including the defaults of omitted sections; errors as in
    `parse_config`."""
    return parse_config(config.model_dump())


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file, apply `section.key=value` overrides (values are YAML), and check the result.
    `ConfigError` as in `read_values` and `parse_config`, or for an invalid override."""
    values, text = values_and_text(Path(path))
    for override in overrides:
        apply_override(values, override)
    return parse_config(values, named(path), text)


def check_config(paths: Sequence[Path], overrides: Sequence[str] = ()) -> Any:
    """Check files as in `snakemake --configfile`: later files override earlier files.

    The configuration of a run is also checked as a whole. `ConfigError` as in `load_config` for the first
    invalid file, or as in `complete`.
    """
    whole: dict[str, Any] = {}
    for path in paths:
        values, text = values_and_text(path)
        # A file may need keys of later files; its own keys and values must be valid.
        _overlay(whole, values)
        checked(_model(whole), copy.deepcopy(whole), named(path), text)
    for override in overrides:
        apply_override(whole, override)
    config: Any = checked(_model(whole), whole, ", ".join(map(named, paths)))
    if isinstance(config, Config):
        config = complete(config)
        config.check_targets()
    return config


def _overlay(values: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Override keys of earlier files by those of a later file, section by section, in place."""
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), dict):
            _overlay(values[key], value)
        else:
            values[key] = copy.deepcopy(value)


def read_values(path: Path) -> dict[str, Any]:
    """Return the keys and values of a YAML file without validation.

    `ConfigError`, with file and line if known: the file is not UTF-8, above 250 kB, not YAML, or contains
    YAML other than data (`safe_yaml`).
    """
    return values_and_text(Path(path))[0]


def values_and_text(path: Path) -> tuple[dict[str, Any], str]:
    """Return the values of `read_values`, and the text of the file."""
    name = named(path)
    text = _text(path, name)
    values = read_yaml(text, name)
    if values is None:
        return {}, text
    if not isinstance(values, dict):
        raise ConfigError(
            f"{name}: expected a mapping of sections, found {shown(values)}"
        )
    if "__use_yte__" in values:
        raise ConfigError(
            f"{name}: '__use_yte__' (code in YAML) is not allowed in a configuration"
        )
    # A copy: an override of a value with aliases must change only one of them.
    return plain(values, name), text


def named(path: Path) -> str:
    """Return a path on one line, for the start of a message."""
    text = str(path)
    return shown(text) if unfit(text) else shortened(text, 1000)


def _text(path: Path, name: str) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(
                f"{name}: not a regular file: expected a configuration file (YAML)"
            )
        with path.open("rb") as stream:
            data = stream.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ConfigError(f"{name}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{name}: not readable: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{name}: invalid file name") from None
    if len(data) > LARGEST_FILE:
        raise ConfigError(
            f"{name}: a configuration must have at most {LARGEST_FILE:,} bytes"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}: not readable: line {line} is not UTF-8") from None


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


Place = tuple[str | int, ...]


def as_in_a_file(
    values: Mapping[str, Any], given: Mapping[str, Any], model: type[BaseModel]
) -> dict[str, Any]:
    """Return a configuration in which values `given` on the command line are parsed as in a file.

    `values` is the whole configuration, including the given values; `model` determines the keys that accept
    strings. The result is not validated.
    """
    found = copy.deepcopy({**values})
    texts = {
        place: text for place, text in _texts(given, ()) if _at(found, place) == text
    }
    read = {
        place: value
        for place, text in texts.items()
        if (value := _read(text)) is not text
    }
    if not read:  # shortcut for most runs, because every job calls this function
        return found
    for place, value in read.items():
        _put(found, place, value)
    for place in _refused_as_no_text(found, model):
        if place in read:
            _put(found, place, texts[place])
    return found


def _texts(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _texts(one, (*place, key))
    elif isinstance(value, Sequence):
        for number, one in enumerate(value):
            yield from _texts(one, (*place, number))


def _read(text: str) -> Any:
    """Return the number, boolean or null that a string represents, else the string."""
    try:
        value = read_yaml(text, "--config")
    except ConfigError:
        return text
    return value if value is None or isinstance(value, int | float) else text


def _refused_as_no_text(
    values: Mapping[str, Any], model: type[BaseModel]
) -> list[Place]:
    try:
        model.model_validate(plain(values, "--config"))
    except ValidationError as error:
        faults = error.errors()
        return [
            _within(values, fault["loc"])
            for fault in faults
            if fault["type"] == "string_type"
        ]
    except ConfigError:  # the values are not plain data
        pass
    return []


def _within(values: Any, place: Place) -> Place:
    """Return the location of a fault without the names that pydantic inserts for members of unions."""
    found: list[str | int] = []
    for part in place:
        if _has(values, part):
            found.append(part)
            values = values[part]
    return tuple(found)


def _has(values: Any, part: str | int) -> bool:
    if isinstance(values, Mapping):
        return part in values
    return (
        isinstance(values, list | tuple)
        and isinstance(part, int)
        and part < len(values)
    )


def _at(values: Any, place: Place) -> Any:
    for part in place:
        if not _has(values, part):
            return None
        values = values[part]
    return values


def _put(values: Any, place: Place, value: Any) -> None:
    for part in place[:-1]:
        values = values[part]
    values[place[-1]] = value
