"""Gapped k-mers without a list of them, against a list of them; and the machine that learns from them."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from bigbird_dna.baselines.windows import TextWindows
from bigbird_dna.calibration.maps import smoothed
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.papers.comparators.gkm_svm import GappedKmers, GkmSvm, fit_svms
from bigbird_dna.papers.comparators.interface import fit_sigmoid
from tests.calibration.sources import mixture
from tests.golden.messages import fails
from tests.papers.comparators.planted import planted_motif
from tests.toys import random_dna


def listed(sequence: str, length: int, known: int) -> Counter[str]:
    """Every gapped k-mer of a sequence, with how often it occurs."""
    found: Counter[str] = Counter()
    for start in range(len(sequence) - length + 1):
        word = sequence[start : start + length]
        if "N" not in word:
            for places in combinations(range(length), known):
                found["".join(word[i] if i in places else "." for i in range(length))] += 1
    return found


def table(sequences: list[str], length: int, known: int) -> np.ndarray:
    """Counts (N, gapped k-mers) of both strands."""
    counts = [
        listed(one, length, known) + listed(reverse_complement(one), length, known) for one in sequences
    ]
    names = sorted(set().union(*counts))
    return np.array([[one[name] for name in names] for one in counts], float)


SEQUENCES = [random_dna(40, seed) for seed in range(6)] + ["ACGTNACGTTNNGATTACA" + "N" * 21, "N" * 40]


@pytest.mark.parametrize(("length", "known"), [(1, 1), (3, 2), (4, 4), (5, 2), (6, 4)])
def test_the_kernel_is_that_of_all_gapped_kmers(length: int, known: int) -> None:
    kmers = GappedKmers(length, known)
    counts = kmers.count(SEQUENCES, both_strands=True)
    features = np.stack([kmers.of_words(row) for row in counts.toarray()])
    assert features.shape == (len(SEQUENCES), kmers.features)
    explicit = table(SEQUENCES, length, known)
    np.testing.assert_allclose(features @ features.T, explicit @ explicit.T, rtol=1e-9, atol=1e-8)
    norms = np.sqrt((explicit**2).sum(axis=1))
    np.testing.assert_allclose(kmers.norms(counts), np.where(norms > 0, norms, 1), rtol=1e-12)


def test_eleven_bases_of_which_seven_count() -> None:
    """The sizes that are used, on a pair of windows."""
    kmers, pair = GkmSvm().kmers, [SEQUENCES[0], SEQUENCES[0][:15] + SEQUENCES[1][15:]]
    assert (kmers.length, kmers.known) == (11, 7)
    counts = kmers.count(pair, both_strands=True)
    features = np.stack([kmers.of_words(row) for row in counts.toarray()])
    explicit = table(pair, 11, 7)
    np.testing.assert_allclose(features @ features.T, explicit @ explicit.T, rtol=1e-9)
    np.testing.assert_allclose(kmers.norms(counts) ** 2, np.diag(explicit @ explicit.T), rtol=1e-12)


def test_words_of_weights_are_the_transpose_of_features_of_words() -> None:
    kmers, rng = GappedKmers(5, 3), np.random.default_rng(0)
    weights, counts = rng.normal(size=kmers.features), rng.normal(size=4**5)
    assert kmers.words(weights) @ counts == pytest.approx(weights @ kmers.of_words(counts))


def test_strands() -> None:
    kmers = GappedKmers(6, 4)
    turned = [reverse_complement(one) for one in SEQUENCES]
    both = [kmers.count(some, both_strands=True) for some in (SEQUENCES, turned)]
    assert (both[0] != both[1]).nnz == 0
    one = [kmers.count(some, both_strands=False) for some in (SEQUENCES, turned)]
    assert (one[0] != one[1]).nnz > 0
    assert (one[0] + one[1] != both[0]).nnz == 0


@pytest.mark.parametrize("sizes", [(4, 5), (12, 6), (4, 0)])
def test_sizes_that_are_none(sizes: tuple[int, int]) -> None:
    with fails(ValueError):
        GappedKmers(*sizes)


def test_the_machine_is_that_of_scikit_learn_on_the_list() -> None:
    sequences = [random_dna(60, seed) for seed in range(40)]
    labels = np.array([sequence.count("GA") > 3 for sequence in sequences], np.uint8)
    assert 10 < labels.sum() < 30
    kmers = GappedKmers(5, 3)
    counts = kmers.count(sequences, both_strands=True)
    norms = kmers.norms(counts)
    explicit = table(sequences, 5, 3)
    explicit /= np.linalg.norm(explicit, axis=1, keepdims=True)
    strengths = (0.1, 10.0)
    machines = fit_svms(kmers, counts, norms, labels, strengths)
    for strength, machine in zip(strengths, machines, strict=True):
        # Its offset is penalised: by next to nothing if it stands for a thousand times as much.
        peer = LinearSVC(C=strength, dual=False, tol=1e-9, max_iter=100_000, intercept_scaling=1000)
        expected = peer.fit(explicit, labels).decision_function(explicit)
        np.testing.assert_allclose(machine.scores(counts, norms), expected, atol=2e-3)


def test_labels_of_one_class_are_left_out_and_others_found() -> None:
    task = planted_motif((120, 60, 60))
    labels = np.stack([np.zeros(120, int), np.arange(120) % 2], axis=1)
    texts = task.train.sequences(np.arange(120))
    held_out = TextWindows(task.valid.sequences(np.arange(60)), np.stack([np.arange(60) % 2] * 2, axis=1))
    model = GkmSvm(6, 5).fit(TextWindows(texts, labels), held_out)
    assert model.covered(2).tolist() == [False, True]
    found = model.predict(texts[:7])
    assert np.isnan(found[:, 0]).all() and ((found[:, 1] > 0) & (found[:, 1] < 1)).all()
    for wrong in (TextWindows(texts, labels[:, :1]), TextWindows(["ACGTA"] * 4, [0, 1, 0, 1])):
        with fails(DataError):
            GkmSvm(6, 5).fit(wrong, held_out)


# Scores as probabilities


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
