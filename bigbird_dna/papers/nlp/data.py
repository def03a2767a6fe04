"""Sources of a task's records: user files, public data sets, installed text, and generated records."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bigbird_dna.console import log
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import ConfigError, DataError, error_text, one_of
from bigbird_dna.papers.nlp.config import (
    SPLITS,
    DataConfig,
    GeneratedConfig,
    HubConfig,
    InstalledConfig,
)
from bigbird_dna.papers.nlp.records import (
    Record,
    check_records,
    read_records,
    write_objects,
)

Values = dict[str, Any]
_SEED = 20_200_728


def write_splits(
    data: DataConfig,
    directory: Path,
    kind: type[Record],
    convert: Callable[[Mapping[str, Any]], Values | None],
    generate: Callable[[GeneratedConfig, str], Iterable[Values]] | None,
    read: Callable[[Path], Iterator[Record]] | None = None,
) -> None:
    """Write the checked records of a task's three splits atomically.

    `convert` returns a row of a public data set as a record, or None if it is not usable; `generate` yields
    the generated records of a split; `read` reads a user's file, by default one of records.
    """
    files = None if data.files is None else data.files.model_dump()
    hub = None if data.hub is None else hub_splits(data.hub)
    counts = []
    with into_directory(directory, [*(files or {}).values()]) as temporary:
        for split in SPLITS:
            records: Iterable[Record]
            if files is not None:
                path = Path(files[split])
                records = read(path) if read else read_records(path, kind)
            else:
                rows: Iterable[Values]
                if data.hub is not None and hub is not None:
                    source = f"{data.hub.name} ({split})"
                    rows = filter(None, map(convert, hub[split]))
                elif data.generated is not None:
                    if generate is None:
                        raise ConfigError("data.generated: not available for this task")
                    source, rows = "generated", generate(data.generated, split)
                else:
                    assert data.installed is not None
                    source = "Python's documentation"
                    rows = installed_documents(data.installed, split)
                records = check_records(enumerate(rows, 1), kind, source)
            lines = (
                record.model_dump(exclude_unset=True) | {"id": record.id}
                for record in records
            )
            count = write_objects(temporary / f"{split}.jsonl", lines)
            counts.append(f"{count:,} {split}")
    log(f"{directory}: {', '.join(counts)} records")


def column(row: Mapping[str, Any], *names: str) -> Any:
    """Return a row's value of the first of these columns that exists; `DataError` if there is none."""
    for name in names:
        if name in row:
            return row[name]
    raise DataError(f"the data set needs one of the columns {', '.join(names)}")


def hub_splits(hub: HubConfig) -> dict[str, Any]:
    """Return the splits of a public data set; `DataError` if it cannot be loaded. No code of it is run.

    Rows that are held out of the training split are drawn at random, because many data sets are sorted.
    """
    import datasets

    splits = {}
    try:
        train = datasets.load_dataset(hub.name, hub.subset, split=hub.train)
        for name, source in (("test", hub.test), ("valid", hub.valid)):
            if isinstance(source, str):
                splits[name] = datasets.load_dataset(hub.name, hub.subset, split=source)
            else:
                halves = train.train_test_split(source, seed=_SEED)
                train, splits[name] = halves["train"], halves["test"]
    except Exception as error:  # errors of library and network
        raise DataError(
            f"data set {hub.name}: cannot be loaded: {error_text(error)}; use data.files, or run "
            "on a machine with a network"
        ) from None
    return {"train": train, **splits}


def installed_documents(config: InstalledConfig, split: str) -> Iterator[Values]:
    """Yield the topics of Python's own documentation in a split; `ConfigError` for an unknown topic."""
    from pydoc_data.topics import topics

    held_out = (*config.valid, *config.test)
    for name in held_out:
        if name not in topics:
            raise ConfigError(f"data.installed: {name!r}: {one_of(name, topics)}")
    names = {
        "train": [name for name in topics if name not in held_out],
        "valid": config.valid,
        "test": config.test,
    }
    for name in names[split]:
        yield {"id": name, "text": topics[name]}


def _words(first: str, second: str) -> tuple[str, ...]:
    return tuple(start + end for start in first.split() for end in second.split())


def _rng(generated: GeneratedConfig, split: str) -> np.random.Generator:
    return np.random.default_rng((generated.seed, SPLITS.index(split)))


SPEAKERS = ("mother", "father")
PLACES = ("harbour", "mountain")
FILLERS = _words(
    "ba de fi go ku la me no ri tu", "ber dan kil mos pun sel tir vok wan zed"
)  # uninformative


def generate_documents(generated: GeneratedConfig, split: str) -> Iterator[Values]:
    """Yield the records of a split with equally frequent classes, determined by `generated.seed` and `split`.

    The class depends on two facts farther apart than the attention window, among uninformative words: who
    spoke (second quarter of the document), and where they went (last quarter). A model that sees one fact has
    an accuracy of one half; a model that sees none, one quarter.
    """
    rng = _rng(generated, split)
    words = generated.words
    for number in range(getattr(generated, split)):
        speaker, place = SPEAKERS[number % 2], PLACES[number // 2 % 2]
        text = [FILLERS[index] for index in rng.integers(0, len(FILLERS), words)]
        first = int(rng.integers(words // 4, words // 2))
        second = int(rng.integers(words * 3 // 4, words - words // 16))
        text[second:second] = f"they went to the {place} .".split()
        text[first:first] = f"then the {speaker} spoke .".split()
        yield {"text": " ".join(text), "label": f"{speaker} {place}"}


NAMES = _words("ba de fi go ku la", "ber dan kil mos")
VALUES = _words("me no ri tu sha wo", "ber dan kil mos")
QUESTION_FILLERS = _words("ce ju pa vi ze xo", "ber dan kil mos")
CHAINS = 4
"""Names in a document that have a value; a model that cannot see the question is right for one of them."""
PARAGRAPH_SENTENCES = 6


def generate_questions(generated: GeneratedConfig, split: str) -> Iterator[Values]:
    """Yield the records of a split, with the answers of all forms, determined by `generated.seed` and `split`.

    Questions are names. Facts are sentences `name is value.`, none of them in the first third, for several
    names, at random positions in each document. The answer is the value of the name, and its sentence is the
    supporting fact. Training documents have between a third of the words and all of them: shorter ones are
    learned faster.
    """
    rng = _rng(generated, split)
    for _ in range(getattr(generated, split)):
        words = generated.words
        if split == "train":
            words = int(rng.integers(words // 3, words + 1))
        names = [NAMES[number] for number in rng.permutation(len(NAMES))]
        values = [VALUES[number] for number in rng.permutation(len(VALUES))[:CHAINS]]
        count = max(words // 3, 2 * CHAINS)  # sentences of three words each
        slots = rng.permutation(np.arange(count // 3, count))[:CHAINS].tolist()
        sentences = []
        for _ in range(count):
            fillers = rng.integers(0, len(QUESTION_FILLERS), 3)
            sentences.append(" ".join(QUESTION_FILLERS[at] for at in fillers) + ".")
        for slot, name, value in zip(slots, names, values, strict=False):
            sentences[slot] = f"{name} is {value}."
        paragraphs = []
        for first in range(0, count, PARAGRAPH_SENTENCES):
            head, *rest = sentences[first : first + PARAGRAPH_SENTENCES]
            paragraphs.append({"sentences": [head, *(f" {text}" for text in rest)]})
        paragraph, sentence = divmod(slots[0], PARAGRAPH_SENTENCES)
        before = "".join(paragraphs[paragraph]["sentences"][: sentence + 1])
        start = len(before) - 1 - len(values[0])
        yield {
            "question": names[0],
            "paragraphs": paragraphs,
            "answers": [{"text": values[0], "paragraph": paragraph, "start": start}],
            "facts": [{"paragraph": paragraph, "sentence": sentence}],
            "type": "span",
            "long_answer": paragraph,
            "candidates": sorted(values),
        }


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
FACT_VALUES = tuple(value for values in FACTS.values() for value in values)
_STRAY = 0.25  # fraction of the words before the facts that are values


def generate_facts(generated: GeneratedConfig, split: str) -> Iterator[Values]:
    """Yield the records of a split, of `generated.words` words each, a function of seed and split.

    Summaries are lists of facts, each with a mark, an attribute and its value (`remember color red`), at the
    very end of the document. Values also occur among the other words. A model that sees only the beginning
    can predict the attributes, which are half of the summary's words, and one in sixteen values.
    """
    before = generated.words - 3 * len(FACTS)
    rng = _rng(generated, split)
    attributes = sorted(FACTS)
    for _ in range(getattr(generated, split)):
        stray = rng.random(before) < _STRAY
        fillers = np.array(FILLERS)[rng.integers(0, len(FILLERS), before)]
        values = np.array(FACT_VALUES)[rng.integers(0, len(FACT_VALUES), before)]
        words = np.where(stray, values, fillers).tolist()
        facts = {}
        for name in attributes:
            facts[name] = FACTS[name][int(rng.integers(len(FACTS[name])))]
        for index in rng.permutation(len(attributes)):
            words += [MARK, attributes[index], facts[attributes[index]]]
        summary = " ".join(f"{name} {value}" for name, value in facts.items())
        yield {"document": " ".join(words), "summary": summary}
