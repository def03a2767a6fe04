"""Sources of a task's records: user files, public data sets, installed text, and generated records."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import ConfigError
from bigbird_dna.papers.nlp.config import (
    SPLITS,
    DataConfig,
    GeneratedConfig,
    HubConfig,
)
from bigbird_dna.papers.nlp.records import (
    Record,
    parse_records,
    read_records,
    write_objects,
)

Values = dict[str, Any]
SPLIT_SEED = 20_200_728
HELD_OUT = {
    "valid": ("debugger", "import"),
    "test": ("formatstrings", "string-methods"),
}
"""Topics of Python's documentation, which have no text in common with other topics, unlike the rest."""


def write_splits(
    data: DataConfig,
    directory: Path,
    kind: type[Record],
    convert: Callable[[Mapping[str, Any]], Values | None],
    generate: Callable[[GeneratedConfig, str], Iterable[Values]] | None,
    public: bool = False,
) -> None:
    """Write the checked records of a task's three splits atomically.

    Parameters
    ----------
    data
        The source: files, a public data set, generated records, or installed text.
    directory
        Directory for `train.jsonl`, `valid.jsonl` and `test.jsonl`.
    kind
        Class of the records.
    convert
        Returns a row of a public data set as a record, or None if it is not usable.
    generate
        Yields the generated records of a split; None: the task has none.
    public
        Whether files have rows of a public data set instead of records.

    Raises
    ------
    DataError : for a file, row or record that is not as expected, which it names. ConfigError : if the task has
    no generated records.
    """
    files = {} if data.files is None else data.files.model_dump()
    hub = {} if data.hub is None else hub_splits(data.hub)
    counts = []
    with into_directory(directory, files.values()) as temporary:
        for split in SPLITS:
            source = files.get(split, f"{split} records")
            rows: Iterable[Values]
            if files:
                rows = converted(read_rows(Path(source)), convert, source)
            elif hub:
                rows = converted(hub[split], convert, source)
            elif data.generated is None:
                rows = python_topics(split)
            elif generate is None:
                raise ConfigError("data.generated: not available for this task")
            else:
                rows = generate(data.generated, split)

            lines = ((number, json.dumps(row)) for number, row in enumerate(rows, 1))
            records = parse_records(lines, kind, source)
            if files and not public:
                records = read_records(Path(source), kind)

            values = (
                record.model_dump(exclude_unset=True) | {"id": record.id}
                for record in records
            )
            count = write_objects(temporary / f"{split}.jsonl", values)
            counts.append(f"{count:,} {split}")

    log(f"{directory}: {', '.join(counts)} records")


def read_rows(path: Path) -> Iterator[Any]:
    """Yield the rows of a public data set's own file: a JSON array, or JSON lines."""
    with open_bytes(path) as stream, reading(path, "not readable as JSON", ValueError):
        first = stream.readline()
        if first.lstrip().startswith(b"["):
            yield from json.loads(first + stream.read())
        else:
            yield json.loads(first)
            yield from map(json.loads, stream)


def converted(
    rows: Iterable[Any],
    convert: Callable[[Mapping[str, Any]], Values | None],
    source: Path | str,
) -> Iterator[Values]:
    """Yield usable rows of a public data set as records; `DataError` names source, row and missing column."""
    faults = (KeyError, TypeError, ValueError, IndexError, AttributeError)
    for number, row in enumerate(rows, 1):
        with reading(f"{source}: row {number}", "not of this data set", *faults):
            record = convert(row)
        if record is not None:
            yield record


def hub_splits(hub: HubConfig) -> dict[str, Any]:
    """Return the splits of a public data set; `DataError` if it cannot be loaded. No code of it is run.

    Rows that are held out of the training split are drawn at random, because many data sets are sorted.
    """
    import datasets

    fault = "cannot be loaded; use data.files, or run on a machine with a network"
    with reading(f"data set {hub.name}", fault, Exception):
        public = datasets.load_dataset(hub.name, hub.subset)

        train, splits = public["train"], {}
        for name, source in (("test", hub.test), ("valid", hub.valid)):
            if isinstance(source, str):
                splits[name] = public[source]
            else:
                halves = train.train_test_split(source, seed=SPLIT_SEED)
                train, splits[name] = halves["train"], halves["test"]

    return {"train": train, **splits}


def python_topics(split: str) -> Iterator[Values]:
    """Yield the topics of Python's own documentation in a split."""
    from pydoc_data.topics import topics

    held_out = [*HELD_OUT["valid"], *HELD_OUT["test"]]
    names = HELD_OUT.get(split) or [name for name in topics if name not in held_out]
    for name in names:
        yield {"id": name, "text": topics[name]}


SYLLABLES = "ba de fi go ku la me no ri tu sha wo ce ju pa vi ze xo"
ENDINGS = ("ber", "dan", "kil", "mos")
WORDS = [start + end for start in SYLLABLES.split() for end in ENDINGS]
NAMES, VALUES, FILLERS = WORDS[:24], WORDS[24:48], WORDS[48:]
SPEAKERS = ("mother", "father")
PLACES = ("harbour", "mountain")


def generate_documents(generated: GeneratedConfig, split: str) -> Iterator[Values]:
    """Yield the records of a split with equally frequent classes.

    The class depends on two facts farther apart than the attention window, among uninformative words: who
    spoke (second quarter of the document), and where they went (last quarter). A model that sees one fact has
    an accuracy of one half; a model that sees none, one quarter.
    """
    rng = np.random.default_rng((1, SPLITS.index(split)))
    words = generated.words
    for number in range(getattr(generated, split)):
        speaker, place = SPEAKERS[number % 2], PLACES[number // 2 % 2]
        text = rng.choice(FILLERS, words).tolist()
        first = int(rng.integers(words // 4, words // 2))
        second = int(rng.integers(words * 3 // 4, words - words // 16))

        text[second:second] = f"they went to the {place} .".split()
        text[first:first] = f"then the {speaker} spoke .".split()
        yield {"text": " ".join(text), "label": f"{speaker} {place}"}


CHAINS = 4
"""Names in a document that have a value; a model that cannot see the question is right for one of them."""
PARAGRAPH_SENTENCES = 6


def generate_questions(generated: GeneratedConfig, split: str) -> Iterator[Values]:
    """Yield the records of a split, with the answers of all forms.

    Questions are names. Facts are sentences `name is value.`, none of them in the first third, for several
    names, at random positions in each document. The answer is the value of the name, and its sentence is the
    supporting fact. Training documents have between a third of the words and all of them: shorter ones are
    learned faster.
    """
    rng = np.random.default_rng((1, SPLITS.index(split)))
    for _ in range(getattr(generated, split)):
        words = generated.words
        if split == "train":
            words = int(rng.integers(words // 3, words + 1))

        count = max(words // 3, 2 * CHAINS)  # sentences of three words each
        sentences = []
        for fillers in rng.choice(FILLERS, (count, 3)).tolist():
            sentences.append(" ".join(fillers) + ".")

        names = rng.permutation(NAMES)[:CHAINS].tolist()
        values = rng.permutation(VALUES)[:CHAINS].tolist()
        slots = rng.permutation(np.arange(count // 3, count))[:CHAINS].tolist()
        for slot, name, value in zip(slots, names, values, strict=True):
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
            "facts": [(paragraph, sentence)],
            "type": "short",
            "long_answer": paragraph,
            "candidates": sorted(values),
        }


MARK = "remember"
FACTS = {
    name: words.split()
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
FACT_VALUES = [value for values in FACTS.values() for value in values]
# Of the words before the facts, a quarter are values.
BEFORE_FACTS = FILLERS * 12 + FACT_VALUES


def generate_facts(generated: GeneratedConfig, split: str) -> Iterator[Values]:
    """Yield the records of a split.

    Summaries are lists of facts, each with a mark, an attribute and its value (`remember color red`), at the
    very end of the document. Values also occur among the other words. A model that sees only the beginning
    can predict the attributes, which are half of the summary's words, and one in sixteen values. Documents
    have `generated.words` words; of those for training, the first 94 % have a fiftieth, the next 4 % a sixth.
    """
    rng = np.random.default_rng((1, SPLITS.index(split)))
    attributes = sorted(FACTS)
    count = getattr(generated, split)
    for number in range(count):
        words = generated.words
        if split == "train" and number < 0.94 * count:
            words = max(words // 50, 24)
        elif split == "train" and number < 0.98 * count:
            words = max(words // 6, 24)

        before = words - 3 * len(FACTS)
        document = rng.choice(BEFORE_FACTS, before).tolist()
        facts = {name: str(rng.choice(FACTS[name])) for name in attributes}
        for index in rng.permutation(len(attributes)):
            document += [MARK, attributes[index], facts[attributes[index]]]

        summary = " ".join(f"{name} {value}" for name, value in facts.items())
        yield {"document": " ".join(document), "summary": summary}
