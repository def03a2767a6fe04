"""Generated documents whose class, answer or summary is known, and further away than windows see.

Classes follow from two facts, which stand between words that say nothing: who spoke, in the second quarter of
the document, and where to, in the last quarter. Who sees one of them is right half of the time; who sees
none, a quarter.

Questions are names. Sentences tell something, `name is value.` or `name knows other.`, none of them in the
first third; of as many other names too, at places drawn anew for each document. With one hop the answer is
what the name is; with two, what the one is whom the name knows. The sentences on the way support it.

Summaries are lists of facts, each a mark, an attribute and its value, `remember colour red`, at the very end.
Values stand among the other words as well. Who sees the beginning of a document alone can know the
attributes, which are half of the summary's words, and of the values one in sixteen.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bigbird_dna.errors import ConfigError
from bigbird_dna.papers.nlp.config import SPLITS, AnswerForm, GeneratedConfig

SPEAKERS = ("mother", "father")
PLACES = ("harbour", "mountain")
FILLERS = tuple(
    first + second
    for first in ("ba", "de", "fi", "go", "ku", "la", "me", "no", "ri", "tu")
    for second in ("ber", "dan", "kil", "mos", "pun", "sel", "tir", "vok", "wan", "zed")
)
"""Words that say nothing."""


def generate_documents(generated: GeneratedConfig, split: str) -> Iterator[dict[str, Any]]:
    """The records of a split, all classes as frequent; a function of `generated.seed` and `split`."""
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


_FIRST, _SECOND = ("ba", "de", "fi", "go", "ku", "la"), ("ber", "dan", "kil", "mos")
NAMES = tuple(first + second for first in _FIRST for second in _SECOND)
VALUES = tuple(first + second for first in ("me", "no", "ri", "tu", "sha", "wo") for second in _SECOND)
QUESTION_FILLERS = tuple(
    first + second for first in ("ce", "ju", "pa", "vi", "ze", "xo") for second in _SECOND
)
CHAINS = {1: 4, 2: 4}
"""Hops → of how many names a document tells; who can't see the question is right in one of so many."""
PARAGRAPH_SENTENCES = 6
"""Sentences of a paragraph."""
SHORTEST = 3
"""Training documents have from a third of the words on: shorter ones are learnt from sooner."""


def generate_questions(
    generated: GeneratedConfig, split: str, form: AnswerForm, hops: int, unanswerable: bool
) -> Iterator[dict[str, Any]]:
    """The records of a split; a function of the arguments.

    Natural Questions, and where there may be no answer, ask one time in four for a name that isn't told of.
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
    told = [
        [f"{names[chain]} is {values[chain]}."]
        if hops == 1
        else [
            f"{names[chain]} knows {names[chains + chain]}.",
            f"{names[chains + chain]} is {values[chain]}.",
        ]
        for chain in range(chains)
    ]
    count = max(words // 3, 2 * chains * hops)  # sentences, of three words each
    places = rng.permutation(np.arange(count // 3, count))[: chains * hops].reshape(chains, hops)
    sentences = [
        " ".join(QUESTION_FILLERS[number] for number in rng.integers(0, len(QUESTION_FILLERS), 3)) + "."
        for _ in range(count)
    ]
    for chain, sentence in ((chain, hop) for chain in range(chains) for hop in range(hops)):
        sentences[places[chain, sentence]] = told[chain][sentence]
    record = {"question": names[2 * chains] if null else names[0], "paragraphs": _paragraphs(sentences)}
    return {**record, **_known(sentences, places[0], values, form, null)}


def _paragraphs(sentences: list[str]) -> list[dict[str, Any]]:
    return [
        {"sentences": [one if number == 0 else " " + one for number, one in enumerate(part)]}
        for part in (
            sentences[first : first + PARAGRAPH_SENTENCES]
            for first in range(0, len(sentences), PARAGRAPH_SENTENCES)
        )
    ]


def _known(
    sentences: list[str], places: np.ndarray[Any, Any], values: list[str], form: AnswerForm, null: bool
) -> dict[str, Any]:
    """What the record says of the answer, which stands at the end of the last of `places`."""
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
        known |= {"type": "span", "facts": [{"paragraph": one, "sentence": two} for one, two in facts]}
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
        "colour": "black blue brown crimson golden green grey orange pink purple red scarlet silver violet "
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
_STRAY = 0.25  # share of the words before the facts that are values


def generate_facts(generated: GeneratedConfig, split: str) -> Iterator[dict[str, Any]]:
    """The records of a split, of `generated.words` words each; a function of `generated.seed` and `split`."""
    before = generated.words - 3 * len(FACTS)
    if before < 1:
        raise ConfigError(
            f"data.generated.words {generated.words}: the facts alone take {3 * len(FACTS)} words"
        )
    rng = np.random.default_rng((generated.seed, SPLITS.index(split)))
    attributes = sorted(FACTS)
    for _ in range(getattr(generated, split)):
        stray = rng.random(before) < _STRAY
        fillers, values = rng.integers(0, len(FILLERS), before), rng.integers(0, len(_VALUES), before)
        words = [
            _VALUES[value] if out_of_place else FILLERS[filler]
            for out_of_place, filler, value in zip(stray, fillers, values, strict=True)
        ]
        facts = {name: FACTS[name][int(rng.integers(len(FACTS[name])))] for name in attributes}
        for number in rng.permutation(len(attributes)):
            words += [MARK, attributes[number], facts[attributes[number]]]
        summary = " ".join(f"{name} {value}" for name, value in facts.items())
        yield {"document": " ".join(words), "summary": summary}
