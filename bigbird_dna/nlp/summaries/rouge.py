"""ROUGE of summaries, by the library `rouge-score`, which is Google's own (Lin 2004).

Words are stemmed (Porter), letters in lower case and everything but letters and digits left out, as in the
papers' figures. ROUGE-Lsum goes sentence by sentence: a text with line breaks has a sentence a line, as the
highlights of CNN/DailyMail; any other is cut behind '.', '!' or '?' where white space follows.
"""

import re
from collections.abc import Sequence
from typing import Any

from bigbird_dna.nlp.extra import extra

MEASURES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def rouge(true: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """Mean F1 over summaries by measure, between 0 and 1; no summaries have none.

    ROUGE-1 and -2 count common words and pairs of words, ROUGE-L the longest common subsequence of whole
    summaries, ROUGE-Lsum that of each true sentence with the union of the predicted ones (the papers'
    "ROUGE-L" of summaries of several sentences).
    """
    scorer = extra("rouge_score.rouge_scorer").RougeScorer([*MEASURES], use_stemmer=True)
    sums = dict.fromkeys(MEASURES, 0.0)
    for one, other in zip(true, predicted, strict=True):
        scores: dict[str, Any] = scorer.score(sentences(one), sentences(other))
        for measure in MEASURES:
            sums[measure] += float(scores[measure].fmeasure)
    return {measure: total / len(true) for measure, total in sums.items()} if true else {}


def sentences(text: str) -> str:
    """A text with a sentence a line."""
    text = text.strip()
    lines = text.splitlines() if "\n" in text else _SENTENCE_END.split(text)
    return "\n".join(line.strip() for line in lines if line.strip())
