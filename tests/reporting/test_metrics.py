"""Metrics against scikit-learn and slow oracles; intervals against the bootstrap."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    matthews_corrcoef,
    roc_auc_score,
)

from bigbird_dna.reporting.metrics.auroc import Z95, auroc, auroc_difference
from bigbird_dna.reporting.metrics.binary import average_precision, binary_metrics

# Few distinct scores, so that ties are common.
ROWS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 6)), min_size=4, max_size=40
).filter(lambda rows: 2 <= sum(label for label, _, _ in rows) <= len(rows) - 2)


def slow_components(labels, scores):
    """V10 and V01 of DeLong et al., equations 5 and 6: every pair in turn."""
    positives = [s for label, s in zip(labels, scores, strict=True) if label]
    negatives = [s for label, s in zip(labels, scores, strict=True) if not label]
    kernel = np.array([[(x > y) + 0.5 * (x == y) for y in negatives] for x in positives])
    return kernel.mean(), kernel.mean(axis=1), kernel.mean(axis=0)


def slow_variance(v10, v01):
    return np.var(v10, ddof=1) / len(v10) + np.var(v01, ddof=1) / len(v01)


def arrays(rows):
    labels, first, second = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    return labels, first / 6, second / 6


@given(ROWS)
def test_delong_agrees_with_all_pairs(rows):
    labels, scores, _ = arrays(rows)
    area, v10, v01 = slow_components(labels, scores)
    half = Z95 * math.sqrt(slow_variance(v10, v01))
    expected = area, max(area - half, 0), min(area + half, 1)
    np.testing.assert_allclose(auroc(labels, scores), expected, atol=1e-12)
    np.testing.assert_allclose(area, roc_auc_score(labels, scores), atol=1e-12)


@given(ROWS)
def test_paired_difference_agrees_with_all_pairs(rows):
    labels, first, second = arrays(rows)
    a, a10, a01 = slow_components(labels, first)
    b, b10, b01 = slow_components(labels, second)
    half = Z95 * math.sqrt(slow_variance(a10 - b10, a01 - b01))
    expected = a - b, max(a - b - half, -1), min(a - b + half, 1)
    np.testing.assert_allclose(auroc_difference(labels, first, second), expected, atol=1e-12)


@given(ROWS)
def test_order_scale_and_direction(rows):
    labels, scores, _ = arrays(rows)
    value, low, high = auroc(labels, scores)
    np.testing.assert_allclose(auroc(labels[::-1], np.exp(scores[::-1])), (value, low, high))
    np.testing.assert_allclose(auroc(labels, -scores), (1 - value, 1 - high, 1 - low), atol=1e-12)
    assert auroc_difference(labels, scores, scores) == (0, 0, 0)


def simulated(rng, n=150, lift=1.0):
    labels = np.tile([0, 1], n)
    hidden = rng.normal(size=2 * n)
    first = hidden + lift * labels
    second = hidden + rng.normal(size=2 * n) + lift * labels
    return labels, first, second


def test_delong_agrees_with_the_bootstrap():
    rng = np.random.default_rng(2)
    labels, first, second = simulated(rng)
    samples = []
    for _ in range(500):
        # Classes resampled apart, as DeLong's variance takes their sizes as fixed.
        rows = np.concatenate(
            [rng.choice(np.flatnonzero(labels == label), 150) for label in (0, 1)]
        )
        areas = [roc_auc_score(labels[rows], scores[rows]) for scores in (first, second)]
        samples.append((areas[0], areas[0] - areas[1]))
    spread = np.std(samples, axis=0) * Z95
    for estimate, half in zip(
        (auroc(labels, first), auroc_difference(labels, first, second)), spread, strict=True
    ):
        assert (estimate.high - estimate.low) / 2 == pytest.approx(half, rel=0.15)


def test_interval_covers_the_truth():
    """AUROC of two normals one deviation apart is Φ(1/√2) = 0.7602; 95 % ± 2.5 of intervals hold it."""
    rng = np.random.default_rng(0)
    held = []
    for _ in range(400):
        labels, first, _ = simulated(rng, n=60)
        estimate = auroc(labels, first)
        held.append(estimate.low <= 0.76025 <= estimate.high)
    assert 0.91 < np.mean(held) < 0.98


def test_large_input_is_quick():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 1_000_000)
    assert auroc(labels, rng.random(1_000_000)).value == pytest.approx(0.5, abs=0.005)


@settings(deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_average_precision_under_weights_is_that_of_repeated_rows(rows, random):
    labels, scores, _ = arrays(rows)
    weights = np.array([random.randint(0, 3) for _ in rows], dtype=float)
    weights[np.flatnonzero(labels)[0]] = 1
    repeats = weights.astype(int)
    expected = average_precision_score(np.repeat(labels, repeats), np.repeat(scores, repeats))
    found = average_precision(labels.astype(bool), scores, np.stack([weights, 0 * weights]))
    assert found[0] == pytest.approx(expected)
    assert math.isnan(found[1])


@settings(deadline=None)
@given(ROWS)
def test_point_figures_agree_with_scikit_learn(rows):
    labels, scores, _ = arrays(rows)
    found = binary_metrics(labels, scores, resamples=20)
    called = scores >= 0.5
    assert found.n == len(rows) and found.positives == labels.sum()
    assert found.auroc == pytest.approx(roc_auc_score(labels, scores))
    assert found.auprc == pytest.approx(average_precision_score(labels, scores))
    assert found.f1 == pytest.approx(f1_score(labels, called, zero_division=0))
    assert found.mcc == pytest.approx(matthews_corrcoef(labels, called))


def test_bootstrap_agrees_with_a_slow_one():
    rng = np.random.default_rng(4)
    labels, hidden, _ = simulated(rng, n=100)
    scores = 1 / (1 + np.exp(0.5 - hidden))
    found = binary_metrics(labels, scores)
    slow = []
    for _ in range(400):
        rows = rng.integers(len(labels), size=len(labels))
        y, p = labels[rows], scores[rows]
        slow.append(
            (average_precision_score(y, p), f1_score(y, p >= 0.5), matthews_corrcoef(y, p >= 0.5))
        )
    lows, highs = np.percentile(slow, [2.5, 97.5], axis=0)
    np.testing.assert_allclose((found.auprc_low, found.f1_low, found.mcc_low), lows, atol=0.025)
    np.testing.assert_allclose((found.auprc_high, found.f1_high, found.mcc_high), highs, atol=0.025)


def test_groups_are_drawn_together():
    """Every row twice, the copies in one group: the same figures and intervals as every row once."""
    labels, scores, _ = simulated(np.random.default_rng(1), n=40)
    scores = 1 / (1 + np.exp(-scores))
    groups = np.tile([f"pair {i}" for i in range(len(labels))], 2)
    order = np.unique(groups[: len(labels)], return_inverse=True)[1]
    once = binary_metrics(labels, scores, seed=3, groups=order)
    twice = binary_metrics(np.tile(labels, 2), np.tile(scores, 2), seed=3, groups=groups)
    apart = binary_metrics(np.tile(labels, 2), np.tile(scores, 2), seed=3)
    for name in ("auprc", "f1", "mcc"):
        for end in ("", "_low", "_high"):
            assert getattr(twice, name + end) == pytest.approx(getattr(once, name + end))
        widths = [getattr(m, f"{name}_high") - getattr(m, f"{name}_low") for m in (twice, apart)]
        assert widths[0] > 1.15 * widths[1]


def test_same_seed_same_figures_and_another_seed_others():
    labels, scores, _ = simulated(np.random.default_rng(1), n=40)
    scores = 1 / (1 + np.exp(-scores))
    assert binary_metrics(labels, scores, 1) == binary_metrics(labels, scores, 1)
    assert binary_metrics(labels, scores, 1).f1_low != binary_metrics(labels, scores, 2).f1_low


@pytest.mark.parametrize(
    ("labels", "note"), [([1, 1, 1], "only positives"), ([0, 0], "no positives"), ([], "no rows")]
)
def test_one_class_has_no_figures_but_a_note(labels, note):
    found = binary_metrics(labels, np.full(len(labels), 0.7))
    assert found.n == len(labels) and found.positives == sum(labels)
    assert found.note == note
    assert all(math.isnan(value) for value in found[2:-1])


def test_a_single_positive_has_an_auroc_without_interval():
    found = binary_metrics([1, 0, 0, 0], [0.8, 0.9, 0.1, 0.2])
    assert found.auroc == pytest.approx(2 / 3)
    assert math.isnan(found.auroc_low)
    assert found.note == "only one positive: no interval of AUROC"


def test_perfect_separation_says_that_there_is_no_spread():
    found = binary_metrics([1, 1, 0, 0], [0.9, 0.8, 0.2, 0.1])
    assert (found.auroc, found.auroc_low, found.auroc_high) == (1, 1, 1)
    assert "separated" in found.note


def test_nothing_called_positive_gives_zero():
    found = binary_metrics([1, 0, 1, 0], [0.4, 0.3, 0.2, 0.1])
    assert found.f1 == 0 and found.mcc == 0


def test_without_resamples_only_auroc_has_an_interval():
    found = binary_metrics([1, 0, 1, 0], [0.4, 0.3, 0.2, 0.1], resamples=0)
    assert math.isnan(found.f1_low) and not math.isnan(found.auroc_low)


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([0, 2], [0.1, 0.2], "labels must be 0 or 1"),
        ([0, 1], [0.1, math.nan], "NaN"),
        ([0, 1], [0.1], "one length"),
    ],
)
def test_bad_input(labels, scores, message):
    with pytest.raises(ValueError, match=message):
        binary_metrics(labels, scores)
    with pytest.raises(ValueError, match="groups"):
        binary_metrics([0, 1], [0.1, 0.2], groups=[1])
