"""k-mer frequencies against a slow count, and the regression on them."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.baselines.kmers import KmerLogistic, kmer_frequencies
from tests.golden.messages import fails

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
    np.testing.assert_allclose(found, [slow_frequencies(s, k) for s in sequences], atol=1e-7)


def test_large_k_is_sparse_and_the_same():
    rng = np.random.default_rng(0)
    sequences = ["".join(rng.choice(list("ACGTN"), 300, p=[0.24] * 4 + [0.04])) for _ in range(3)]
    found = kmer_frequencies([*sequences, "ACGNT"], 7)
    assert found.shape == (4, 4**7) and found.nnz < 4 * 300
    expected = [slow_frequencies(s, 7) for s in [*sequences, "ACGNT"]]
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-7)


def test_strands_are_told_apart():
    forward, reverse = kmer_frequencies(["AAC", "GTT"], 3)
    assert forward.argmax() == 1 and reverse.argmax() == 0b101111


@pytest.mark.parametrize("k", [0, 13])
def test_bad_k(k):
    with fails(ValueError):
        kmer_frequencies(["ACGT"], k)


@pytest.fixture(scope="module")
def windows() -> tuple[list[str], np.ndarray]:
    """Windows of which the positive ones have TATAAA planted at three places."""
    rng = np.random.default_rng(5)
    labels = np.tile([0, 1], 150)
    sequences = []
    for label in labels:
        bases = rng.choice(list("ACGT"), 200)
        for start in rng.integers(0, 190, 3) if label else ():
            bases[start : start + 6] = list("TATAAA")
        sequences.append("".join(bases))
    return sequences, labels


@pytest.mark.parametrize("k", [3, 7])
def test_planted_motif_is_learnt_and_repeatable(windows, k):
    from sklearn.metrics import roc_auc_score

    sequences, labels = windows
    first = KmerLogistic(k, seed=1).fit(sequences[:200], labels[:200]).predict(sequences[200:])
    again = KmerLogistic(k, seed=1).fit(sequences[:200], labels[:200]).predict(sequences[200:])
    assert first.tobytes() == again.tobytes()
    assert ((first >= 0) & (first <= 1)).all()
    assert roc_auc_score(labels[200:], first) > 0.75


def test_shuffled_labels_are_at_chance(windows):
    from sklearn.metrics import roc_auc_score

    sequences, labels = windows
    shuffled = np.random.default_rng(0).permutation(labels[:200])
    found = KmerLogistic(3, seed=1).fit(sequences[:200], shuffled).predict(sequences[200:])
    assert 0.3 < roc_auc_score(labels[200:], found) < 0.7


def test_a_prediction_does_not_depend_on_its_neighbours(windows):
    sequences, labels = windows
    model = KmerLogistic(3, seed=1).fit(sequences, labels)
    together = model.predict(sequences[:6])
    np.testing.assert_allclose(together, [model.predict([s])[0] for s in sequences[:6]], rtol=1e-5)
    assert model.predict([]).shape == (0,)


def test_bad_training_data(windows):
    sequences, labels = windows
    with fails(ValueError):
        KmerLogistic(3, 1).fit(sequences, labels[1:])
    with fails(ValueError):
        KmerLogistic(3, 1).fit(sequences, np.ones(300))
    with fails(ValueError):
        KmerLogistic(3, 1).predict(sequences)


def test_unbalanced_classes_leave_the_threshold_between_them() -> None:
    rng = np.random.default_rng(1)

    def windows(count: int, gc: float) -> list[str]:
        shares = [(1 - gc) / 2, gc / 2, gc / 2, (1 - gc) / 2]
        return ["".join(rng.choice(list("ACGT"), 100, p=shares)) for _ in range(count)]

    model = KmerLogistic(2, seed=1).fit(windows(60, 0.55) + windows(360, 0.45), [1] * 60 + [0] * 360)
    positive = (model.predict(windows(200, 0.55)) >= 0.5).mean()
    negative = (model.predict(windows(200, 0.45)) >= 0.5).mean()
    assert abs(positive + negative - 1) < 0.15 and positive > 0.7
