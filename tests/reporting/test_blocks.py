"""Bits per base with intervals over blocks: against draws made one by one, and for what they promise."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.metrics import resampling as module
from bigbird_dna.metrics.resampling import bits_per_base
from tests.golden.messages import fails


def tokens(blocks, seed, *, spread=0.2, each=30):
    """Tokens of blocks that are easy or hard as a whole, judged by a model and a baseline a little above."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(blocks), each)
    bases = rng.integers(1, 9, len(ids))
    rate = 1.9 + rng.normal(0, spread, blocks)[ids] + rng.normal(0, 0.3, len(ids))
    bits = {"model": bases * rate, "baseline": bases * (rate + 0.02 + rng.normal(0, 0.05, len(ids)))}
    return bits, bases, ids


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 9), st.integers(0, 99), st.sampled_from([1, 20, 1 << 22]))
def test_draws_are_those_made_one_by_one(blocks, seed, chunk):
    bits, bases, ids = tokens(blocks, seed, each=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", chunk)
        found = bits_per_base(bits, bases, ids * 7 - 3, "model", seed=seed, resamples=50)
    rng = np.random.default_rng(seed)
    rates = {name: [] for name in bits}
    for _ in range(50):
        drawn = rng.integers(blocks, size=blocks)
        rows = np.concatenate([np.flatnonzero(ids == block) for block in drawn])
        for name, row in bits.items():
            rates[name].append(row[rows].sum() / bases[rows].sum())
    for name, row in bits.items():
        value, low, high = found[name].bits_per_base
        assert value == pytest.approx(row.sum() / bases.sum())
        assert (low, high) == pytest.approx(tuple(np.percentile(rates[name], [2.5, 97.5])))
    paired = np.subtract(rates["model"], rates["baseline"])
    assert found["baseline"].difference[1:] == pytest.approx(tuple(np.percentile(paired, [2.5, 97.5])))
    assert all(map(math.isnan, found["model"].difference))


def test_the_paired_interval_is_the_narrower_one():
    found = bits_per_base(*tokens(60, 1), "model")
    width = found["model"].bits_per_base.high - found["model"].bits_per_base.low
    paired = found["baseline"].difference
    assert paired.high - paired.low < width / 4
    assert paired.low < -0.02 < paired.high < 0


def test_intervals_cover_the_truth():
    """In about 95 % of samples, where tokens drawn one by one would do so in half of them."""
    covered = alone = 0
    for seed in range(200):
        bits, bases, ids = tokens(50, seed, spread=0.3)
        low, high = bits_per_base(bits, bases, ids, "model", resamples=200)["model"].bits_per_base[1:]
        covered += low < 1.9 < high
        rows = np.arange(len(ids))
        low, high = bits_per_base(bits, bases, rows, "model", resamples=60)["model"].bits_per_base[1:]
        alone += low < 1.9 < high
    assert 178 <= covered <= 199
    assert alone < 150


def test_the_same_seed_gives_the_same_interval():
    asked = tokens(20, 0)
    assert bits_per_base(*asked, "model", seed=3) == bits_per_base(*asked, "model", seed=3)
    assert bits_per_base(*asked, "model", seed=3) != bits_per_base(*asked, "model", seed=4)


def test_one_block_has_no_interval():
    bits, bases, ids = tokens(1, 0)
    found = bits_per_base(bits, bases, ids, "model")["baseline"]
    assert found.bits_per_base.value > 0 and math.isnan(found.bits_per_base.low)
    assert found.difference.value < 0 and math.isnan(found.difference.high)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({"a": [1.0]}, [1], [0], "model"), "no predictor 'model' among a"),
        (({"a": [1.0, 2.0]}, [1], [0], "a"), r"a \(2,\) and blocks \(1,\) must be two rows"),
        (({"a": [math.nan]}, [1], [0], "a"), "a has a figure that is not finite"),
        (({"a": []}, [], [], "a"), "at least one hidden token"),
    ],
)
def test_what_is_refused(arguments, message):
    with fails(ValueError):
        bits_per_base(*arguments)
