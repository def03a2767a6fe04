"""Splits of a task as records: user-supplied files, a public data set, installed text, or generated.

Public data sets are loaded by the library `datasets`, which needs a network, or a filled cache. This and
other libraries of the extra `nlp` are imported only where needed.

Many data sets are sorted, for example by class, so their first rows are not representative. Parts of a split,
and validation records, are therefore selected at random, independent of the training's seed: parts of a split
have no row in common, and all trainings use the same validation records.
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

from bigbird_dna.errors import ConfigError, DataError, UsageError, error_text, one_of
from bigbird_dna.papers.nlp.config import (
    PART,
    SPLITS,
    AnswerForm,
    GeneratedConfig,
    HubConfig,
    InstalledConfig,
)

LIBRARIES = ("transformers", "tokenizers", "datasets", "rouge_score")


def extra(module: str) -> Any:
    """Import a module of the extra's libraries; `UsageError` with the install command if it is missing."""
    library = module.partition(".")[0]
    assert library in LIBRARIES, library
    try:
        return import_module(module)
    except ImportError:
        raise _missing(library) from None


def check_extra() -> None:
    """Raise `UsageError` if a library of the extra is not installed; commands call this before any work.

    No library is imported, because that takes seconds.
    """
    for library in LIBRARIES:
        with suppress(ImportError):
            if find_spec(library) is not None:
                continue
        raise _missing(library)


def _missing(library: str) -> UsageError:
    return UsageError(
        f"the library {library} is not installed; tasks on text need the extra nlp: "
        "pip install 'bigbird-dna[nlp]'"
    )


T = TypeVar("T")
_SEED = 20_200_728


def rows_of(name: str, count: int) -> NDArray[np.int64]:
    """Return the rows of a part of a split of `count` rows, ascending; `name` matches `config.PART`."""
    part = PART.fullmatch(name)
    assert part is not None
    return np.sort(
        _order(count)[slice(*(_bound(text, count) for text in part.groups()[1:]))]
    )


def some_of(records: Sequence[T], most: int) -> list[T]:
    """Return at most `most` of the records, selected at random, in their order."""
    return [records[index] for index in np.sort(_order(len(records))[:most])]


def _order(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(_SEED).permutation(count)


def _bound(text: str | None, count: int) -> int | None:
    if text is None:
        return None
    return round(int(text[:-1]) * count / 100) if text.endswith("%") else int(text)


_VERSE = re.compile(r"(\w+?)(\d+):\d+ (.*)")
_SECONDS = 60


def installed_documents(
    config: InstalledConfig, split: str
) -> Iterator[dict[str, Any]]:
    """Yield the documents of a split: chapters of books, or topics of Python's documentation.

    `DataError` if the text is not installed; `ConfigError` for an unknown book or topic.
    """
    groups = _bible() if config.text == "bible" else _python()
    for held_out in (*config.valid, *config.test):
        if held_out not in groups:
            raise ConfigError(
                f"data.installed: {held_out!r}: {one_of(held_out, groups)}"
            )
    chosen = {"valid": config.valid, "test": config.test}.get(split)
    if chosen is None:
        chosen = tuple(
            name for name in groups if name not in {*config.valid, *config.test}
        )
    for name in chosen:
        for number, text in groups[name].items():
            yield {"id": f"{name}{number}", "text": text}


def _bible() -> dict[str, dict[str, str]]:
    """Return books, named as in the output of the program `bible`, with chapter texts by number."""
    program = shutil.which("bible")
    if program is None:
        raise DataError(
            "the text bible is not installed: the program `bible` (Debian package bible-kjv) is missing"
        )
    command = [program, "-f", "gen1:1-rev22:21"]
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        raise DataError(f"{program}: printing the text failed") from None
    books: dict[str, dict[str, list[str]]] = {}
    for line in found.splitlines():
        if match := _VERSE.fullmatch(line):
            books.setdefault(match[1], {}).setdefault(match[2], []).append(match[3])
    return {
        book: {number: " ".join(verses) for number, verses in own.items()}
        for book, own in books.items()
    }


def _python() -> dict[str, dict[str, str]]:
    """Return the topics of the documentation that Python shows for `help()`."""
    from pydoc_data.topics import topics

    return {name: {"": text} for name, text in topics.items()}


def column(row: Mapping[str, Any], *names: str) -> Any:
    """Return a row's value of the first of these columns that exists; `DataError` if there is none."""
    for name in names:
        if name in row:
            return row[name]
    raise DataError(f"the data set needs one of the columns {', '.join(names)}")


def hub_rows(hub: HubConfig, split: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a public data set's split; `DataError` if it cannot be loaded.

    A part of a split has randomly selected rows, see `rows_of`. No code of a data set is run.
    """
    datasets = extra("datasets")
    name = getattr(hub, split)
    part = PART.fullmatch(name)
    try:
        found = datasets.load_dataset(
            hub.name, hub.subset, split=part[1] if part else name, streaming=False
        )
    except Exception as error:  # errors of library and network
        raise DataError(
            f"data set {hub.name} ({name}): cannot be loaded: {error_text(error)}; use data.files, or run "
            "on a machine with a network"
        ) from None
    yield from found.select(rows_of(name, len(found))) if part else found


def _words(first: str, second: str) -> tuple[str, ...]:
    return tuple(one + other for one in first.split() for other in second.split())


SPEAKERS = ("mother", "father")
PLACES = ("harbour", "mountain")
FILLERS = _words(
    "ba de fi go ku la me no ri tu", "ber dan kil mos pun sel tir vok wan zed"
)  # uninformative


def generate_documents(
    generated: GeneratedConfig, split: str
) -> Iterator[dict[str, Any]]:
    """Yield the records of a split with equally frequent classes, determined by `generated.seed` and `split`.

    The class depends on two facts farther apart than the attention window, among uninformative words: who
    spoke (second quarter of the document), and where they went (last quarter). A model that sees one fact has
    an accuracy of one half; a model that sees none, one quarter.
    """
    rng = np.random.default_rng((generated.seed, SPLITS.index(split)))
    words = generated.words
    for number in range(getattr(generated, split)):
        speaker, place = SPEAKERS[number % 2], PLACES[number // 2 % 2]
        text = [FILLERS[index] for index in rng.integers(0, len(FILLERS), words)]
        first = int(rng.integers(words // 4, words // 2))
        second = int(rng.integers(words * 3 // 4, words - words // 16))
        text[second:second] = ["they", "went", "to", "the", place, "."]
        text[first:first] = ["then", "the", speaker, "spoke", "."]
        yield {"text": " ".join(text), "label": f"{speaker} {place}"}


NAMES = _words("ba de fi go ku la", "ber dan kil mos")
VALUES = _words("me no ri tu sha wo", "ber dan kil mos")
QUESTION_FILLERS = _words("ce ju pa vi ze xo", "ber dan kil mos")
_LINK = "knows"  # verb of sentences that link two names
CHAINS = {1: 4, 2: 4}
"""Hops → number of names in a document; a model that cannot see the question is right for one of them."""
PARAGRAPH_SENTENCES = 6
SHORTEST = 3
"""Training documents have at least 1/3 of the words: shorter documents are learned faster."""


def generate_questions(
    generated: GeneratedConfig,
    split: str,
    form: AnswerForm,
    hops: int,
    unanswerable: bool,
) -> Iterator[dict[str, Any]]:
    """Yield the records of a split, determined by the arguments.

    Questions are names. Facts are sentences `name is value.` or `name knows other.`, none of them in the
    first third, for several names, at random positions in each document. With one hop, the answer is the
    value of the name; with two, the value of the known name. Sentences on this path are supporting facts.
    With Natural Questions, or if there may be no answer, one question in four is a name without facts.
    """
    rng = np.random.default_rng((generated.seed, SPLITS.index(split)))
    for _ in range(getattr(generated, split)):
        words = generated.words
        if split == "train":
            words = int(rng.integers(max(words // SHORTEST, 1), words + 1))
        null = (unanswerable or form == "natural_questions") and rng.random() < 0.25
        yield _question_record(rng, words, form, hops, null)


def _question_record(
    rng: np.random.Generator, words: int, form: AnswerForm, hops: int, null: bool
) -> dict[str, Any]:
    chains = CHAINS[hops]
    names = [NAMES[number] for number in rng.permutation(len(NAMES))]
    values = [VALUES[number] for number in rng.permutation(len(VALUES))[:chains]]
    sentence_texts = [
        [f"{names[chain]} is {values[chain]}."]
        if hops == 1
        else [
            f"{names[chain]} {_LINK} {names[chains + chain]}.",
            f"{names[chains + chain]} is {values[chain]}.",
        ]
        for chain in range(chains)
    ]
    count = max(
        words // 3, 2 * chains * hops
    )  # number of sentences, of three words each
    places = rng.permutation(np.arange(count // 3, count))[: chains * hops].reshape(
        chains, hops
    )
    sentences = [
        " ".join(
            QUESTION_FILLERS[number]
            for number in rng.integers(0, len(QUESTION_FILLERS), 3)
        )
        + "."
        for _ in range(count)
    ]
    for chain, sentence in (
        (chain, hop) for chain in range(chains) for hop in range(hops)
    ):
        sentences[places[chain, sentence]] = sentence_texts[chain][sentence]
    spaced = [
        " " * (number % PARAGRAPH_SENTENCES > 0) + one
        for number, one in enumerate(sentences)
    ]
    parts = range(0, count, PARAGRAPH_SENTENCES)
    paragraphs = [
        {"sentences": spaced[first : first + PARAGRAPH_SENTENCES]} for first in parts
    ]
    record = {
        "question": names[2 * chains] if null else names[0],
        "paragraphs": paragraphs,
    }
    return {**record, **_known(sentences, places[0], values, form, null)}


def _known(
    sentences: list[str],
    places: np.ndarray[Any, Any],
    values: list[str],
    form: AnswerForm,
    null: bool,
) -> dict[str, Any]:
    """Return the record's answer, which is at the end of the last of `places`."""
    if null:
        return {"type": "null"} if form == "natural_questions" else {}
    paragraph, sentence = divmod(int(places[-1]), PARAGRAPH_SENTENCES)
    before = " ".join(sentences[paragraph * PARAGRAPH_SENTENCES :][: sentence + 1])
    start = len(before) - 1 - len(values[0])
    answer: dict[str, Any] = {"text": values[0]}
    if form not in ("triviaqa", "wikihop"):
        answer |= {"paragraph": paragraph, "start": start}
    known: dict[str, Any] = {"answers": [answer]}
    if form == "hotpotqa":
        facts = [divmod(int(place), PARAGRAPH_SENTENCES) for place in sorted(places)]
        known |= {
            "type": "span",
            "facts": [{"paragraph": one, "sentence": two} for one, two in facts],
        }
    if form == "natural_questions":
        known |= {"type": "short", "long_answer": paragraph}
    if form == "wikihop":
        known["candidates"] = sorted(values)
    return known


MARK = "remember"
FACTS: dict[str, tuple[str, ...]] = {
    name: tuple(words.split())
    for name, words in {
        "animal": "camel dolphin donkey eagle falcon horse lizard monkey otter panda rabbit sparrow tiger "
        "turtle walrus zebra",
        "color": "black blue brown crimson golden green gray orange pink purple red scarlet silver violet "
        "white yellow",
        "name": "anna bruno clara david elena felix greta hugo irene jonas laura maria nina oscar paula "
        "simon",
        "number": "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
        "sixteen",
        "place": "bridge castle desert forest garden harbour island library market mountain museum river "
        "station tower valley village",
        "season": "april august autumn december february january july june march may november october "
        "september spring summer winter",
    }.items()
}
_VALUES = tuple(value for values in FACTS.values() for value in values)
_STRAY = 0.25  # fraction of the words before the facts that are values


def generate_facts(generated: GeneratedConfig, split: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a split, of `generated.words` words each, a function of seed and split.

    Summaries are lists of facts, each with a mark, an attribute and its value (`remember color red`), at the
    very end of the document. Values also occur among the other words. A model that sees only the beginning
    can predict the attributes, which are half of the summary's words, and one in sixteen values.
    """
    before = generated.words - 3 * len(FACTS)
    if before < 1:
        raise ConfigError(
            f"data.generated.words {generated.words}: must be above {3 * len(FACTS)}, the words of the facts"
        )
    rng = np.random.default_rng((generated.seed, SPLITS.index(split)))
    attributes = sorted(FACTS)
    for _ in range(getattr(generated, split)):
        stray = rng.random(before) < _STRAY
        fillers, values = (
            rng.integers(0, len(FILLERS), before),
            rng.integers(0, len(_VALUES), before),
        )
        words = [
            _VALUES[value] if out_of_place else FILLERS[filler]
            for out_of_place, filler, value in zip(stray, fillers, values, strict=True)
        ]
        facts = {
            name: FACTS[name][int(rng.integers(len(FACTS[name])))]
            for name in attributes
        }
        for number in rng.permutation(len(attributes)):
            words += [MARK, attributes[number], facts[attributes[number]]]
        summary = " ".join(f"{name} {value}" for name, value in facts.items())
        yield {"document": " ".join(words), "summary": summary}
