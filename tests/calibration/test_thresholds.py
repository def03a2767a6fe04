from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.calibration.maps import CalibratedTrack, Calibration, Isotonic, fit_map, fit_platt
from bigbird_dna.calibration.thresholds import Threshold, threshold_curve
from tests.calibration.sources import mixture


@pytest.mark.parametrize("prior", [0.5, 0.05, 0.005])
@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_a_threshold_has_the_wanted_rate_in_a_population_of_known_truth(prior: float, rate: float) -> None:
    valid = mixture(8000, 0.5, seed=1)
    fitted = fit_map(valid.labels, valid.raw, "platt")
    assert fitted is not None
    curve = threshold_curve(valid.labels, fitted.map(valid.raw), fitted.prior, prior)
    chosen = curve.choose(rate)
    assert chosen is not None and chosen.expected <= rate
    scan = mixture(2_000_000, prior, seed=2)
    called = _scores(fitted, scan.raw, prior) >= chosen.threshold
    false = 1 - scan.labels[called].mean()
    assert false == pytest.approx(rate, rel=0.25)
    assert scan.labels[called].sum() / scan.labels.sum() == pytest.approx(chosen.recall, abs=0.03)
    assert chosen.empirical_low <= false <= chosen.empirical_high


def test_the_rates_by_hand() -> None:
    # Probabilities at one half; a tie of a positive and a negative; no shift.
    curve = threshold_curve([1, 1, 0, 0], [0.9, 0.6, 0.6, 0.1], 0.5)
    assert curve.thresholds.tolist() == [0.899999, 0.6, 0.1]  # 0.9 is below 0.9 in float32
    assert curve.expected == pytest.approx([0.1, (0.1 + 0.4 + 0.4) / 3, (0.1 + 0.4 + 0.4 + 0.9) / 4])
    first, second, last = (curve.at(place) for place in range(3))
    assert (first.positives, first.negatives, first.recall, first.empirical) == (1, 0, 0.5, 0.0)
    assert (second.positives, second.negatives, second.recall) == (2, 1, 1.0)
    assert second.empirical == pytest.approx(0.5 * 0.5 / (0.5 * 0.5 + 0.5))
    assert last.empirical == pytest.approx(0.5)
    assert first.empirical_low == 0 < first.empirical_high < 1
    assert curve.choose(0.05) is None
    assert curve.choose(0.1) == first
    assert curve.choose(0.31) == second


def test_a_rarer_positive_needs_a_higher_raw_score_and_shifted_thresholds_say_so() -> None:
    rows = mixture(2000, 0.5, seed=3)
    fitted = fit_map(rows.labels, rows.raw)
    assert fitted is not None
    values = fitted.map(rows.raw)
    counts = []
    for prior in (0.5, 0.1, 0.01):
        curve = threshold_curve(rows.labels, values, fitted.prior, prior)
        assert (np.diff(curve.expected) >= 0).all() and (np.diff(curve.thresholds) < 0).all()
        chosen = curve.choose(0.1)
        assert chosen is not None
        _check(chosen, rows.labels, _scores(fitted, rows.raw, prior))
        counts.append(chosen.positives)
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["platt", "isotonic", "curve"]), st.integers(30, 800))
def test_a_threshold_selects_the_rows_that_it_speaks_of(seed: int, method: str, rows: int) -> None:
    """In Python and Parquet, which have float32, and in text, which has six digits; as printed, too."""
    rng = np.random.default_rng(seed)
    some = mixture(rows, 0.5, seed, apart=rng.uniform(0.3, 2), slope=rng.uniform(0.2, 4))
    labels = np.where(np.arange(rows) < 2, [0, 1] * (rows // 2) + [0] * (rows % 2), some.labels)
    raw = some.raw if rng.random() < 0.5 else np.round(some.raw, 2)
    fitted = _fitted(method, labels, raw, rng)
    # Rare positives have scores of few digits, common ones scores that are nearly 1.
    prior = [None, fitted.prior, 10 ** -rng.uniform(0.1, 6), 1 - 10 ** -rng.uniform(0.1, 6)][seed % 4]
    curve = threshold_curve(labels, fitted.map(raw), fitted.prior, prior)
    scores = _scores(fitted, raw, prior)
    assert (np.diff(curve.thresholds) < 0).all() and (np.diff(curve.expected) >= 0).all()
    for place in range(len(curve.thresholds)):
        _check(curve.at(place), labels, scores)
    # No step is lost but those that six digits don't show.
    assert len(curve.thresholds) == len({f"{score:.6f}" for score in scores.tolist()})


@pytest.mark.parametrize(
    "scores",
    [
        [0.0078125, np.nextafter(np.float32(0.0078125), 1)],  # a tie of six digits, which goes down; the next
        [0.5000005, 0.5000004],
        [np.nextafter(np.float32(1), 0), 0.9999995, 0.999999],
        [4e-7, 6e-7, 1.4e-6, 1.5e-6, 0.0],
        [1e-30, 1e-9],
    ],
)
def test_scores_that_are_nearly_equal(scores: list[float]) -> None:
    values = np.array([*scores, 0.5], np.float32)
    labels = np.arange(len(values)) % 2
    curve = threshold_curve(labels, values, 0.5)
    for place in range(len(curve.thresholds)):
        _check(curve.at(place), labels, values)


def _fitted(method: str, labels: np.ndarray, raw: np.ndarray, rng: np.random.Generator) -> CalibratedTrack:
    """By fitting; or a curve of steep and of level parts, such as no fit gives."""
    positives = int(labels.sum())
    if method == "curve":
        x = np.unique(rng.random(8))
        y = np.sort(np.clip(rng.choice(np.round(rng.random(8), rng.integers(1, 9)), len(x)), 1e-7, 1 - 1e-7))
        curve = Isotonic(scores=tuple(x.tolist()), probabilities=tuple(y.tolist()))
        return CalibratedTrack(map=curve, positives=positives, negatives=len(labels) - positives)
    found = fit_map(labels, raw, "isotonic") if method == "isotonic" else None
    if found is not None:
        return found
    line = fit_platt(labels.astype(bool), raw.astype(float))
    return CalibratedTrack(map=line, positives=positives, negatives=len(labels) - positives)


def _scores(fitted: CalibratedTrack, raw: np.ndarray, prior: float | None) -> np.ndarray:
    """What `score-promoters --calibrated` gives, float32."""
    return Calibration.of({None: fitted}, {}).finish(prior)(raw)


def _check(chosen: Threshold, labels: np.ndarray, scores: np.ndarray) -> None:
    expected = [chosen.positives, chosen.negatives]
    text = np.array([float(f"{score:.6f}") for score in scores.tolist()])
    printed = float(chosen.printed)
    whole: tuple[Any, ...] = (scores, scores.astype(np.float64), text, text.astype(np.float32))
    for values in whole:
        for threshold in (chosen.threshold, printed):
            called = labels[values >= threshold]
            assert [called.sum(), (1 - called).sum()] == expected, (chosen, threshold, values.dtype)
