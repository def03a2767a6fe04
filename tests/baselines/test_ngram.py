"""Kneser–Ney against a dictionary-based oracle, and as a probability distribution."""

import tracemalloc
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.baselines.ngram import FALLBACK_DISCOUNTS, KneserNey, affordable_tokens, extend, finish
from tests.golden.messages import fails

VOCABULARY = 4
DOCUMENTS = st.lists(st.lists(st.integers(0, VOCABULARY - 1), max_size=30), min_size=1, max_size=4).filter(
    any
)


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
            ngram: occurrences[ngram] if len(ngram) == order or ngram[0] == "<s>" else len(left[ngram])
            for ngram in occurrences
            if ngram != ("<s>",)
        }
        self.discounts = {
            length: slow_discounts([c for ngram, c in self.counts.items() if len(ngram) == length])
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


@settings(max_examples=60, deadline=None)
@given(DOCUMENTS, st.integers(1, 4), st.lists(st.integers(0, VOCABULARY - 1), max_size=8))
def test_agrees_with_the_formulas(documents, order, sequence):
    model = KneserNey(order, VOCABULARY).fit(np.array(d, dtype=np.int32) for d in documents)
    oracle = SlowKneserNey(order, documents)
    found = model.log2_probabilities(np.array(sequence, dtype=np.int32))
    text = ("<s>", *sequence)
    expected = [oracle.probability(word, text[: i + 1]) for i, word in enumerate(sequence)]
    np.testing.assert_allclose(2.0**found, expected, rtol=1e-12)


@pytest.mark.parametrize("vocabulary", [256, 32_000])
def test_sums_to_one_over_a_large_vocabulary(vocabulary):
    rng = np.random.default_rng(1)
    tokens = (rng.zipf(1.2, 60_000) % vocabulary).astype(np.uint16)
    model = KneserNey(6, vocabulary).fit(np.array_split(tokens, 7))
    for context in (tokens[:5], tokens[100:108], np.array([vocabulary - 1] * 6)):
        # Five tokens are all that an order of 6 looks back on: one document asks for every token.
        asked = [(*context, word) for word in range(vocabulary)]
        bits = model.log2_probabilities(np.array(asked).ravel()).reshape(vocabulary, -1)[:, -1]
        np.testing.assert_allclose((2.0**bits).sum(), 1, rtol=1e-9)


@settings(max_examples=60, deadline=None)
@given(DOCUMENTS, st.integers(1, 4), st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=8))
def test_chances_of_all_tokens_agree_with_those_of_each(documents, order, sequence):
    model = KneserNey(order, VOCABULARY).fit(np.array(d, dtype=np.int32) for d in documents)
    oracle = SlowKneserNey(order, documents)
    places = np.arange(len(sequence))
    contexts = model.contexts(np.array(sequence), places)
    found = model.chances(np.concatenate([contexts, contexts[:, ::-1]], axis=1))
    text = ("<s>", *sequence)
    expected = [[oracle.probability(w, text[: i + 1]) for w in range(VOCABULARY)] for i in places]
    np.testing.assert_allclose(found, [*expected, *expected[::-1]], rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(DOCUMENTS, st.integers(1, 4), st.lists(st.integers(0, VOCABULARY - 1), max_size=8))
def test_orders_fitted_together_are_those_fitted_alone(documents, order, sequence):
    arrays = [np.array(d, dtype=np.int32) for d in documents]
    models = [*KneserNey(order, VOCABULARY).fitted_orders(arrays)]
    assert [model.order for model in models] == [*range(1, order + 1)]
    for model in models:
        alone = KneserNey(model.order, VOCABULARY).fit(arrays)
        tokens = np.array(sequence, dtype=np.int64)
        np.testing.assert_array_equal(model.log2_probabilities(tokens), alone.log2_probabilities(tokens))


def test_memory_stays_within_what_is_promised():
    """Tokens at random from a large vocabulary: from three on, hardly an n-gram occurs twice."""
    tokens = np.random.default_rng(0).integers(0, 32_000, 300_000).astype(np.uint16)
    tracemalloc.start()
    try:
        model = KneserNey(5, 32_000).fit([tokens])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert model.order == 5
    promised = 300_000 / affordable_tokens(1 << 40, 5) * (1 << 40)
    assert 0.6 * promised < peak < promised


def test_estimated_discounts_are_used_where_there_are_counts():
    """Real text has 1 > D1 > 0 and so on; the fall-back must not be what large data gets."""
    rng, types = np.random.default_rng(3), None
    text = (rng.zipf(1.3, 50_000) % 500).astype(np.int32)
    for _ in range(3):
        types = extend(types, text, 501)
    assert not np.allclose(finish(types, types.occurrences, 501).discounts[1:], FALLBACK_DISCOUNTS)


@pytest.mark.parametrize(
    "call",
    [
        *(
            lambda tokens=tokens: KneserNey(2, VOCABULARY).fit([np.array(tokens)])
            for tokens in ([0, 4], [-1], [0.5], [[1]], [])
        ),
        lambda: KneserNey(1, VOCABULARY).log2_probabilities(np.array([1])),
        lambda: KneserNey(0, VOCABULARY),
        lambda: KneserNey(1, 0),
    ],
)
def test_what_is_refused(call):
    with fails(ValueError):
        call()
