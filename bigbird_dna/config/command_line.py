"""Values of `snakemake --config`: Snakemake hands on those within a section as texts, without their quotes.

What `--config 'ablation={seeds: [1, 2]}'` gives is {"seeds": ["1", "2"]}. A text is read as it would be in a
file, and stays a text where the key takes nothing else, as a contig's name does.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from bigbird_dna.config.plain import plain
from bigbird_dna.config.plain_yaml import read_yaml
from bigbird_dna.errors import ConfigError

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
