"""The product of a forward and a backward n-gram, against its formula and other ways to its optimum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.baselines import tokens
from bigbird_dna.baselines.ngram import KneserNey
from bigbird_dna.baselines.tokens import MaskedTokens, Product
from tests.golden.messages import fails

VOCABULARY = 6
CANDIDATES = np.array([1, 2, 4, 5])


def text(size, seed):
    """Each token goes with the ones two before it, more or less."""
    rng = np.random.default_rng(seed)
    found = [1, 2]
    for _ in range(size - 2):
        follows = CANDIDATES[(found[-1] + 2 * found[-2]) % 4]
        found.append(int(follows if rng.random() < 0.6 else rng.choice(VOCABULARY)))
    return np.array(found)


def product(documents, order=3):
    forward = KneserNey(order, VOCABULARY).fit(documents)
    backward = KneserNey(order, VOCABULARY).fit(document[::-1] for document in documents)
    return Product(forward, backward, KneserNey(1, VOCABULARY).fit(documents), CANDIDATES)


def hidden(document, every=3):
    places = np.arange(0, len(document), every)
    return places[np.isin(document[places], CANDIDATES)]


def after(model, before, token):
    return 2.0 ** model.log2_probabilities(np.array([*before, token]))[-1]


def slow_bits(model, documents, places):
    """Every candidate in turn, asked of each model as the next token of a document."""
    a, b, c = model.exponents[3]
    found = []
    for document, wanted in zip(documents, places, strict=True):
        for place in wanted:
            left, right = document[:place], document[place + 1 :][::-1]
            chances = {
                token: after(model.forward, left, token) ** a
                * after(model.backward, right, token) ** b
                * after(model.unigram, [], token) ** c
                for token in CANDIDATES.tolist()
            }  # fmt: skip
            found.append(-np.log2(chances[int(document[place])] / sum(chances.values())))
    return found


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(2, 40), min_size=1, max_size=3),
    st.integers(1, 4),
    st.tuples(*[st.floats(-1.5, 2)] * 3),
    st.sampled_from([1, 40, 1 << 21]),
)
def test_bits_agree_with_the_formula(sizes, order, exponents, cells):
    model = product([text(200, 0), text(50, 1)], order)._replace(exponents=np.tile(exponents, (4, 1)))
    documents = [text(size, seed + 5) for seed, size in enumerate(sizes)]
    places = [hidden(document) for document in documents]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "CELLS", cells)
        found = model.bits(model.look_up(MaskedTokens(documents, places)))
    np.testing.assert_allclose(found, slow_bits(model, documents, places), rtol=1e-9, atol=1e-12)


def test_exponents_are_the_optimum():
    model = product([text(3000, 0)])
    document = text(2000, 1)
    asked = model.look_up(MaskedTokens([document], [hidden(document)]))
    best = model.fitted(asked)
    least = best.bits(asked).mean()
    assert least < model.bits(asked).mean()
    np.testing.assert_allclose(best.fitted(asked).exponents, best.exponents, atol=1e-4)
    for place in range(3):
        for change in (-0.05, 0.05):
            others = best.exponents.copy()
            others[:, place] += change
            assert best._replace(exponents=others).bits(asked).mean() > least
    # From anywhere else the same optimum is found.
    far = model._replace(exponents=np.tile([8.0, -3.0, 4.0], (4, 1))).fitted(asked)
    np.testing.assert_allclose(far.exponents[3], best.exponents[3], atol=1e-3)
    assert far.bits(asked).mean() == pytest.approx(least, abs=1e-7)


def test_slopes_are_those_of_small_changes():
    model = product([text(500, 0)])
    document = text(300, 1)
    asked = model.look_up(MaskedTokens([document], [hidden(document)]))
    theta = np.array([0.7, 1.2, -0.4])
    _, gradient, hessian = model.cost(theta, asked)
    for place, step in enumerate(1e-5 * np.eye(3)):
        above, below = model.cost(theta + step, asked), model.cost(theta - step, asked)
        assert gradient[place] == pytest.approx((above[0] - below[0]) / 2e-5, rel=1e-5)
        np.testing.assert_allclose(hessian[place], (above[1] - below[1]) / 2e-5, rtol=1e-4)


def test_factors_that_say_nothing_do_no_harm():
    """With models of order 1 all three are the same; nothing can be told from three times the same."""
    model = product([text(500, 0)], order=1)
    document = text(400, 1)
    asked = model.look_up(MaskedTokens([document], [hidden(document)]))
    assert np.isfinite(model.fitted(asked).exponents).all()


def test_nothing_hidden_and_strange_tokens():
    model = product([text(500, 0)])
    document = text(40, 1)
    asked = model.look_up(MaskedTokens([document, document], [np.zeros(0, np.int64)] * 2))
    assert len(model.bits(asked)) == 0
    with fails(ValueError):
        model.look_up(MaskedTokens([np.array([1, 3])], [np.array([1])]))
