"""AUROC, its interval and differences of two, against their definitions, pair by pair, and samples."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import binomtest, norm, rankdata
from sklearn.metrics import average_precision_score, roc_auc_score

from bigbird_dna.metrics.auroc import Z95, Steps, auroc, auroc_difference, auroc_note, average_precision
from tests.golden.messages import fails

# Few distinct scores, so that ties are common.
ROWS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=40
).filter(lambda rows: 1 <= sum(label for label, _, _ in rows) <= len(rows) - 1)
PROPERTY = settings(max_examples=300, deadline=None)


def columns(rows):
    return (np.array(column, dtype=float) for column in zip(*rows, strict=True))


def components(labels, scores):
    """V10 and V01 of DeLong et al., equations 5 and 6: every pair in turn."""
    p, q = scores[labels == 1], scores[labels == 0]
    wins = (p[:, None] > q) + 0.5 * (p[:, None] == q)
    return wins.mean(axis=1), wins.mean(axis=0)


def variance(v10, v01):
    return v10.var(ddof=1) / len(v10) + v01.var(ddof=1) / len(v01)


def plain(labels, scores):
    """The interval symmetric about the area, cut to 0 and 1."""
    v10, v01 = components(labels, scores)
    half = Z95 * math.sqrt(variance(v10, v01))
    return max(v10.mean() - half, 0), min(v10.mean() + half, 1)


def binormal(rng, m, n, area):
    """Labels and scores of two normal distributions with this AUROC."""
    labels = np.repeat([1, 0], [m, n])
    return labels, rng.normal(size=m + n) + labels * norm.ppf(area) * math.sqrt(2)


@PROPERTY
@given(ROWS)
def test_area_and_interval_count_pairs(rows):
    labels, scores, _ = columns(rows)
    v10, v01 = components(labels, scores)
    found = auroc(labels, scores)
    assert found.value == pytest.approx(v10.mean(), abs=1e-12)
    k = min(len(v10), len(v01))
    if k == 1 or len(set(scores)) == 1:
        assert math.isnan(found.low) and math.isnan(found.high)
    elif found.value in (0, 1):
        exact = binomtest(round(found.value * k), k).proportion_ci(0.95, "exact")
        assert found[1:] == pytest.approx(tuple(exact))
    else:
        slope = 1 / (found.value * (1 - found.value))
        half = norm.ppf(0.975) * slope * math.sqrt(variance(v10, v01))
        expected = expit(logit(found.value) - half), expit(logit(found.value) + half)
        assert found[1:] == pytest.approx(expected, abs=1e-9)
        assert 0 <= found.low <= found.value <= found.high <= 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("digits", [0, 1, 9])
@pytest.mark.parametrize(("m", "n"), [(1, 500), (40, 900), (700, 30), (300, 300), (300_000, 300_000)])
def test_areas_are_those_of_scikit_learn(m, n, digits, dtype):
    labels, scores = binormal(np.random.default_rng(m + digits), m, n, 0.76)
    scores = np.round(scores, digits).astype(dtype)
    assert auroc(labels, scores).value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    steps = Steps.of_rows(labels, scores)
    precision = float(average_precision(steps.true, steps.false))
    assert precision == pytest.approx(average_precision_score(labels, scores), abs=1e-12)


@PROPERTY
@given(ROWS)
def test_paired_difference_counts_pairs(rows):
    labels, first, second = columns(rows)
    (a10, a01), (b10, b01) = components(labels, first), components(labels, second)
    found = auroc_difference(labels, first, second)
    assert found.value == pytest.approx(a10.mean() - b10.mean(), abs=1e-12)
    if min(len(a10), len(a01)) == 1:
        assert math.isnan(found.low) and math.isnan(found.high)
        return
    if max(np.ptp(a10 - b10), np.ptp(a01 - b01)) < 1e-12:
        alike = (rankdata(first, "dense") == rankdata(second, "dense")).all()
        expected = (0, 0) if alike else (math.nan, math.nan)
        assert found[1:] == pytest.approx(expected, nan_ok=True)
        return
    half = Z95 * math.sqrt(variance(a10 - b10, a01 - b01))
    expected = max(found.value - half, -1), min(found.value + half, 1)
    assert found[1:] == pytest.approx(expected, abs=1e-12)


@given(ROWS)
def test_order_scale_and_direction(rows):
    labels, scores, _ = columns(rows)
    value, low, high = auroc(labels, scores)
    np.testing.assert_allclose(auroc(labels[::-1], np.exp(scores[::-1])), (value, low, high))
    np.testing.assert_allclose(auroc(labels, -scores), (1 - value, 1 - high, 1 - low), atol=1e-12)
    np.testing.assert_allclose(auroc(1 - labels, -scores), (value, low, high), atol=1e-12)
    assert auroc_difference(labels, scores, scores).value == 0


@pytest.mark.parametrize(("m", "n", "area"), [(60, 400, 0.8), (150, 1000, 0.95), (200, 200, 0.58)])
def test_intervals_agree_with_a_bootstrap(m, n, area):
    rng = np.random.default_rng(7)
    labels, first = binormal(rng, m, n, area)
    second = first + rng.normal(size=m + n)
    samples = []
    for _ in range(1500):
        # Classes resampled apart, as DeLong's variance takes their sizes as fixed.
        rows = np.concatenate([rng.choice(np.flatnonzero(labels == y), (m, n)[1 - y]) for y in (1, 0)])
        areas = [auroc(labels[rows], scores[rows]).value for scores in (first, second)]
        samples.append((areas[0], areas[0] - areas[1]))
    lows, highs = np.percentile(samples, [2.5, 97.5], axis=0)
    found = auroc(labels, first), auroc_difference(labels, first, second)
    for estimate, low, high in zip(found, lows, highs, strict=True):
        assert estimate.low == pytest.approx(low, abs=0.12 * (high - low))
        assert estimate.high == pytest.approx(high, abs=0.12 * (high - low))


@pytest.mark.parametrize(
    ("m", "n", "area", "least", "most_plain"),
    [(60, 60, 0.76, 0.93, 1), (10, 200, 0.99, 0.91, 0.72), (5, 500, 0.95, 0.74, 0.72)],
)
def test_interval_covers_the_truth_more_often_than_the_plain_one(m, n, area, least, most_plain):
    """With few positives and an AUROC near 1 both err on the narrow side, the plain one by far more."""
    rng = np.random.default_rng(2)
    covered = np.zeros(2)
    for _ in range(1000):
        labels, scores = binormal(rng, m, n, area)
        for number, (low, high) in enumerate((auroc(labels, scores)[1:], plain(labels, scores))):
            covered[number] += low <= area <= high
    ours, theirs = covered / 1000
    assert least < ours < 0.98
    assert theirs < min(ours, most_plain)


@pytest.mark.parametrize(
    ("labels", "scores", "expected", "note"),
    [
        ([1, 1, 0, 0], [3, 4, 1, 2], (1, math.sqrt(0.025), 1), "fully separated"),
        ([1, 1, 0, 0, 0], [1, 2, 3, 4, 5], (0, 0, 1 - math.sqrt(0.025)), "fully separated"),
        ([1, 1, 0, 0], [5, 5, 5, 5], (0.5, math.nan, math.nan), "all scores are equal"),
        ([1, 0, 0], [2, 3, 1], (0.5, math.nan, math.nan), "only one positive"),
        ([1, 1, 0], [2, 3, 1], (1, math.nan, math.nan), "only one negative"),
        ([1, 1], [2, 3], (math.nan,) * 3, "no negatives"),
        ([0, 0], [2, 3], (math.nan,) * 3, "no positives"),
        ([], [], (math.nan,) * 3, "no measured row"),
        ([1, 0, 1, 0], [2, 1, 0, 3], None, ""),
    ],
)
def test_where_the_variance_says_nothing(labels, scores, expected, note):
    found = auroc(labels, scores)
    if expected:
        assert found == pytest.approx(expected, nan_ok=True)
    else:
        assert found.low < found.value < found.high
    text = auroc_note(sum(labels), len(labels) - sum(labels), found)
    assert text.startswith(note) if note != "fully separated" else note in text
    assert bool(text) == bool(note)


@pytest.mark.parametrize(
    ("first", "second", "value", "ends"),
    [
        ([3, 4, 1, 2], [5, 5, 5, 5], 0.5, math.nan),  # separated, and a constant
        ([3, 4, 1, 2], [1, 2, 3, 4], 1, math.nan),
        ([3, 4, 1, 2], [4, 3, 2, 1], 0, math.nan),  # both separated, each in its own order
        ([3, 4, 1, 2], [30, 40, 10, 20], 0, 0),
        ([5, 5, 5, 5], [2, 2, 2, 2], 0, 0),
    ],
)
def test_a_difference_without_variance_is_certain_of_one_ranking_alone(first, second, value, ends):
    found = auroc_difference([1, 1, 0, 0], first, second)
    assert found == pytest.approx((value, ends, ends), nan_ok=True)
    assert all(map(math.isnan, auroc_difference([1] * 4, first, second)))


def test_infinite_scores_are_ranked():
    scores, labels = np.array([np.inf, 1.0, 0.0, -np.inf, np.inf], np.float32), np.array([1, 1, 0, 0, 0])
    expected = roc_auc_score(labels, np.clip(scores, -9, 9))
    assert auroc(labels, scores).value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("labels", "scores"), [([0, 1], [0.1, math.nan]), ([0, 1], [0.1]), ([[0, 1]], [[0.1, 0.2]])]
)
def test_bad_rows(labels, scores):
    for call in (auroc, lambda y, x: auroc_difference(y, x, x)):
        with fails(ValueError):
            call(labels, scores)
