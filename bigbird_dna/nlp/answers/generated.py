"""Generated documents whose answer is known, and further from the question than windows see.

Between sentences of words that say nothing stand those that tell something: `name is value.` or `name knows
other.`, none of them in the first third. The question is a name. As many others are told of in the same way
at places drawn anew for each document, so that who doesn't see the question can but choose among them.

With one hop the answer is what the name is; with two, what the one is whom the name knows. The sentences on
the way are the supporting facts.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bigbird_dna.nlp.answers.sections import Form
from bigbird_dna.nlp.sections import SPLITS, GeneratedConfig

_FIRST, _SECOND = ("ba", "de", "fi", "go", "ku", "la"), ("ber", "dan", "kil", "mos")
NAMES = tuple(first + second for first in _FIRST for second in _SECOND)
VALUES = tuple(first + second for first in ("me", "no", "ri", "tu", "sha", "wo") for second in _SECOND)
FILLERS = tuple(first + second for first in ("ce", "ju", "pa", "vi", "ze", "xo") for second in _SECOND)
TOLD = {1: 4, 2: 4}
"""Hops → of how many names a document tells; who can't see the question is right in one of so many."""
PARAGRAPH = 6
"""Sentences of a paragraph."""
SHORTEST = 3
"""Training documents have from a third of the words on: shorter ones are learnt from sooner."""


def generate_questions(
    generated: GeneratedConfig, split: str, form: Form, hops: int, unanswerable: bool
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
        yield _record(rng, words, form, hops, null)


def _record(rng: np.random.Generator, words: int, form: Form, hops: int, null: bool) -> dict[str, Any]:
    chains = TOLD[hops]
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
        " ".join(FILLERS[number] for number in rng.integers(0, len(FILLERS), 3)) + "." for _ in range(count)
    ]
    for chain, sentence in ((chain, hop) for chain in range(chains) for hop in range(hops)):
        sentences[places[chain, sentence]] = told[chain][sentence]
    record = {"question": names[2 * chains] if null else names[0], "paragraphs": _paragraphs(sentences)}
    return {**record, **_known(sentences, places[0], values, form, null)}


def _paragraphs(sentences: list[str]) -> list[dict[str, Any]]:
    return [
        {"sentences": [one if number == 0 else " " + one for number, one in enumerate(part)]}
        for part in (sentences[first : first + PARAGRAPH] for first in range(0, len(sentences), PARAGRAPH))
    ]


def _known(
    sentences: list[str], places: np.ndarray[Any, Any], values: list[str], form: Form, null: bool
) -> dict[str, Any]:
    """What the record says of the answer, which stands at the end of the last of `places`."""
    if null:
        return {"type": "null"} if form == "natural_questions" else {}
    paragraph, sentence = divmod(int(places[-1]), PARAGRAPH)
    before = " ".join(sentences[paragraph * PARAGRAPH :][: sentence + 1])
    start = len(before) - 1 - len(values[0])
    answer: dict[str, Any] = {"text": values[0]}
    if form not in ("triviaqa", "wikihop"):
        answer |= {"paragraph": paragraph, "start": start}
    known: dict[str, Any] = {"answers": [answer]}
    if form == "hotpotqa":
        facts = [divmod(int(place), PARAGRAPH) for place in sorted(places)]
        known |= {"type": "span", "facts": [{"paragraph": one, "sentence": two} for one, two in facts]}
    if form == "natural_questions":
        known |= {"type": "short", "long_answer": paragraph}
    if form == "wikihop":
        known["candidates"] = sorted(values)
    return known
