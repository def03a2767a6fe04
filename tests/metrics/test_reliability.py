import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss

from bigbird_dna.metrics.reliability import calibration_metrics, reliability, rising_curve
from tests.calibration.sources import mixture
from tests.golden.messages import fails


def test_bins_and_error_by_hand() -> None:
    labels = [0, 0, 1, 0, 1, 1]
    curve = reliability(labels, [0.1, 0.2, 0.3, 0.6, 0.7, 0.9], bins=3)
    assert curve.rows.tolist() == [2, 2, 2]
    assert curve.probability == pytest.approx([0.15, 0.45, 0.8])
    assert curve.fraction == pytest.approx([0.0, 0.5, 1.0])
    found = calibration_metrics(labels, [0.1, 0.2, 0.3, 0.6, 0.7, 0.9], bins=3)
    assert found.ece == pytest.approx((0.15 + 0.05 + 0.2) / 3)
    assert (found.share_positive, found.mean_probability) == (0.5, pytest.approx(2.8 / 6))
    rows = mixture(20_000, 0.1, seed=1)  # probabilities that hold
    found = calibration_metrics(rows.labels, rows.true)
    assert found.ece_debiased_low == 0 and found.ece < 0.01
    assert found.mean_probability == pytest.approx(found.share_positive, abs=0.01)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=60), st.randoms())
def test_ties_are_never_divided_and_the_order_of_rows_counts_for_nothing(
    rows: list[tuple[bool, int]], random: "np.random.Generator"
) -> None:
    labels, places = np.array(rows).T
    shares = places / 5
    found = calibration_metrics(labels, shares)
    assert len(reliability(labels, shares).rows) <= len(set(places))
    random.shuffle(rows)  # type: ignore[arg-type]
    labels, places = np.array(rows).T
    assert calibration_metrics(labels, places / 5) == pytest.approx(found, nan_ok=True, abs=1e-9)


@given(st.integers(0, 10_000), st.sampled_from([0.02, 0.3, 0.5]))
def test_the_brier_score_is_the_sum_of_its_parts(seed: int, prior: float) -> None:
    rows = mixture(200, prior, seed)
    found = calibration_metrics(rows.labels, rows.raw)
    assert found.brier == pytest.approx(brier_score_loss(rows.labels, rows.raw))
    parts = found.miscalibration - found.discrimination + found.uncertainty
    assert found.brier == pytest.approx(parts)
    assert found.miscalibration >= -1e-9 and found.discrimination >= -1e-9
    assert found.brier_low <= found.brier <= found.brier_high


def test_the_rising_curve_is_that_of_the_pairs_of_scores() -> None:
    assert rising_curve([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4]) == pytest.approx([0, 0.5, 0.5, 1])
    assert rising_curve([1, 0], [0.5, 0.5]) == pytest.approx([0.5, 0.5])


def _error(slope: float, lift: float, apart: float) -> float:
    rows = mixture(200_000, 0.5, seed=0, apart=apart, slope=slope, lift=lift)
    return float(np.abs(rows.raw - rows.true).mean())


@pytest.mark.parametrize(("slope", "lift"), [(1.0, 0.0), (1.0, 0.6), (2.0, 0.5)])
@pytest.mark.parametrize(("n", "apart"), [(400, 1.5), (1000, 0.5)])
def test_the_debiased_error_and_its_interval_hold_where_the_error_is_known(
    slope: float, lift: float, n: int, apart: float
) -> None:
    truth, samples = _error(slope, lift, apart), 120
    seeds = range(1, samples + 1)
    sources = (mixture(n, 0.5, seed, apart=apart, slope=slope, lift=lift) for seed in seeds)
    found = [calibration_metrics(rows.labels, rows.raw) for rows in sources]
    inside = np.mean([one.ece_debiased_low <= truth <= one.ece_debiased_high for one in found])
    assert inside >= 0.87  # 95 % less three deviations of 120 samples, and some for the approximation
    plain, debiased = (np.mean([getattr(one, name) for one in found]) for name in ("ece", "ece_debiased"))
    # Nearer to the truth than what bins show, which of probabilities that hold is all noise.
    assert abs(debiased - truth) < 0.6 * abs(plain - truth) + 0.004
    if not truth > 1e-6:
        assert plain == pytest.approx(np.mean([one.ece_perfect for one in found]), rel=0.1)


def test_a_negative_that_stands_there_thrice_for_a_third_each_changes_no_figure() -> None:
    rows = mixture(300, 0.5, seed=5)
    times = np.where(rows.labels == 1, 1, 3)
    groups = np.arange(300)
    once = calibration_metrics(rows.labels, rows.raw, groups=groups)
    labels, raw, ids = (np.repeat(column, times) for column in (rows.labels, rows.raw, groups))
    thrice = calibration_metrics(labels, raw, groups=ids, negative_weight=1 / 3)
    for name, value in once._asdict().items():
        # What bins show by chance is less: it would be, if the three were not the same row.
        if name == "ece_perfect" or name.startswith("ece_debiased"):
            continue
        assert getattr(thrice, name) == pytest.approx(value), name


@pytest.mark.parametrize(("slope", "lift"), [(1.0, 0.0), (2.0, 0.5)])
def test_more_negatives_tell_the_error_of_as_many_of_both_with_less_noise(slope: float, lift: float) -> None:
    truth, samples, apart = _error(slope, lift, 0.8), 100, 0.8
    found, even = [], []
    for seed in range(1, samples + 1):
        rows = mixture(4000, 0.2, seed, apart=apart, slope=slope, lift=lift)
        weight = rows.labels.sum() / (rows.labels == 0).sum()
        found.append(calibration_metrics(rows.labels, rows.raw, negative_weight=weight))
        fewer = mixture(1600, 0.5, seed, apart=apart, slope=slope, lift=lift)
        even.append(calibration_metrics(fewer.labels, fewer.raw))
    assert all(one.share_positive == pytest.approx(0.5) for one in found)
    inside = np.mean([one.ece_debiased_low <= truth <= one.ece_debiased_high for one in found])
    assert inside >= 0.87
    assert np.mean([one.ece_debiased for one in found]) == pytest.approx(truth, abs=0.006)
    chance, before = (np.mean([one.ece_perfect for one in some]) for some in (found, even))
    assert chance < 0.85 * before
    if not truth > 1e-6:
        assert np.mean([one.ece for one in found]) == pytest.approx(chance, rel=0.1)


def test_few_rows_and_one_class() -> None:
    assert all(map(math.isnan, calibration_metrics([], [])))
    one = calibration_metrics([1], [0.25])
    assert (one.ece, one.brier) == (0.75, 0.5625)
    assert math.isnan(one.ece_debiased_low) and math.isnan(one.brier_low)
    alike = calibration_metrics([0] * 30, [0.5] * 30)
    assert alike.ece == 0.5 and alike.uncertainty == alike.discrimination == 0


@pytest.mark.parametrize(
    ("labels", "shares"),
    [([0, 2], [0.5, 0.5]), ([0, 1], [0.5, 1.1]), ([0, 1], [0.5, math.nan]), ([0], [0.5, 0.5])],
)
def test_what_is_no_label_or_probability_is_refused(labels: list[int], shares: list[float]) -> None:
    with fails(ValueError):
        calibration_metrics(labels, shares)
