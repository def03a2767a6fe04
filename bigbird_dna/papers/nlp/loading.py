"""Splits of a task as records: from files of one's own, from a public data set, installed, or generated.

Public data sets come by the library `datasets`, which needs a network, or its cache filled by one. It and the
other libraries of the extra `nlp` are imported where they are needed and nowhere else.

Data sets are often sorted, by class for one, so that the first of them stand for nothing but themselves:
parts of a split, and the records that are watched, are drawn. What is drawn doesn't follow a training's seed:
parts of a split share no row, and all trainings watch the same.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import ConfigError, DataError, UsageError, error_text
from bigbird_dna.papers.nlp.config import PART, HubConfig, InstalledConfig

LIBRARIES = ("transformers", "tokenizers", "datasets", "rouge_score")


def extra(module: str) -> Any:
    """A module of one of the extra's libraries; `UsageError` says what to install if it is missing."""
    library = module.partition(".")[0]
    assert library in LIBRARIES, library
    try:
        return import_module(module)
    except ImportError:
        raise _missing(library) from None


def check_extra() -> None:
    """`UsageError` if a library of the extra is not installed; commands call it before any work.

    None is imported: that takes seconds.
    """
    for library in LIBRARIES:
        with suppress(ImportError):
            if find_spec(library) is not None:
                continue
        raise _missing(library)


def _missing(library: str) -> UsageError:
    return UsageError(
        f"the library {library} is not installed: tasks on text need the extra nlp: "
        "pip install 'bigbird-dna[nlp]'"
    )


T = TypeVar("T")
_SEED = 20_200_728


def rows_of(name: str, count: int) -> NDArray[np.int64]:
    """The rows that a part of a split of `count` rows has, ascending; `name` is as `config.PART` has it."""
    part = PART.fullmatch(name)
    assert part is not None
    return np.sort(_order(count)[slice(*(_bound(text, count) for text in part.groups()[1:]))])


def some_of(records: Sequence[T], most: int) -> list[T]:
    """At most so many of the records, in their order."""
    return [records[index] for index in np.sort(_order(len(records))[:most])]


def _order(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(_SEED).permutation(count)


def _bound(text: str | None, count: int) -> int | None:
    if text is None:
        return None
    return round(int(text[:-1]) * count / 100) if text.endswith("%") else int(text)


_VERSE = re.compile(r"(\w+?)(\d+):\d+ (.*)")
_SECONDS = 60


def installed_documents(config: InstalledConfig, split: str) -> Iterator[dict[str, Any]]:
    """The documents of a split: chapters of books, or topics of Python's documentation.

    `DataError` if the text is not installed; `ConfigError` if a book or topic isn't in it.
    """
    groups = _bible() if config.text == "bible" else _python()
    for held_out in (*config.valid, *config.test):
        if held_out not in groups:
            raise ConfigError(f"data.installed: {held_out!r} is not one of {', '.join(groups)}")
    chosen = {"valid": config.valid, "test": config.test}.get(split)
    if chosen is None:
        chosen = tuple(name for name in groups if name not in {*config.valid, *config.test})
    for name in chosen:
        for number, text in groups[name].items():
            yield {"id": f"{name}{number}", "text": text}


def _bible() -> dict[str, dict[str, str]]:
    """Books by the names that the program `bible` prints, each its chapters' texts by number."""
    program = shutil.which("bible")
    if program is None:
        raise DataError(
            "the text bible is not installed: the program `bible` (Debian's bible-kjv) is missing"
        )
    command = [program, "-f", "gen1:1-rev22:21"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        raise DataError(f"{program}: doesn't print its text") from None
    books: dict[str, dict[str, list[str]]] = {}
    for line in found.splitlines():
        if match := _VERSE.fullmatch(line):
            books.setdefault(match[1], {}).setdefault(match[2], []).append(match[3])
    return {book: {number: " ".join(verses) for number, verses in own.items()} for book, own in books.items()}


def _python() -> dict[str, dict[str, str]]:
    """Topics of the documentation that Python shows for `help()`."""
    from pydoc_data.topics import topics

    return {name: {"": text} for name, text in topics.items()}


def column(row: Mapping[str, Any], *names: str) -> Any:
    """A row's value of the first of these columns that there is; `DataError` if there is none."""
    for name in names:
        if name in row:
            return row[name]
    raise DataError(f"the data set has none of the columns {', '.join(names)}")


def hub_rows(hub: HubConfig, split: str) -> Iterator[Mapping[str, Any]]:
    """Rows of a public data set's split, one after the other; `DataError` if it can't be had.

    A part of a split has rows that were drawn: see `rows_of`. No code of a data set is run.
    """
    datasets = extra("datasets")
    name = getattr(hub, split)
    part = PART.fullmatch(name)
    try:
        found = datasets.load_dataset(hub.name, hub.subset, split=part[1] if part else name, streaming=False)
    except Exception as error:  # whatever the library, or the network, has to say
        raise DataError(
            f"data set {hub.name} ({name}): can't be had: {error_text(error)}; name files of your own in "
            "data.files, or run where there is a network"
        ) from None
    yield from found.select(rows_of(name, len(found))) if part else found
