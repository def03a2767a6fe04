"""What a character n-gram makes of a text: the simple predictor that bits per character are compared with."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.ngram import KneserNey
from bigbird_dna.nlp.pretraining.tokens import TextTokens


class CharacterBits(NamedTuple):
    """Bits of tokens by the characters that they stand for, all characters before them being known."""

    orders: dict[int, float]  # bits per character of the validation documents, by order
    order: int  # the best of them
    tokens: NDArray[np.float64]  # (N,) bits of each token of the judged documents
    per_character: float  # over all characters of the judged documents


def character_ngram(train: TextTokens, valid: TextTokens, judged: TextTokens, longest: int) -> CharacterBits:
    """Fit Kneser–Ney n-grams of characters, choose the order on `valid`, and judge.

    Letters that the training text hasn't got are one letter more. It reads from the left: a masked-token
    model sees both sides, but not the other hidden tokens, which this one does see.
    """
    alphabet = {letter: index for index, letter in enumerate(sorted(set().union(*train.texts)))}
    model = KneserNey(longest, len(alphabet) + 1)
    learnt, chosen, asked = (_codes(part.texts, alphabet) for part in (train, valid, judged))
    orders: dict[int, float] = {}
    best = None
    for fitted in model.fitted_orders(learnt):
        orders[fitted.order] = float(
            -np.concatenate([fitted.log2_probabilities(text) for text in chosen]).mean()
        )
        if orders[fitted.order] == min(orders.values()):
            best = fitted
    assert best is not None
    bits = [-best.log2_probabilities(text) for text in asked]
    each = []
    for text, (start, end) in zip(bits, pairwise(judged.sentences.tolist()), strict=True):
        ends = np.concatenate([[0], np.cumsum(judged.widths[start:end])])
        each.append(np.diff(np.concatenate([[0.0], np.cumsum(text)])[ends]))
    return CharacterBits(orders, best.order, np.concatenate(each), float(np.concatenate(bits).mean()))


def _codes(texts: Sequence[str], alphabet: dict[str, int]) -> list[NDArray[np.int32]]:
    other = len(alphabet)
    return [np.array([alphabet.get(letter, other) for letter in text], np.int32) for text in texts]
