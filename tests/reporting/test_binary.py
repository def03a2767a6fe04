"""Figures of a binary classifier against scikit-learn; their intervals against a slow bootstrap."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score, matthews_corrcoef, roc_auc_score

from bigbird_dna.metrics.binary import CountedRows, binary_metrics
from bigbird_dna.metrics.curves import Steps, average_precision
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


@pytest.mark.parametrize("digits", [0, 1, 9])
@pytest.mark.parametrize(("m", "n"), [(1, 500), (40, 900), (700, 30), (300, 300)])
def test_average_precision_is_that_of_scikit_learn(m, n, digits):
    labels = np.repeat([1, 0], [m, n])
    scores = np.round(np.random.default_rng(m + digits).normal(size=m + n) + labels, digits)
    steps = Steps.of_rows(labels, scores)
    found = float(average_precision(steps.true, steps.false))
    assert found == pytest.approx(average_precision_score(labels, scores), abs=1e-12)


@settings(deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_figures_under_weights_are_those_of_repeated_rows(rows, random):
    labels, scores = columns(rows)
    weights = np.array([random.randint(0, 3) for _ in rows])
    weights[[labels.argmax(), labels.argmin()]] += 1
    y, p = np.repeat(labels, weights), np.repeat(scores, weights)
    expected = (
        average_precision_score(y, p),
        f1_score(y, p >= 0.5, zero_division=0),
        matthews_corrcoef(y, p >= 0.5),
    )
    counted = CountedRows.of(labels, scores, Steps.of_rows(labels, scores))
    found = counted.figures(np.stack([weights, 0 * weights, ~labels * 1]).astype(float))
    assert found[:, 0] == pytest.approx(expected)
    assert np.isnan(found[:, 1:]).all()


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


def test_same_seed_same_figures_and_another_seed_others():
    labels, scores = simulated(np.random.default_rng(1), n=40)
    assert binary_metrics(labels, scores, 1) == binary_metrics(labels, scores, 1)
    assert binary_metrics(labels, scores, 1).f1_low != binary_metrics(labels, scores, 2).f1_low


@pytest.mark.parametrize(
    ("labels", "note"), [([1, 1, 1], "no negatives"), ([0, 0], "no positives"), ([], "no measured row")]
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


def test_perfect_separation_is_no_certainty():
    found = binary_metrics([1, 1, 0, 0], [0.9, 0.8, 0.2, 0.1])
    assert (found.auroc, found.auroc_low, found.auroc_high) == (1, pytest.approx(0.025**0.5), 1)
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
    with fails(ValueError):
        binary_metrics(labels, scores)
    with fails(ValueError):
        binary_metrics([0, 1], [0.1, 0.2], groups=[1])
