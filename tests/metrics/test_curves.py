"""Thinned ROC and precision–recall curves against scikit-learn's whole ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from bigbird_dna.metrics.auroc import Steps, precision_recall, thin_curve

LABELS_AND_SCORES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9)), min_size=2, max_size=60).filter(
    lambda rows: {label for label, _ in rows} == {0, 1}
)


@given(LABELS_AND_SCORES)
def test_short_curves_are_whole(rows):
    """Scikit-learn's corners lie on the ROC curve, and hold those of the other; areas are the same."""
    labels, scores = np.array(rows).T
    curve = thin_curve(Steps.of_rows(labels, scores), 100)
    x, y = curve.T / curve[-1][:, None]
    false, true, _ = metrics.roc_curve(labels, scores, drop_intermediate=False)
    np.testing.assert_allclose(np.interp(false + true, x + y, y), true, atol=1e-12)
    assert np.trapezoid(y, x) == pytest.approx(metrics.roc_auc_score(labels, scores))
    recall, precision = precision_recall(curve)
    expected = metrics.precision_recall_curve(labels, scores)
    points = {*zip(expected[1].round(9), expected[0].round(9), strict=True)}
    assert {*zip(recall[1:].round(9), precision[1:].round(9), strict=True)} <= points
    assert recall[0] == 0 and recall[-1] == 1 and (np.diff(recall) > 0).all()
    area = metrics.average_precision_score(labels, scores)
    assert np.diff(recall) @ precision[1:] == pytest.approx(area)


@pytest.mark.parametrize(("m", "n", "digits"), [(5, 8, 9), (900, 30_000, 9), (20_000, 500, 1), (3, 9_000, 0)])
def test_thinned_curve_stays_close(m, n, digits):
    y = np.repeat([1, 0], [m, n])
    x = np.round(np.random.default_rng(5).normal(size=m + n) + 1.5 * y, digits)
    steps = Steps.of_rows(y, x)
    points = 50
    curve = thin_curve(steps, points)
    assert len(curve) <= 6 * points
    assert curve[0].tolist() == [0, 0] and curve[-1].tolist() == [n, m]
    assert (np.diff(curve, axis=0) >= 0).all()
    # Every corner of the whole curve lies near the thinned one, measured along the diagonal.
    false, true, _ = metrics.roc_curve(y, x, drop_intermediate=False)
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
