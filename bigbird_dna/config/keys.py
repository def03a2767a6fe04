"""Valid keys: the nearest one to a mistyped key, lines of a file's keys, and a JSON Schema for editors."""

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, get_args

from pydantic import BaseModel

from bigbird_dna.config.run import Config
from bigbird_dna.config.safe_yaml import compose_yaml

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
