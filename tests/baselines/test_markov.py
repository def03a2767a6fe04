"""The Markov model over bases against counting by hand, sums over all paths, and sources of known entropy."""

from itertools import product

import numpy as np
import pytest

from bigbird_dna.baselines import markov
from bigbird_dna.baselines.markov import Markov
from tests.baselines.sources import Source


def probability(sequences, strengths, context, base):
    """The formula at the head of the module, read literally; bases before an N are no context."""
    context = [*context]
    while 4 in context:
        context = context[context.index(4) + 1 :]
    lower = 0.25
    if context:
        lower = probability(sequences, strengths, context[1:], base)
    size = len(context)
    counts = np.zeros(4)
    for codes in sequences:
        for strand in (codes, [3 - code if code < 4 else 4 for code in codes[::-1]]):
            for end in range(size, len(strand)):
                if [*strand[end - size : end]] == context and strand[end] < 4:
                    counts[strand[end]] += 1
    strength = strengths[size]
    return (counts[base] + strength * lower) / (counts.sum() + strength)


def sequences(seed, sizes, unknown=0.1):
    rng = np.random.default_rng(seed)
    frequencies = [*((1 - unknown) * np.array([0.4, 0.3, 0.2, 0.1])), unknown]
    return [rng.choice(5, size, p=frequencies) for size in sizes]


@pytest.mark.parametrize("order", [0, 1, 3])
def test_spans_agree_with_the_sum_over_all_paths(order, monkeypatch):
    training = sequences(0, [60, 50, 1])
    model = Markov(order).fit(training, sequences(1, [80]))
    lists = [codes.tolist() for codes in training]
    left, right = (np.array(sequences(seed, [order] * 6)) for seed in (2, 3))
    monkeypatch.setattr(markov, "STATES", 64)
    for length in (1, 2, 4):
        spans = np.array(sequences(4, [length] * 6, unknown=0))
        found = model.two_sided(left, spans, right)
        for bits, before, span, behind in zip(found, left, spans, right, strict=True):
            chances = {}
            for other in product(range(4), repeat=length):
                codes = [*before.tolist(), *other, *behind.tolist()]
                chances[other] = 1.0
                for place in range(order, len(codes)):
                    if codes[place] < 4:
                        chances[other] *= probability(
                            lists,
                            model.strengths,
                            codes[place - order : place],
                            codes[place],
                        )
            expected = -np.log2(chances[tuple(span.tolist())] / sum(chances.values()))
            assert bits == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_one_strand():
    codes = np.tile([0, 1], 50)
    none = np.full((1, 8), 4)
    for both, chance in ((True, 0.25), (False, 0.5)):
        model = Markov().fit([codes], [codes], both_strands=both)
        bits = model.two_sided(none, np.array([[1]]), none)
        assert bits == pytest.approx(-np.log2(chance), rel=0.05)


def test_extreme_counts_stay_finite():
    """Runs that were never seen, judged by counts that are all but certain."""
    runs = np.zeros(100_000, np.uint8)
    model = Markov(4).fit([runs], [runs])
    codes = np.tile([1, 2], 40)
    bits = model.two_sided(codes[None, :4], codes[None, 4:20], codes[None, 20:24])
    assert np.isfinite(bits).all() and (bits >= 0).all()
    with pytest.raises(ValueError, match="base"):
        Markov(2).fit([np.full(9, 4)], [runs])


def test_it_learns_a_source_and_no_more():
    source = Source(2, seed=3)
    train, valid = source.sample(200_000, seed=1), source.sample(20_000, seed=2)
    model = Markov(4).fit([train], [valid], both_strands=False)
    places = np.arange(4, len(valid) - 4, 10)
    offsets = np.arange(4)
    left, right = (
        valid[places[:, None] - 4 + offsets],
        valid[places[:, None] + 1 + offsets],
    )
    found = model.two_sided(left, valid[places, None], right).mean()
    seen = np.concatenate([left, np.full((len(left), 1), 4), right], axis=1)
    chances = source.given_all_others(seen)[:, 4]
    known = -np.log2(chances[np.arange(len(left)), valid[places]]).mean()
    assert known - 0.02 < found < known + 0.02


@pytest.mark.parametrize("order", [1, 2])
def test_what_the_source_knows_is_the_sum_over_all_texts(order):
    """Texts of six bases, of which some aren't seen; the bases before them are none that is known."""
    source = Source(order, seed=4)
    every = np.array([*product(range(4), repeat=order + 6)])
    states = every[:, :order] @ 4 ** np.arange(order)[::-1]
    chances = source.states[states] * source.chances_of(every)
    every = every[:, order:]
    rng = np.random.default_rng(0)
    seen = np.where(rng.random((8, 6)) < 0.5, rng.integers(0, 4, (8, 6)), 4)
    found = source.given_all_others(seen)
    for text, own in zip(seen, found, strict=True):
        for place in range(6):
            fits = [
                (every[:, i] == base) | (base == 4) | (i == place)
                for i, base in enumerate(text)
            ]
            left = np.all(fits, axis=0)
            sums = np.bincount(every[left, place], chances[left], minlength=4)
            np.testing.assert_allclose(own[place], sums / sums.sum(), rtol=1e-6)
