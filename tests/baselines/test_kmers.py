"""Logistic regressions against scikit-learn and slow counts: k-mers, positions, open frames, tracks."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bigbird_dna.baselines.kmers import KmerTracks, kmer_frequencies, window_features
from bigbird_dna.baselines.promoters import (
    LogisticBaseline,
    composition_features,
    kmer_regression,
    position_features,
    position_regression,
)
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import reverse_complement
from tests.golden.messages import fails

LENGTH, MOTIF, OFFSET = 60, "TATAAA", 25
LABELS = np.tile([0, 0, 1, 0], 100)  # classes weigh alike all the same
TRAIN, TEST = slice(0, 300), slice(300, None)


def random_sequences(
    count: int = len(LABELS), seed: int = 5, letters: str = "ACGT"
) -> list[str]:
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list(letters), LENGTH)) for _ in range(count)]


# Features


SEQUENCE = st.text("ACGTN", max_size=40)


def slow_frequencies(sequence: str, k: int) -> list[float]:
    counts = Counter(sequence[i : i + k] for i in range(len(sequence) - k + 1))
    known = {kmer: n for kmer, n in counts.items() if "N" not in kmer}
    total = max(sum(known.values()), 1)
    return [known.get("".join(kmer), 0) / total for kmer in product("ACGT", repeat=k)]


@given(st.lists(SEQUENCE, min_size=1, max_size=4), st.integers(1, 4))
def test_frequencies_agree_with_a_slow_count(sequences, k):
    found = kmer_frequencies(iter(sequences), k)
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found, [slow_frequencies(s, k) for s in sequences], atol=1e-7
    )


def test_large_k_is_sparse_and_the_same():
    rng = np.random.default_rng(0)
    sequences = [
        "".join(rng.choice(list("ACGTN"), 300, p=[0.24] * 4 + [0.04])) for _ in range(3)
    ]
    found = kmer_frequencies([*sequences, "ACGNT"], 7)
    assert found.shape == (4, 4**7) and found.nnz < 4 * 300
    expected = [slow_frequencies(s, 7) for s in [*sequences, "ACGNT"]]
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-7)


def slow_one_hot(sequences: list[str]) -> np.ndarray:
    rows = [
        [float(base == letter) for base in sequence for letter in "ACGT"]
        for sequence in sequences
    ]
    length = len(sequences[0]) if sequences else 0
    return np.array(rows, np.float32).reshape(len(sequences), 4 * length)


@given(
    st.integers(0, 6).flatmap(
        lambda n: st.lists(st.text("ACGTN", min_size=n, max_size=n), max_size=4)
    )
)
def test_features_are_the_explicit_one_hot_matrix(sequences: list[str]) -> None:
    found = position_features(sequences)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.toarray(), slow_one_hot(sequences))


def test_features_are_the_same_on_both_strands_and_see_the_middle() -> None:
    made = random_sequences(5)
    features = window_features(made, (20, 60), 3)
    turned = window_features(
        [reverse_complement(window) for window in made], (20, 60), 3
    )
    np.testing.assert_allclose(features, turned, atol=1e-7)
    assert features.shape == (5, 2 * 32)
    np.testing.assert_allclose(features.sum(axis=1), 2, rtol=1e-5)
    outside = ["A" * 20 + window[20:40] + "C" * 20 for window in made]
    np.testing.assert_allclose(
        window_features(outside, (20, 60), 3)[:, :32], features[:, :32]
    )


@given(st.lists(SEQUENCE, max_size=4))
def test_composition_agrees_with_slow_counts(sequences: list[str]) -> None:
    expected = []
    for text in sequences:
        c, g, known = text.count("C"), text.count("G"), len(text) - text.count("N")
        ratio = text.count("CG") * known / (c * g) if c * g else 0
        expected.append(((c + g) / max(known, 1), ratio, np.log(max(len(text), 1))))
    found = composition_features(sequences)
    np.testing.assert_allclose(
        found, np.array(expected, np.float32).reshape(-1, 3), rtol=1e-6
    )


# Regressions


def regression(penalty: float) -> LogisticRegression:
    return LogisticRegression(
        C=penalty, class_weight="balanced", max_iter=1000, random_state=1
    )


def test_it_is_scikit_learn_s_regression_on_the_one_hot_matrix() -> None:
    sequences = random_sequences(letters="ACGTN")
    y = np.array([sequence[OFFSET] in "AC" for sequence in sequences]).astype(int)
    model = position_regression(seed=1).fit(sequences[TRAIN], y[TRAIN])
    expected = regression(model.pipeline[-1].C).fit(
        slow_one_hot(sequences[TRAIN]), y[TRAIN]
    )
    x = slow_one_hot(sequences[TEST])
    np.testing.assert_allclose(
        model.predict(sequences[TEST]), expected.predict_proba(x)[:, 1], atol=2e-3
    )
    assert model.pipeline[-1].C in model.penalties
    weights, intercept = model.coefficients()
    assert weights.shape == (4 * LENGTH,)
    # The logits are those of the coefficients, and their logistic function the probabilities.
    logits = x @ weights + intercept
    np.testing.assert_allclose(model.logits(sequences[TEST]), logits, atol=1e-4)
    np.testing.assert_allclose(
        model.predict(sequences[TEST]), 1 / (1 + np.exp(-logits)), atol=1e-5
    )


@pytest.mark.parametrize("k", [3, 5])
def test_k_mer_predictions_are_those_of_the_scaled_regression_to_the_byte(
    k: int,
) -> None:
    sequences, rng = random_sequences(), np.random.default_rng(7)
    for row in np.flatnonzero(LABELS):  # these have the motif anywhere
        offset = int(rng.integers(0, LENGTH - len(MOTIF) + 1))
        sequences[row] = (
            sequences[row][:offset] + MOTIF + sequences[row][offset + len(MOTIF) :]
        )
    model = kmer_regression(k, seed=1).fit(sequences[TRAIN], LABELS[TRAIN])
    # The penalty is chosen on a fifth of either class, drawn by the seed.
    rng, held_out, y = np.random.default_rng(1), np.zeros(300, bool), LABELS[TRAIN]
    for label in (0, 1):
        rows = np.flatnonzero(y == label)
        held_out[rng.permutation(rows)[: len(rows) // 5]] = True
    x, losses = kmer_frequencies(sequences[TRAIN], k), []
    for penalty in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0):
        fitted = make_pipeline(StandardScaler(), regression(penalty)).fit(
            x[~held_out], y[~held_out]
        )
        chosen = -np.log(fitted.predict_proba(x[held_out])[np.arange(60), y[held_out]])
        losses.append(
            (sum(chosen[y[held_out] == label].mean() for label in (0, 1)), penalty)
        )
    assert min(losses)[1] == model.pipeline[-1].C
    fitted = make_pipeline(StandardScaler(), regression(model.pipeline[-1].C)).fit(x, y)
    expected = fitted.predict_proba(kmer_frequencies(sequences[TEST], k))
    assert (
        model.predict(sequences[TEST]).tobytes()
        == expected[:, 1].astype(np.float64).tobytes()
    )


@pytest.mark.parametrize(
    "model", [position_regression(1), kmer_regression(3, 1), kmer_regression(7, 1)]
)
def test_a_prediction_does_not_depend_on_its_neighbors(model: LogisticBaseline) -> None:
    sequences = random_sequences()
    model.fit(sequences, LABELS)
    together = model.predict(sequences[:6])
    np.testing.assert_allclose(
        together, [model.predict([s])[0] for s in sequences[:6]], rtol=1e-5
    )
    assert model.predict([]).shape == model.logits([]).shape == (0,)


def test_lengths_must_agree() -> None:
    sequences = random_sequences(20)
    with fails(DataError):
        position_regression(1).fit([*sequences[:-1], "A" * 59], LABELS[:20])
    # A division of the letters by the number of windows is not enough.
    with fails(DataError):
        position_features(["A", "ACG"])


def test_fit_agrees_with_scikit_learn_at_the_chosen_penalty() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 6)).astype(np.float32)
    truth = rng.normal(size=(6, 3))
    y = (x @ truth + rng.logistic(size=(400, 3)) > 0).astype(np.uint8)
    model = KmerTracks().fit(x[:300], y[:300], x[300:], y[300:])
    probabilities = 1 / (1 + np.exp(-model.logits(x[300:])))
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
    assert np.isfinite(model.logits(x)).all()
