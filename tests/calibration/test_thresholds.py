import numpy as np
import pytest

from bigbird_dna.calibration.fitting import fit_map
from bigbird_dna.calibration.maps import shift_prior
from bigbird_dna.calibration.thresholds import threshold_curve
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
    called = shift_prior(fitted.map(scan.raw), fitted.prior, prior) >= chosen.threshold
    false = 1 - scan.labels[called].mean()
    assert false == pytest.approx(rate, rel=0.25)
    assert scan.labels[called].sum() / scan.labels.sum() == pytest.approx(chosen.recall, abs=0.03)
    assert chosen.empirical_low <= false <= chosen.empirical_high


def test_the_rates_by_hand() -> None:
    # Probabilities at one half; a tie of a positive and a negative; no shift.
    curve = threshold_curve([1, 1, 0, 0], [0.9, 0.6, 0.6, 0.1], 0.5)
    assert curve.thresholds == pytest.approx([0.9, 0.6, 0.1])
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
        shifted = shift_prior(values, fitted.prior, prior)
        assert chosen.positives + chosen.negatives == (shifted >= chosen.threshold).sum()
        counts.append(chosen.positives)
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1]
