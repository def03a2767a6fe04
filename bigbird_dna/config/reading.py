"""Configuration files, their valid keys, overrides and the values that Snakemake passes on.

Values of `snakemake --config`: Snakemake hands on those within a section as texts, without their quotes.

What `--config 'ablation={seeds: [1, 2]}'` gives is {"seeds": ["1", "2"]}. A text is read as it would be in a
file, and stays a text where the key takes nothing else, as a contig's name does.
"""

import copy
import difflib
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from bigbird_dna.config.run import Config
from bigbird_dna.config.safe_yaml import compose_yaml, key_shown, plain, read_yaml, shortened, shown, unfit
from bigbird_dna.errors import ConfigError

_SCHEMA = "https://json-schema.org/draft/2020-12/schema"


@cache
def valid_keys(model: type[BaseModel] = Config) -> tuple[str, ...]:
    """Every dotted key of a configuration, sections before their keys."""
    return tuple(_keys(model, ""))


def _keys(model: type[BaseModel], above: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{above}{name}"
        yield key
        for section in _sections(field.annotation):
            yield from _keys(section, f"{key}.")


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """The section that a key holds, if any; a list of sections has no dotted keys."""
    candidates = [annotation, *(get_args(annotation) if type(None) in get_args(annotation) else ())]
    return [one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)]


def nearest_key(key: str, model: type[BaseModel] = Config) -> str | None:
    """The valid key that a wrong one was most likely meant to be; none: no valid key is like it.

    A key of the right name in the wrong section comes first, then a key of a similar name in the section
    that it was given in, then any similar one.
    """
    known, (section, _, name) = valid_keys(model), key[:200].rpartition(".")
    elsewhere = [one for one in known if one.rpartition(".")[2] == name]
    if elsewhere:
        return max(elsewhere, key=lambda one: difflib.SequenceMatcher(None, one, key[:200]).ratio())
    beside = {one.rpartition(".")[2]: one for one in known if one.rpartition(".")[0] == section}
    if found := difflib.get_close_matches(name, beside, n=1, cutoff=0.6):
        return beside[found[0]]
    return next(iter(difflib.get_close_matches(key[:200], known, n=1, cutoff=0.7)), None)


def key_lines(text: str) -> Mapping[str, int]:
    """The line, from 1 on, of each dotted key of a YAML text that `read_yaml` has read."""
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
    """The JSON Schema of a configuration file, with which editors complete keys and mark wrong ones."""
    title = {"title": "Configuration of bigbird-dna"}
    return {"$schema": _SCHEMA, **title, **Config.model_json_schema(), **title}


LARGEST_FILE = 250_000
"""Bytes: twice what a stage's file can have, and a second of reading."""


M = TypeVar("M", bound=BaseModel)


def parse_config(values: Mapping[str, Any], source: str = "configuration", text: str = "") -> Config:
    """Check a mapping of sections; errors as of `checked`.

    Sections are checked against each other as far as they are given: a stage's file has some of them.
    """
    return checked(Config, values, source, text)


def checked(model: type[M], values: Mapping[str, Any], source: str, text: str = "") -> M:
    """A configuration of its keys' values; `text` is that of the file `source`.

    `ConfigError` names `source`, the first fault's line, key and value; of an unknown key, the nearest valid
    one. Its text is one line. Lines are looked up for a fault alone.
    """
    try:
        return model.model_validate(plain(values, source))
    except ValidationError as error:
        first = error.errors()[0]
    key = _key(first)
    if first["type"] == "extra_forbidden":
        raise _unknown(first, model, source, text)
    message = shortened(first["msg"].removeprefix("Value error, "), 300)
    value = "" if isinstance(first["input"], dict) else f" (got {shown(first['input'])})"
    raise ConfigError(f"{_at_line(source, key, text)}: {key_shown(key)}: {message}{value}")


def check_keys(path: Path) -> None:
    """Check the keys of a file that others may complete.

    `ConfigError` as of `read_values`; or names the first unknown key, its line and the nearest valid one.
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
    """The configuration with such keys: of a genome's run, or of tasks on text, which is found by name."""
    if "tasks" not in values:
        return Config
    found: type[BaseModel] = import_module("bigbird_dna.papers.nlp.config").NlpConfig
    return found


def _key(fault: Mapping[str, Any]) -> str:
    place = [str(part) for part in fault["loc"]]
    if place[:1] == ["tasks"] and len(place) > 3:  # behind a task's name stands its kind, which is no key
        del place[2]
    return ".".join(place) or "(top level)"


def _at_line(source: str, key: str, text: str) -> str:
    line = key_lines(text).get(key)
    return source if line is None else f"{source}: line {line}"


def _unknown(fault: Mapping[str, Any], model: type[BaseModel], source: str, text: str) -> ConfigError:
    key, above, section = _key(fault), "", model
    if fault["loc"][0] == "tasks" and len(fault["loc"]) > 3:
        tasks, name, kind, *_ = map(str, fault["loc"])
        above, section = f"{tasks}.{name}.", model.KINDS[kind]  # type: ignore[attr-defined]
    nearest = nearest_key(key.removeprefix(above), section)
    meant = f"; did you mean {shown(above + nearest)}?" if nearest else ""
    return ConfigError(f"{_at_line(source, key, text)}: unknown key {shown(key)}{meant}")


def complete(config: Config) -> Config:
    """The configuration of a whole run: sections that were left out, and so have defaults, must fit as well;
    errors as of `parse_config`."""
    return parse_config(config.model_dump())


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file, apply `section.key=value` overrides (values are YAML), and check the result;
    `ConfigError` as of `read_values` and `parse_config`, of an override names it."""
    values, text = values_and_text(Path(path))
    for override in overrides:
        apply_override(values, override)
    return parse_config(values, named(path), text)


def check_config(paths: Sequence[Path], overrides: Sequence[str] = ()) -> Any:
    """Check files as `snakemake --configfile` takes them, later ones over earlier ones.

    A genome's run is checked as a whole. `ConfigError` as of `load_config` for the first file with a fault,
    or as of `complete`.
    """
    whole: dict[str, Any] = {}
    for path in paths:
        values, text = values_and_text(path)
        # A file that others complete may lack what its keys need; its own keys and values must be valid.
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
    """Lay a file's keys over those of earlier files, section by section, in place."""
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), dict):
            _overlay(values[key], value)
        else:
            values[key] = copy.deepcopy(value)


def read_values(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file as they stand there.

    `ConfigError` names the file, and the line where there is one: it is not a file of UTF-8 below 250 kB, not
    YAML, or YAML that is more than data (`safe_yaml`).
    """
    return values_and_text(Path(path))[0]


def values_and_text(path: Path) -> tuple[dict[str, Any], str]:
    """The values of `read_values`, and the text that they stand in."""
    name = named(path)
    text = _text(path, name)
    values = read_yaml(text, name)
    if values is None:
        return {}, text
    if not isinstance(values, dict):
        raise ConfigError(f"{name}: a configuration is a mapping of sections, not {shown(values)}")
    if "__use_yte__" in values:
        raise ConfigError(f"{name}: the key '__use_yte__' makes a program of it: a configuration is data")
    # A copy: an override of a value that aliases repeat changes it in one place.
    return plain(values, name), text


def named(path: Path) -> str:
    """A path as a message starts with it, on one line."""
    text = str(path)
    return shown(text) if unfit(text) else shortened(text, 1000)


def _text(path: Path, name: str) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{name}: not readable: a directory, pipe or device is not a configuration")
        with path.open("rb") as stream:
            data = stream.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ConfigError(f"{name}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{name}: not readable: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{name}: no name of a file") from None
    if len(data) > LARGEST_FILE:
        raise ConfigError(f"{name}: more than {LARGEST_FILE:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}: not readable: line {line} is not UTF-8") from None


def apply_override(values: dict[str, Any], override: str) -> None:
    """Set the key of a `section.key=value` override in place; `ConfigError` names a faulty one."""
    source = f"--set {shown(override)}"
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"{source}: expected key=value, such as encoder.layers=4")
    *sections, last = key.split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ConfigError(f"{source}: {shown(section)} is not a section")
    values[last] = read_yaml(text, source)


Place = tuple[str | int, ...]


def as_in_a_file(
    values: Mapping[str, Any], given: Mapping[str, Any], model: type[BaseModel]
) -> dict[str, Any]:
    """A configuration in which what was `given` on the command line is as a file would have it.

    `values` is the whole, the command line's values among them; `model` says which keys take texts. Nothing
    is checked here: what reads the result does that.
    """
    found = copy.deepcopy({**values})
    texts = {place: text for place, text in _texts(given, ()) if _at(found, place) == text}
    read = {place: value for place, text in texts.items() if (value := _read(text)) is not text}
    if not read:  # as in most runs, every job of which begins here
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
    """A number, truth value or null that a text spells, or the text."""
    try:
        value = read_yaml(text, "--config")
    except ConfigError:
        return text
    return value if value is None or isinstance(value, int | float) else text


def _refused_as_no_text(values: Mapping[str, Any], model: type[BaseModel]) -> list[Place]:
    try:
        model.model_validate(plain(values, "--config"))
    except ValidationError as error:
        faults = error.errors()
        return [_within(values, fault["loc"]) for fault in faults if fault["type"] == "string_type"]
    except ConfigError:  # of what is no data at all
        pass
    return []


def _within(values: Any, place: Place) -> Place:
    """A fault's place without the names that pydantic gives to a union's members."""
    found: list[str | int] = []
    for part in place:
        if _has(values, part):
            found.append(part)
            values = values[part]
    return tuple(found)


def _has(values: Any, part: str | int) -> bool:
    if isinstance(values, Mapping):
        return part in values
    return isinstance(values, list | tuple) and isinstance(part, int) and part < len(values)


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
