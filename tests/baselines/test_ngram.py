"""Kneser–Ney against a dictionary-based oracle, and as a probability distribution."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.baselines import ngram
from bigbird_dna.baselines.ngram import (
    FALLBACK_DISCOUNTS,
    Bigram,
    MaskedTokens,
    TwoSidedBigram,
    discounts,
)

VOCABULARY = 4
DOCUMENTS = st.lists(
    st.lists(st.integers(0, VOCABULARY - 1), max_size=30), min_size=1, max_size=4
).filter(any)


def slow_discounts(counts: list[int]) -> tuple[float, float, float]:
    n = [sum(count == wanted for count in counts) for wanted in (1, 2, 3, 4)]
    if min(n[:3]) > 0:
        share = n[0] / (n[0] + 2 * n[1])
        found = tuple(i - (i + 1) * share * n[i] / n[i - 1] for i in (1, 2, 3))
        if all(0 < d < i for i, d in enumerate(found, start=1)):
            return found
    return FALLBACK_DISCOUNTS


class SlowKneserNey:
    """Chen & Goodman's formulas read literally, one n-gram at a time."""

    def __init__(self, order: int, documents: list[list[int]]) -> None:
        self.order = order
        occurrences: Counter[tuple] = Counter()
        left = defaultdict(set)
        for document in documents:
            text = ["<s>", *document]
            for length in range(1, order + 1):
                for start in range(len(text) - length + 1):
                    ngram = tuple(text[start : start + length])
                    occurrences[ngram] += 1
                    if start:
                        left[ngram].add(text[start - 1])
        self.counts = {
            ngram: occurrences[ngram]
            if len(ngram) == order or ngram[0] == "<s>"
            else len(left[ngram])
            for ngram in occurrences
            if ngram != ("<s>",)
        }
        self.discounts = {
            length: slow_discounts(
                [c for ngram, c in self.counts.items() if len(ngram) == length]
            )
            for length in range(1, order + 1)
        }

    def probability(self, word: int, context: tuple) -> float:
        """P(word | context); contexts longer than the order are cut, the empty one backs off to uniform."""
        context = context[len(context) - min(len(context), self.order - 1) :]
        lower = self.probability(word, context[1:]) if context else 1 / VOCABULARY
        follow = {n[-1]: c for n, c in self.counts.items() if n[:-1] == context}
        if not follow:
            return lower
        one, two, three = self.discounts[len(context) + 1]

        def discount(count: int) -> float:
            return (0, one, two, three)[min(count, 3)]

        total = sum(follow.values())
        count = follow.get(word, 0)
        backoff = sum(map(discount, follow.values())) / total
        return (count - discount(count)) / total + backoff * lower


@settings(max_examples=25, deadline=None)
@given(DOCUMENTS)
def test_bigrams_agree_with_the_formulas(documents):
    model = Bigram(VOCABULARY).fit([np.array(d, np.int32) for d in documents])
    oracle = SlowKneserNey(2, documents)
    contexts = [(0,), (1,), (2,), (3,), ("<s>",), ()]
    expected = [
        [oracle.probability(word, context) for word in range(VOCABULARY)]
        for context in contexts
    ]
    found = model.probabilities(np.array([0, 1, 2, 3, VOCABULARY, -1]))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-9)


def test_estimated_discounts_are_used_where_there_are_counts():
    """Real text has 1 > D1 > 0 and so on; the fall-back must not be what large data gets."""
    rng = np.random.default_rng(3)
    counts = rng.geometric(0.4, 5000)
    found = [discounts(counts)[counts == k][0] for k in (1, 2, 3)]
    assert not np.allclose(found, FALLBACK_DISCOUNTS)


# The product of a forward and a backward n-gram, against its formula and other ways to its optimum


SYMBOLS = 6
CANDIDATES = np.array([1, 2, 4, 5])


def text(size, seed):
    """Each token goes with the ones two before it, more or less."""
    rng = np.random.default_rng(seed)
    found = [1, 2]
    for _ in range(size - 2):
        follows = CANDIDATES[(found[-1] + 2 * found[-2]) % 4]
        found.append(int(follows if rng.random() < 0.6 else rng.choice(SYMBOLS)))
    return np.array(found)


def product(documents, asked):
    model = TwoSidedBigram(SYMBOLS, CANDIDATES)
    return model.fit(documents, MaskedTokens([asked], [hidden(asked)]))


def hidden(document, every=4):
    places = np.arange(0, len(document), every)
    return places[np.isin(document[places], CANDIDATES)]


def slow_bits(model, documents, places):
    """Every candidate in turn."""
    a, b = model.exponents
    found = []
    for document, wanted in zip(documents, places, strict=True):
        padded = [SYMBOLS, *document.tolist(), SYMBOLS]
        for place in wanted:
            left, right = np.array([padded[place]]), np.array([padded[place + 2]])
            chances = {
                token: model.forward.probabilities(left)[0, token] ** a
                * model.backward.probabilities(right)[0, token] ** b
                * model.frequencies[token] ** (1 - a - b)
                for token in CANDIDATES.tolist()
            }  # fmt: skip
            found.append(
                -np.log2(chances[int(document[place])] / sum(chances.values()))
            )
    return found


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(2, 40), min_size=1, max_size=3),
    st.tuples(*[st.floats(-1.5, 2)] * 2),
    st.sampled_from([1, 40, 1 << 21]),
)
def test_bits_agree_with_the_formula(sizes, exponents, cells):
    model = product([text(200, 0), text(50, 1)], text(30, 2))
    model.exponents = np.array(exponents)
    documents = [text(size, seed + 5) for seed, size in enumerate(sizes)]
    places = [hidden(document) for document in documents]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram, "CELLS", cells)
        found = model.bits(MaskedTokens(documents, places))
    np.testing.assert_allclose(
        found, slow_bits(model, documents, places), rtol=1e-9, atol=1e-12
    )


def test_exponents_are_the_optimum():
    document = text(2000, 1)
    asked = MaskedTokens([document], [hidden(document)])
    model = product([text(3000, 0)], document)
    best = model.exponents
    least = model.bits(asked).mean()
    for change in ((0.05, 0), (-0.05, 0), (0, 0.05), (0, -0.05)):
        model.exponents = best + change
        assert model.bits(asked).mean() > least


def test_a_hidden_neighbor_is_no_context():
    document = text(400, 1)
    model = product([text(3000, 0)], document)
    places = np.flatnonzero(np.isin(document, CANDIDATES))
    changed = document.copy()
    changed[places[50]] = CANDIDATES[document[places[50]] != CANDIDATES][0]
    before = model.bits(MaskedTokens([document], [places]))
    after_change = model.bits(MaskedTokens([changed], [places]))
    others = np.arange(len(places)) != 50
    np.testing.assert_array_equal(before[others], after_change[others])
    assert before[50] != after_change[50]


def test_nothing_hidden():
    document = text(40, 1)
    model = product([text(500, 0)], text(400, 1))
    masked = MaskedTokens([document, document], [np.zeros(0, np.int64)] * 2)
    assert len(model.bits(masked)) == 0
