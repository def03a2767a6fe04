"""Exact match and F1 of answers, as SQuAD, HotpotQA and TriviaQA define them.

Answers are compared in lower case, without punctuation and articles, white space being one blank. F1 is that
of the words that both have, counted as often as both have them.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

ARTICLES = frozenset({"a", "an", "the"})
_PUNCTUATION = frozenset(string.punctuation)
_CURLY = frozenset("‘’´`_")  # beside those of ASCII, in TriviaQA's definition
_ARTICLE = re.compile(r"\b(a|an|the)\b")
UNEXPLAINED = frozenset({"yes", "no", "noanswer"})
"""HotpotQA: these are right or wrong as a whole, never in part."""


class Overlap(NamedTuple):
    """What two answers have in common, each from 0 to 1."""

    exact: float
    f1: float
    precision: float
    recall: float


NOTHING = Overlap(0.0, 0.0, 0.0, 0.0)


def normalised(text: str, *, marks_are_blanks: bool = False) -> str:
    """An answer as it is compared.

    With `marks_are_blanks`, TriviaQA's way, a mark parts two words; else, SQuAD's, it is left out and leaves
    one. There ASCII's marks alone count.
    """
    text = text.lower()
    if marks_are_blanks:
        text = "".join(" " if one in _PUNCTUATION or one in _CURLY else one for one in text)
    else:
        text = "".join(one for one in text if one not in _PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", text).split())


def overlap(answer: str, reference: str, *, marks_are_blanks: bool = False) -> Overlap:
    """One answer against one reference; where either is empty, both must be."""
    mine, theirs = (normalised(one, marks_are_blanks=marks_are_blanks) for one in (answer, reference))
    exact = float(mine == theirs)
    words, others = mine.split(), theirs.split()
    if not words or not others:
        return Overlap(exact, exact, exact, exact)
    common = sum((Counter(words) & Counter(others)).values())
    if not common:
        return NOTHING
    precision, recall = common / len(words), common / len(others)
    return Overlap(exact, 2 * precision * recall / (precision + recall), precision, recall)


def best_overlap(answer: str, references: Sequence[str], *, marks_are_blanks: bool = False) -> Overlap:
    """The best exact match and the best F1 over references, each for itself; none: the empty one.

    References that are empty once they are normalised count only if there is no other (SQuAD).
    """
    told = [one for one in references if normalised(one, marks_are_blanks=marks_are_blanks)]
    found = [overlap(answer, one, marks_are_blanks=marks_are_blanks) for one in told or [""]]
    best = max(found, key=lambda one: one.f1)
    return best._replace(exact=max(one.exact for one in found))


def whole_or_nothing(answer: str, reference: str) -> Overlap:
    """HotpotQA's: as `overlap`, but a yes or no that isn't the other's shares nothing with it."""
    mine, theirs = normalised(answer), normalised(reference)
    if mine != theirs and (mine in UNEXPLAINED or theirs in UNEXPLAINED):
        return NOTHING
    return overlap(answer, reference)
