"""The k-mer baseline of chromatin models."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from bigbird_dna.baselines.kmers import KmerTracks, window_features
from bigbird_dna.genome.sequence import reverse_complement


def windows(count: int, size: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list("ACGT"), size)) for _ in range(count)]


def test_features_are_the_same_on_both_strands_and_see_the_middle() -> None:
    made = windows(5, 60, 0)
    features = window_features(made, (20, 60), 3)
    turned = window_features([reverse_complement(window) for window in made], (20, 60), 3)
    np.testing.assert_allclose(features, turned, atol=1e-7)
    assert features.shape == (5, 2 * 32)
    np.testing.assert_allclose(features.sum(axis=1), 2, rtol=1e-5)
    outside = ["A" * 20 + window[20:40] + "C" * 20 for window in made]
    np.testing.assert_allclose(window_features(outside, (20, 60), 3)[:, :32], features[:, :32])


def test_fit_agrees_with_scikit_learn_at_the_chosen_penalty() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 6)).astype(np.float32)
    truth = rng.normal(size=(6, 3))
    y = (x @ truth + rng.logistic(size=(400, 3)) > 0).astype(np.uint8)
    model = KmerTracks().fit(x[:300], y[:300], x[300:], y[300:])
    probabilities = model.predict(x[300:])
    standard = (x - x[:300].mean(0)) / x[:300].std(0, ddof=1)
    for track in range(3):
        peer = LogisticRegression(C=1 / (300 * model.penalties[track]), tol=1e-8)
        peer.fit(standard[:300], y[:300, track])
        expected = peer.predict_proba(standard[300:])[:, 1]
        np.testing.assert_allclose(probabilities[:, track], expected, atol=2e-3)


def test_a_track_without_positives_in_validation_gets_the_strongest_penalty() -> None:
    x = np.random.default_rng(2).normal(size=(50, 4)).astype(np.float32)
    y = np.zeros((50, 2), np.uint8)
    y[:10] = 1
    valid = np.zeros((20, 2), np.uint8)
    valid[:5, 0] = 1
    model = KmerTracks().fit(x, y, x[:20], valid)
    assert model.penalties[1] == pytest.approx(1e-2)
    assert np.isfinite(model.predict(x)).all()
