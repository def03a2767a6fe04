"""Scores of comparators as probabilities: by the line that calibrates models, on any scale."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from bigbird_dna.calibration.fitting import smoothed
from bigbird_dna.papers.comparators.interface import fit_sigmoid
from tests.calibration.sources import mixture


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e-4, 30.0), (500.0, -2e4)])
def test_it_is_a_logistic_regression_on_smoothed_labels(scale: float, shift: float) -> None:
    rows = mixture(500, 0.2, seed=3)
    scores = scale * rows.raw.astype(float) + shift
    x, t = ((scores - scores.mean()) / scores.std())[:, None], smoothed(rows.labels == 1)
    oracle = LogisticRegression(C=1e3, tol=1e-10, max_iter=10_000)
    oracle.fit(np.concatenate([x, x]), np.repeat([1, 0], len(x)), np.concatenate([t, 1 - t]))
    found = fit_sigmoid(scores, rows.labels.astype(np.uint8))(scores)
    np.testing.assert_allclose(found, oracle.predict_proba(x)[:, 1], atol=1e-3)


def test_scores_that_tell_classes_apart_have_a_slope_as_well() -> None:
    scores = np.concatenate([np.linspace(-2, -1, 30), np.linspace(1, 2, 30)])
    found = fit_sigmoid(scores, np.repeat([0, 1], 30).astype(np.uint8))(scores)
    assert (np.diff(found) > 0).all() and found[:30].max() < 0.1 and found[30:].min() > 0.9


@settings(deadline=None)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=30), st.integers(0, 1000), st.booleans())
def test_a_higher_score_is_never_less_likely(labels: list[int], seed: int, same: bool) -> None:
    """Whatever the labels say: of one class, against the scores, or with scores that are all the same."""
    scores = np.full(len(labels), 0.3) if same else np.random.default_rng(seed).normal(size=len(labels))
    found = fit_sigmoid(scores, np.array(labels, np.uint8))
    assert found.slope > 0
    values = found(np.sort(scores))
    assert np.isfinite(values).all() and (np.diff(values) >= 0).all()
