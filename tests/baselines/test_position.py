"""The regression on the base at each position, against scikit-learn on explicit one-hot matrices."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bigbird_dna.baselines.kmers import (
    KmerLogistic,
    LogisticBaseline,
    PositionLogistic,
    kmer_frequencies,
    position_features,
)
from bigbird_dna.baselines.windows import TextWindows
from bigbird_dna.errors import DataError
from bigbird_dna.papers.comparators.networks import NetworkSettings
from bigbird_dna.papers.comparators.registry import ComparatorRequest, make_comparator
from tests.golden.messages import fails

LENGTH, MOTIF, OFFSET = 60, "TATAAA", 25
LABELS = np.tile([0, 1], 200)
TRAIN, TEST = slice(0, 300), slice(300, None)


def random_sequences(count: int = len(LABELS), seed: int = 5, letters: str = "ACGT") -> list[str]:
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list(letters), LENGTH)) for _ in range(count)]


def planted(offsets: Callable[[np.random.Generator, int], int | None]) -> list[str]:
    """Windows with the motif at the offset that a label has; None: without the motif."""
    rng = np.random.default_rng(7)
    made = []
    for sequence, label in zip(random_sequences(), LABELS, strict=True):
        offset = offsets(rng, int(label))
        kept = sequence if offset is None else sequence[:offset] + MOTIF + sequence[offset + len(MOTIF) :]
        made.append(kept)
    return made


def anywhere(rng: np.random.Generator) -> int:
    return int(rng.integers(0, LENGTH - len(MOTIF) + 1))


def held_out_auroc(model: LogisticBaseline, sequences: list[str]) -> float:
    found = model.fit(sequences[TRAIN], LABELS[TRAIN]).predict(sequences[TEST])
    return float(roc_auc_score(LABELS[TEST], found))


def slow_one_hot(sequences: list[str]) -> np.ndarray:
    rows = [[float(base == letter) for base in sequence for letter in "ACGT"] for sequence in sequences]
    length = len(sequences[0]) if sequences else 0
    return np.array(rows, np.float32).reshape(len(sequences), 4 * length)


@given(st.integers(0, 6).flatmap(lambda n: st.lists(st.text("ACGTN", min_size=n, max_size=n), max_size=4)))
def test_features_are_the_explicit_one_hot_matrix(sequences: list[str]) -> None:
    found = position_features(sequences)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.toarray(), slow_one_hot(sequences))


def expected_pipeline(x: np.ndarray, y: np.ndarray, model: LogisticBaseline, *, scaled: bool) -> Any:
    regression = LogisticRegression(C=model.penalty, class_weight="balanced", max_iter=1000, random_state=1)
    return make_pipeline(*([StandardScaler()] if scaled else []), regression).fit(x, y)


def test_it_is_scikit_learn_s_regression_on_the_one_hot_matrix() -> None:
    sequences = random_sequences(letters="ACGTN")
    y = np.array([sequence[OFFSET] in "AC" for sequence in sequences]).astype(int)
    model = PositionLogistic(seed=1).fit(sequences[TRAIN], y[TRAIN])
    expected = expected_pipeline(slow_one_hot(sequences[TRAIN]), y[TRAIN], model, scaled=False)
    x = slow_one_hot(sequences[TEST])
    np.testing.assert_allclose(model.predict(sequences[TEST]), expected.predict_proba(x)[:, 1], atol=2e-3)
    assert model.penalty in PositionLogistic.penalties
    assert model.coefficients.shape == (LENGTH, 4)
    # The logits are those of the coefficients, and their logistic function the probabilities.
    logits = x @ model.coefficients.ravel() + model.intercept
    np.testing.assert_allclose(model.logits(sequences[TEST]), logits, atol=1e-4)
    np.testing.assert_allclose(model.predict(sequences[TEST]), 1 / (1 + np.exp(-logits)), atol=1e-5)
    # A and C at the chosen position count for the label, G and T against it; all others count less.
    own = model.coefficients[OFFSET]
    assert min(own[:2]) > 0 > max(own[2:])
    others = np.delete(model.coefficients, OFFSET, axis=0)
    assert np.abs(others).max() < np.abs(own).min()


@pytest.mark.parametrize("k", [3, 5])
def test_k_mer_predictions_are_those_of_the_scaled_regression_to_the_byte(k: int) -> None:
    sequences = planted(lambda rng, label: anywhere(rng) if label else None)
    model = KmerLogistic(k, seed=1).fit(sequences[TRAIN], LABELS[TRAIN])
    # The penalty is chosen on a fifth of either class, drawn by the seed.
    rng, held_out, y = np.random.default_rng(1), np.zeros(300, bool), LABELS[TRAIN]
    for label in (0, 1):
        rows = np.flatnonzero(y == label)
        held_out[rng.permutation(rows)[: len(rows) // 5]] = True
    x, losses = kmer_frequencies(sequences[TRAIN], k), []
    for penalty in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0):
        regression = LogisticRegression(C=penalty, class_weight="balanced", max_iter=1000, random_state=1)
        fitted = make_pipeline(StandardScaler(), regression).fit(x[~held_out], y[~held_out])
        chosen = fitted.predict_proba(x[held_out])[np.arange(60), y[held_out]]
        losses.append((-np.log(chosen).mean(), penalty))
    assert model.penalty == min(losses)[1]
    expected = expected_pipeline(x, y, model, scaled=True).predict_proba(kmer_frequencies(sequences[TEST], k))
    assert model.predict(sequences[TEST]).tobytes() == expected[:, 1].astype(np.float64).tobytes()


def test_a_motif_at_a_fixed_offset_is_learned_where_k_mers_see_nothing() -> None:
    """Both classes have the motif: promoters at one offset, the others anywhere."""
    sequences = planted(lambda rng, label: OFFSET if label else anywhere(rng))
    assert held_out_auroc(PositionLogistic(1), sequences) > 0.97
    assert 0.3 < held_out_auroc(KmerLogistic(5, 1), sequences) < 0.7


def test_a_motif_at_shuffled_offsets_is_learned_by_k_mers_alone() -> None:
    sequences = planted(lambda rng, label: anywhere(rng) if label else None)
    assert held_out_auroc(KmerLogistic(5, 1), sequences) > 0.8
    assert 0.3 < held_out_auroc(PositionLogistic(1), sequences) < 0.7


def test_shuffled_labels_are_at_chance_and_results_repeat() -> None:
    sequences = planted(lambda rng, label: OFFSET if label else None)
    shuffled = np.random.default_rng(0).permutation(LABELS[TRAIN])
    fits = [PositionLogistic(1).fit(sequences[TRAIN], shuffled).predict(sequences[TEST]) for _ in range(2)]
    assert fits[0].tobytes() == fits[1].tobytes()
    assert 0.35 < roc_auc_score(LABELS[TEST], fits[0]) < 0.65


def test_an_n_is_neutral() -> None:
    """It counts as much as the mean of the four bases: where one stands, nothing is said."""
    sequences = planted(lambda rng, label: OFFSET if label else None)
    model = PositionLogistic(1).fit(sequences, LABELS)
    np.testing.assert_allclose(model.coefficients.sum(axis=1), 0, atol=2e-2)
    window = sequences[0]
    masked = window[:OFFSET] + "N" + window[OFFSET + 1 :]
    each = [window[:OFFSET] + base + window[OFFSET + 1 :] for base in "ACGT"]
    own, *others = model.logits([masked, *each])
    assert own == pytest.approx(np.mean(others), abs=1e-2) and max(others) - min(others) > 0.1
    assert model.logits(["N" * LENGTH])[0] == pytest.approx(model.intercept, abs=1e-6)


def test_lengths_must_agree() -> None:
    sequences = random_sequences(20)
    with fails(DataError):
        PositionLogistic(1).fit([*sequences[:-1], "A" * 59], LABELS[:20])
    model = PositionLogistic(1).fit(sequences, LABELS[:20])
    with fails(DataError):
        model.predict([text[1:] for text in sequences])
    # A division of the letters by the number of windows is not enough.
    with fails(DataError):
        position_features(["A", "ACG"])
    assert model.predict([]).shape == model.logits([]).shape == (0,)
    # Fitted once more, it may be to another length.
    assert model.fit([text[1:] for text in sequences], LABELS[:20]).coefficients.shape == (59, 4)


def test_an_unfitted_model_says_so() -> None:
    for use in (
        lambda: PositionLogistic(1).predict(["ACGT"]),
        lambda: PositionLogistic(1).logits(["ACGT"]),
        lambda: PositionLogistic(1).coefficients,
        lambda: PositionLogistic(1).intercept,
    ):
        with fails(ValueError):
            use()


def test_as_a_comparator_it_gives_what_the_baseline_gives(tmp_path: Path) -> None:
    sequences = planted(lambda rng, label: OFFSET if label else None)
    learned = TextWindows(sequences[TRAIN], LABELS[TRAIN])
    request = ComparatorRequest(
        "position",
        directed=True,
        sizes=(LENGTH,),
        kmer=5,
        settings=NetworkSettings(),
        checkpoints=tmp_path,
        identity={},
    )
    comparator = make_comparator(request).fit(learned, learned)
    model = PositionLogistic(1).fit(sequences[TRAIN], LABELS[TRAIN])
    assert comparator.predict(sequences[TEST])[:, 0].tobytes() == model.predict(sequences[TEST]).tobytes()
    assert comparator.chosen() == {"inverse_penalty": model.penalty}
