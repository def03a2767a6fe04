"""Documents whose class follows from two facts, both further from [CLS] than windows see.

Between words that say nothing stand two sentences: who spoke, in the second quarter of the document, and
where to, in the last quarter, but not at the very end. The class is both together. Who sees one of them is
right half of the time; who sees none, a quarter.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bigbird_dna.nlp.sections import SPLITS, GeneratedConfig

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
