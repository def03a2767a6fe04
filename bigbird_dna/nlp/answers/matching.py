"""Where the words of an answer stand in a text, whatever its case, punctuation and articles are.

This is what distant supervision of TriviaQA goes by: all places of all aliases.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bigbird_dna.nlp.answers.text_metrics import ARTICLES

_WORD = re.compile(r"\S+")


class Place(NamedTuple):
    """Characters `start … end` of a text, without `end`."""

    start: int
    end: int


def places_of(answers: Iterable[str], text: str, most_words: int) -> list[Place]:
    """All places of answers of at most `most_words` words, in the text's order, each once.

    Words are compared in lower case, by their letters and digits alone; articles count nowhere. A place
    begins and ends at letters that were compared: marks around it are left out.
    """
    sought: dict[str, set[tuple[str, ...]]] = {}
    for answer in answers:
        words = tuple(word for word, _ in _words(answer))
        if words and len(words) <= most_words:
            sought.setdefault(words[0], set()).add(words)
    found = [*_words(text)]
    places = set()
    for number, (word, place) in enumerate(found):
        for words in sought.get(word, ()):
            there = found[number : number + len(words)]
            if tuple(one for one, _ in there) == words:
                places.add(Place(place.start, there[-1][1].end))
    return sorted(places)


def _words(text: str) -> Iterator[tuple[str, Place]]:
    """Words as they are compared, with the characters that they were made of."""
    for match in _WORD.finditer(text):
        letters = [place for place, one in enumerate(match.group()) if one.isalnum()]
        bare = "".join(match.group()[place] for place in letters).lower()
        if not bare or bare in ARTICLES:
            continue
        yield bare, Place(match.start() + letters[0], match.start() + letters[-1] + 1)
