"""AUROC, DeLong's interval, average precision and thinned curves against slow and foreign oracles."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from bigbird_dna.reporting.metrics import auroc as plain
from bigbird_dna.reporting.metrics.steps import Steps, auroc, average_precision, logit_interval
from bigbird_dna.reporting.tracks.curves import decode_curve, encode_curve, thin_curve

SCORES = st.integers(0, 12)
PROPERTY = settings(max_examples=300, deadline=None)


def steps_of(y: np.ndarray, x: np.ndarray) -> Steps:
    return Steps.of(x[y == 1], x[y == 0])


def binormal(rng: np.random.Generator, m: int, n: int, shift: float, digits: int = 9):
    y = np.repeat([1, 0], [m, n])
    return y, np.round(rng.normal(size=m + n) + shift * y, digits).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("digits", [0, 1, 9])
@pytest.mark.parametrize(("m", "n"), [(1, 500), (40, 900), (700, 30), (300, 300)])
def test_figures_are_those_of_scikit_learn(m, n, digits, dtype):
    y, x = binormal(np.random.default_rng(m + digits), m, n, 1.0, digits)
    x = x.astype(dtype)
    steps = steps_of(y, x)
    assert auroc(steps).value == pytest.approx(roc_auc_score(y, x), abs=1e-12)
    assert average_precision(steps) == pytest.approx(average_precision_score(y, x), abs=1e-12)


@PROPERTY
@given(st.lists(SCORES, min_size=1, max_size=30), st.lists(SCORES, min_size=1, max_size=30))
def test_area_and_variance_count_pairs(positives, negatives):
    """The definition, pair by pair, ties one half; DeLong's variance from the components' own."""
    p, q = np.array(positives, float), np.array(negatives, float)
    wins = (p[:, None] > q) + 0.5 * (p[:, None] == q)
    found = auroc(Steps.of(p.copy(), q.copy()))
    assert found.value == pytest.approx(wins.mean(), abs=1e-12)
    if min(wins.shape) == 1:
        assert math.isnan(found.low) and math.isnan(found.high)
        return
    variance = wins.mean(1).var(ddof=1) / len(p) + wins.mean(0).var(ddof=1) / len(q)
    expected = logit_interval(found.value, variance)
    assert found == pytest.approx(expected, abs=1e-9)
    assert 0 <= found.low <= found.value <= found.high <= 1


@PROPERTY
@given(st.lists(st.tuples(st.booleans(), SCORES), min_size=4, max_size=40))
def test_plain_interval_has_the_same_variance(rows):
    """The interval of other reports, from components row by row, is the same before the logit."""
    y, x = np.array([r[0] for r in rows]).astype(int), np.array([r[1] for r in rows], float)
    other = plain.auroc(y, x)
    if math.isnan(other.low) or other.value in (0, 1) or other.low == 0 or other.high == 1:
        return
    variance = ((other.high - other.value) / plain.Z95) ** 2
    expected = logit_interval(other.value, variance)
    assert auroc(steps_of(y, x)) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(("m", "n", "shift"), [(60, 400, 1.2), (150, 1000, 2.3), (200, 200, 0.3)])
def test_interval_agrees_with_a_bootstrap(m, n, shift):
    rng = np.random.default_rng(7)
    y, x = binormal(rng, m, n, shift, 2)
    found = auroc(steps_of(y, x))
    drawn = [
        auroc(Steps.of(rng.choice(x[y == 1], m), rng.choice(x[y == 0], n))).value
        for _ in range(2000)
    ]
    low, high = np.percentile(drawn, [2.5, 97.5])
    width = high - low
    assert found.low == pytest.approx(low, abs=0.12 * width)
    assert found.high == pytest.approx(high, abs=0.12 * width)


def test_interval_near_one_covers_the_truth():
    """Few positives and an AUROC of 0.99: the logit's interval covers, the plain one does not."""
    rng = np.random.default_rng(2)
    shift = 2.326347874 * math.sqrt(2)
    logit = cut = 0
    for _ in range(800):
        y, x = binormal(rng, 10, 200, shift)
        found, other = auroc(steps_of(y, x)), plain.auroc(y, x)
        logit += found.low <= 0.99 <= found.high
        cut += other.low <= 0.99 <= other.high
    assert logit / 800 > 0.84 > cut / 800


def test_separated_classes_have_no_spread():
    assert auroc(Steps.of(np.array([3.0, 4.0]), np.array([1.0, 2.0]))) == (1, 1, 1)
    assert auroc(Steps.of(np.array([1.0, 2.0]), np.array([3.0, 4.0]))) == (0, 0, 0)
    assert auroc(Steps.of(np.ones(5), np.ones(7))).value == 0.5


def test_infinite_scores_are_ranked():
    x = np.array([np.inf, 1.0, 0.0, -np.inf, np.inf], np.float32)
    y = np.array([1, 1, 0, 0, 0])
    finite = np.clip(x, -9, 9)
    assert auroc(steps_of(y, x)).value == pytest.approx(roc_auc_score(y, finite), abs=1e-12)


@pytest.mark.parametrize(
    ("m", "n", "digits"), [(5, 8, 9), (900, 30_000, 9), (20_000, 500, 1), (3, 9_000, 0)]
)
def test_thinned_curve_stays_close(m, n, digits):
    y, x = binormal(np.random.default_rng(5), m, n, 1.5, digits)
    steps = steps_of(y, x)
    points = 50
    curve = thin_curve(steps, points)
    assert len(curve) <= 6 * points
    assert curve[0].tolist() == [0, 0] and curve[-1].tolist() == [n, m]
    assert (np.diff(curve, axis=0) >= 0).all()
    np.testing.assert_array_equal(decode_curve(encode_curve(curve)), curve)
    # Every corner of the whole curve lies near the thinned one, measured along the diagonal.
    false, true, _ = roc_curve(y, x, drop_intermediate=False)
    rates = curve / (n, m)
    at = np.interp(false + true, rates.sum(axis=1), rates[:, 1])
    assert np.abs(at - true).max() <= 2 / points
    # Kept corners are corners of the whole curve.
    whole = set(zip(np.rint(false * n).astype(int), np.rint(true * m).astype(int), strict=True))
    assert {tuple(corner) for corner in curve[1:-1:]} - whole == set()
    # Precision where a corner first reaches its recall is that of the whole curve there.
    first = np.append(False, curve[1:, 1] > curve[:-1, 1])
    order = np.sort(x[y == 0])
    ranked = np.sort(x[y == 1])[::-1]
    for f, t in curve[first]:
        assert f == n - np.searchsorted(order, ranked[t - 1], "left")


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 300)), max_size=30))
def test_encoding_is_read_back(steps):
    curve = np.array([(0, 0), *steps], np.int64).cumsum(axis=0)
    np.testing.assert_array_equal(decode_curve(encode_curve(curve)), curve)
