"""Markov models over bases against counting by hand, sums over all paths, and sources of known entropy."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.baselines import markov
from bigbird_dna.baselines.markov import Markov, count_words
from tests.baselines.sources import Source

CODES = st.lists(st.integers(0, 4), max_size=40)
SEQUENCES = st.lists(CODES, min_size=1, max_size=3)
TRAINING = SEQUENCES.filter(
    lambda found: any(base < 4 for codes in found for base in codes)
)
STRENGTHS = st.lists(st.sampled_from([0.01, 0.5, 3.0, 100.0]), min_size=4, max_size=4)


def arrays(sequences):
    return [np.array(codes, dtype=np.uint8) for codes in sequences]


def known_runs(codes):
    return [
        [int(base) for base in run]
        for run in "".join(map(str, codes)).split("4")
        if run
    ]


def slow_counts(sequences, bases, both_strands):
    """Each base with the `bases` − 1 before it, where they are known, read base by base."""
    found = np.zeros((4,) * bases, int)
    for codes in sequences:
        for run in known_runs(codes):
            for strand in [run, [3 - base for base in reversed(run)]][
                : 1 + both_strands
            ]:
                for end in range(bases, len(strand) + 1):
                    found[tuple(strand[end - bases : end])] += 1
    return found.ravel()


def probability(counts, strengths, context, base):
    """The formula at the head of the module, read literally."""
    lower = probability(counts, strengths, context[1:], base) if context else 0.25
    row = counts[len(context)].reshape((4,) * (len(context) + 1))[tuple(context)]
    strength = strengths[len(context)]
    return (row[base] + strength * lower) / (row.sum() + strength)


@settings(max_examples=25, deadline=None)
@given(SEQUENCES, st.integers(1, 5), st.booleans())
def test_words_are_counted_as_by_hand(sequences, longest, both_strands):
    found = count_words(arrays(sequences), longest, both_strands=both_strands)
    for bases, table in enumerate(found, start=1):
        np.testing.assert_array_equal(
            table, slow_counts(sequences, bases, both_strands)
        )


@settings(max_examples=20, deadline=None)
@given(
    TRAINING,
    STRENGTHS,
    CODES.filter(lambda codes: 4 not in codes and codes),
    st.integers(0, 3),
)
def test_one_sided_agrees_with_the_formula(training, strengths, codes, order):
    model = Markov(3).fit(arrays(training)).smooth(strengths)
    counts = [slow_counts(training, bases, True) for bases in range(1, 5)]
    places = np.arange(len(codes))
    found = model.one_sided(np.array(codes), places, places + 1, order)
    expected = [
        -np.log2(
            probability(
                counts, strengths, codes[max(place - order, 0) : place], codes[place]
            )
        )
        for place in places
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    whole = model.one_sided(
        np.array(codes), np.array([0]), np.array([len(codes)]), order
    )
    np.testing.assert_allclose(whole, found.sum(), rtol=1e-9)


def brute_force(model, codes, start, end, order):
    """Share of a stretch among all of its length, each scored base by base up to `order` behind it."""
    codes = codes.astype(np.int64)
    left = right = 0
    while left < order and start - left > 0 and codes[start - left - 1] < 4:
        left += 1
    while right < order and end + right < len(codes) and codes[end + right] < 4:
        right += 1

    def chance(stretch):
        text = np.concatenate(
            [codes[start - left : start], stretch, codes[end : end + right]]
        )
        found = 1.0
        for place in range(left, len(text)):
            context = text[max(place - order, 0) : place]
            row = int("".join(map(str, context)), 4) if len(context) else 0
            found *= float(model.tables[len(context)][row, text[place]])
        return found

    every = sum(
        chance(np.array(stretch)) for stretch in product(range(4), repeat=end - start)
    )
    return -np.log2(chance(codes[start:end]) / every)


@st.composite
def stretches(draw):
    """A sequence with some N, and stretches of its known bases, at its ends and beside an N among them."""
    codes = np.array(draw(st.lists(st.integers(0, 3), min_size=1, max_size=14)))
    for place in draw(st.lists(st.integers(0, len(codes) - 1), max_size=2)):
        codes[place] = 4
    found = [
        (start, end)
        for start in range(len(codes))
        for end in range(start + 1, min(start + 5, len(codes)) + 1)
        if not (codes[start:end] == 4).any()
    ]
    return codes, np.array(found, dtype=np.int64).reshape(-1, 2)


@settings(max_examples=25, deadline=None)
@given(
    TRAINING,
    STRENGTHS,
    stretches(),
    st.integers(0, 3),
    st.sampled_from([1, 64, 1 << 17]),
)
def test_two_sided_agrees_with_the_sum_over_all_paths(
    training, strengths, asked, order, states
):
    model = Markov(3).fit(arrays(training)).smooth(strengths)
    codes, places = asked
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markov, "STATES", states)
        patch.setattr(markov, "STEPS", 2)
        found = model.two_sided(codes, *places.T, order)
    expected = [
        brute_force(model, codes, start, end, order) for start, end in places.tolist()
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 3), st.integers(0, 6), st.integers(0, 6), st.integers(1, 4))
def test_what_may_not_be_seen_is_as_an_unknown_base(order, before, behind, length):
    rng = np.random.default_rng(3)
    model = Markov(3).fit([rng.integers(0, 4, 500)]).smooth([1.0, 2, 3, 4])
    codes = rng.integers(0, 4, 20)
    blanked = codes.copy()
    blanked[: 8 - before] = blanked[8 + length + behind :] = 4
    starts, ends = np.array([8]), np.array([8 + length])
    np.testing.assert_array_equal(
        model.two_sided(
            codes, starts, ends, order, np.array([before]), np.array([behind])
        ),
        model.two_sided(blanked, starts, ends, order),
    )
    np.testing.assert_array_equal(
        model.one_sided(codes, starts, ends, order, np.array([before])),
        model.one_sided(blanked, starts, ends, order),
    )


def test_long_stretches_are_judged_with_the_longest_state():
    rng = np.random.default_rng(2)
    model = Markov(4).fit([rng.integers(0, 4, 3000)]).smooth([1.0] * 5)
    codes = rng.integers(0, 4, 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markov, "LONGEST_STATE", 2)
        found = model.two_sided(codes, np.array([10, 30]), np.array([12, 33]), 4)
    assert found[0] == model.two_sided(codes, np.array([10]), np.array([12]), 4)[0]
    assert found[1] == model.two_sided(codes, np.array([30]), np.array([33]), 2)[0]


def test_extreme_counts_stay_finite():
    """Runs that were never seen, judged by counts that are all but certain."""
    model = Markov(8).fit([np.zeros(100_000, dtype=np.uint8)]).smooth([1e-3] * 9)
    codes = np.tile(np.array([1, 2], dtype=np.uint8), 40)
    for call in (model.one_sided, model.two_sided):
        bits = call(codes, np.array([0, 20, 40]), np.array([3, 26, 48]))
        assert np.isfinite(bits).all() and (bits >= 0).all()


def test_strengths_are_the_best_of_their_grid():
    source = Source(2, seed=3)
    train, valid = source.sample(3000, seed=1), source.sample(20_000, seed=2)
    strengths = Markov(4).fit([train]).mix([valid]).strengths
    places = np.arange(len(valid))

    def bits(strengths, order):
        model = Markov(4).fit([train]).smooth(strengths)
        return model.one_sided(valid, places, places + 1, order).mean()

    for order in range(5):
        least = bits(strengths, order)
        for factor in (0.25, 4.0):
            others = [*strengths]
            others[order] *= factor
            assert bits(others, order) >= least - 1e-5


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
