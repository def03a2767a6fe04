"""Gapped k-mers without a list of them, against a list of them; and the machine that learns from them."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from bigbird_dna.baselines.windows import TextWindows
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.papers.comparators.gkm_svm import GkmSvm
from tests.golden.messages import fails
from tests.papers.comparators.test_known_differences import planted_motif
from tests.toys import random_dna


def listed(sequence: str, length: int, known: int) -> Counter[str]:
    """Every gapped k-mer of a sequence, with how often it occurs."""
    found: Counter[str] = Counter()
    for start in range(len(sequence) - length + 1):
        word = sequence[start : start + length]
        if "N" not in word:
            for places in combinations(range(length), known):
                found[
                    "".join(word[i] if i in places else "." for i in range(length))
                ] += 1
    return found


def table(sequences: list[str], length: int, known: int) -> np.ndarray:
    """Counts (N, gapped k-mers) of both strands."""
    counts = [
        listed(one, length, known) + listed(reverse_complement(one), length, known)
        for one in sequences
    ]
    names = sorted(set().union(*counts))
    return np.array([[one[name] for name in names] for one in counts], float)


SEQUENCES = [random_dna(40, seed) for seed in range(6)] + [
    "ACGTNACGTTNNGATTACA" + "N" * 21,
    "N" * 40,
]


SIZES = [(sizes, SEQUENCES) for sizes in ((1, 1), (3, 2), (4, 4), (5, 2), (6, 4))]
# Those that are used, on a pair of windows.
SIZES.append(((11, 7), [SEQUENCES[0], SEQUENCES[0][:15] + SEQUENCES[1][15:]]))


@pytest.mark.parametrize(
    ("sizes", "sequences"), SIZES, ids=["1-1", "3-2", "4-4", "5-2", "6-4", "11-7"]
)
def test_the_kernel_is_that_of_all_gapped_kmers(
    sizes: tuple[int, int], sequences: list[str]
) -> None:
    model = GkmSvm(*sizes, both_strands=True)
    counts = model.normalized_counts(sequences)
    features = np.stack([model.features(row) for row in counts.toarray()])
    explicit = table(sequences, *sizes)
    norms = np.sqrt((explicit**2).sum(axis=1, keepdims=True))
    explicit /= np.where(norms > 0, norms, 1)
    np.testing.assert_allclose(
        features @ features.T, explicit @ explicit.T, rtol=1e-9, atol=1e-12
    )


def test_strands() -> None:
    reverse = [reverse_complement(text) for text in SEQUENCES]
    for both_strands in (True, False):
        model = GkmSvm(6, 4, both_strands=both_strands)
        counts = [model.normalized_counts(texts) for texts in (SEQUENCES, reverse)]
        assert (abs(counts[0] - counts[1]).max() < 1e-12) == both_strands


def test_the_machine_is_that_of_scikit_learn_on_the_list() -> None:
    sequences = [random_dna(60, seed) for seed in range(40)]
    labels = np.array([sequence.count("GA") > 3 for sequence in sequences], np.uint8)
    assert 10 < labels.sum() < 30
    model = GkmSvm(5, 3, both_strands=True)
    counts = model.normalized_counts(sequences)
    explicit = table(sequences, 5, 3)
    explicit /= np.linalg.norm(explicit, axis=1, keepdims=True)
    solution = np.append(model.features(np.zeros(4**5)), 0.0)
    for strength in (0.1, 10.0):
        solution = model._fit_svm(counts, labels == 1, strength, solution)
        scores = counts @ model.words(solution[:-1]) + solution[-1]
        # Its offset is penalized: by next to nothing if it stands for a thousand times as much.
        peer = LinearSVC(
            C=strength, dual=False, tol=1e-9, max_iter=100_000, intercept_scaling=1000
        )
        expected = peer.fit(explicit, labels).decision_function(explicit)
        np.testing.assert_allclose(scores, expected, atol=2e-3)


def test_labels_of_one_class_have_one_score_and_others_are_found() -> None:
    task = planted_motif((120, 60, 60))
    labels = np.stack([np.zeros(120, int), np.arange(120) % 2], axis=1)
    texts = task.train.sequences(np.arange(120))
    held_out = TextWindows(
        task.valid.sequences(np.arange(60)), np.stack([np.arange(60) % 2] * 2, axis=1)
    )
    model = GkmSvm(6, 5).fit(TextWindows(texts, labels), held_out)
    found = model.predict(texts[:7])
    assert (found[:, 0] == 0.5).all() and np.ptp(found[:, 1]) > 0.1
    for wrong in (
        TextWindows(texts, labels[:, :1]),
        TextWindows(["ACGTA"] * 4, [0, 1, 0, 1]),
    ):
        with fails(DataError):
            GkmSvm(6, 5).fit(wrong, held_out)
