"""Documents whose summary is a list of facts at their very end, behind thousands of empty words.

A fact is a mark, an attribute and its value, `remember colour red`. The facts stand in an order drawn for
each document; the summary lists them in one order, without the mark. Values stand among the other words as
well: only behind their attribute do they mean something. Who sees the beginning of a document alone can know
the attributes, which are half of the summary's words, and of the values one in sixteen.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bigbird_dna.errors import ConfigError
from bigbird_dna.nlp.classification.generated import FILLERS
from bigbird_dna.nlp.sections import SPLITS, GeneratedConfig

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
