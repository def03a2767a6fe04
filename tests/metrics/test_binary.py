"""Figures of a binary classifier against scikit-learn; their intervals against a slow bootstrap."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score, matthews_corrcoef, roc_auc_score

from bigbird_dna.metrics.auroc import UNDEFINED, Steps, WeightedRows, auroc, auroc_note
from bigbird_dna.metrics.resampling import binary_metrics, weighted_metrics
from tests.golden.messages import fails

# Few distinct scores, so that ties are common.
ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=4, max_size=40).filter(
    lambda rows: 2 <= sum(label for label, _ in rows) <= len(rows) - 2
)


def columns(rows):
    labels, scores = zip(*rows, strict=True)
    return np.array(labels), np.array(scores, dtype=float) / 6


def simulated(rng, n):
    """`n` pairs whose positives score one deviation above the negatives, as probabilities."""
    labels = np.tile([0, 1], n)
    return labels, 1 / (1 + np.exp(0.5 - rng.normal(size=2 * n) - labels))


@settings(deadline=None)
@given(ROWS)
def test_point_figures_agree_with_scikit_learn(rows):
    labels, scores = columns(rows)
    found = binary_metrics(labels, scores, resamples=20)
    called = scores >= 0.5
    assert found.n == len(rows) and found.positives == labels.sum()
    assert found.auroc == pytest.approx(roc_auc_score(labels, scores))
    assert found.auprc == pytest.approx(average_precision_score(labels, scores))
    assert found.f1 == pytest.approx(f1_score(labels, called, zero_division=0))
    assert found.mcc == pytest.approx(matthews_corrcoef(labels, called))


@settings(deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_figures_under_weights_are_those_of_repeated_rows(rows, random):
    labels, scores = columns(rows)
    weights = np.array([random.randint(0, 3) for _ in rows])
    weights[[labels.argmax(), labels.argmin()]] += 1
    y, p = np.repeat(labels, weights), np.repeat(scores, weights)
    expected = (
        roc_auc_score(y, p),
        average_precision_score(y, p),
        f1_score(y, p >= 0.5, zero_division=0),
        matthews_corrcoef(y, p >= 0.5),
    )
    counted = WeightedRows.of(labels, scores, Steps.of_rows(labels, scores))
    some = np.stack([weights, 0 * weights, ~labels * 1]).astype(float)
    found = [counted.aurocs(some), *weighted_metrics(counted, scores >= 0.5, some)]
    assert [row[0] for row in found] == pytest.approx(expected)
    assert np.isnan([row[1:] for row in found]).all()


def test_bootstrap_agrees_with_a_slow_one():
    rng = np.random.default_rng(4)
    labels, scores = simulated(rng, n=100)
    found = binary_metrics(labels, scores)
    slow = []
    for _ in range(400):
        rows = rng.integers(len(labels), size=len(labels))
        y, p = labels[rows], scores[rows]
        slow.append((average_precision_score(y, p), f1_score(y, p >= 0.5), matthews_corrcoef(y, p >= 0.5)))
    lows, highs = np.percentile(slow, [2.5, 97.5], axis=0)
    np.testing.assert_allclose((found.auprc_low, found.f1_low, found.mcc_low), lows, atol=0.025)
    np.testing.assert_allclose((found.auprc_high, found.f1_high, found.mcc_high), highs, atol=0.025)


def test_groups_are_drawn_together():
    """Every row twice, the copies in one group: the same figures and intervals as every row once."""
    labels, scores = simulated(np.random.default_rng(1), n=40)
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


@pytest.mark.parametrize("labels", [[1, 1, 1], [0, 0], []])
def test_one_class_has_no_metrics_but_a_note(labels):
    found = binary_metrics(labels, np.full(len(labels), 0.7))
    assert found.n == len(labels) and found.positives == sum(labels)
    assert found.note == auroc_note(sum(labels), len(labels) - sum(labels), UNDEFINED)
    assert all(math.isnan(value) for value in found[2:-1])


@pytest.mark.parametrize("scores", [[0.8, 0.9, 0.1, 0.2], [0.4, 0.3, 0.2, 0.1], [0.9, 0.8, 0.2, 0.1]])
@pytest.mark.parametrize("labels", [[1, 0, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0]])
def test_auroc_and_its_note_are_those_of_auroc(labels, scores):
    """Also without resamples, where it alone has an interval; F1 is 0 if nothing is called positive."""
    area = auroc(labels, scores)
    found = binary_metrics(labels, scores, resamples=0)
    assert found[2:5] == pytest.approx(area, nan_ok=True) and math.isnan(found.f1_low)
    assert found.note == auroc_note(sum(labels), 4 - sum(labels), area)
    assert max(scores) >= 0.5 or found.f1 == found.mcc == 0


@pytest.mark.parametrize(
    ("labels", "scores", "groups"),
    [
        ([0, 2], [0.1, 0.2], None),
        ([0, 1], [0.1, math.nan], None),
        ([0, 1], [0.1], None),
        ([0, 1], [0.1, 0.2], [1]),
    ],
)
def test_bad_input(labels, scores, groups):
    with fails(ValueError):
        binary_metrics(labels, scores, groups=groups)
