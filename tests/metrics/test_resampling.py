"""Gains over test rows and seeds: exact resampled AUROCs, and an interval that covers the truth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import norm, ttest_1samp
from sklearn.metrics import brier_score_loss

from bigbird_dna.metrics import resampling
from bigbird_dna.metrics.auroc import auroc, auroc_difference
from bigbird_dna.metrics.reliability import calibration_metrics, reliability, rising_curve
from bigbird_dna.metrics.resampling import (
    FEWEST_TRACKS,
    bits_per_base,
    gain,
    mean_auroc,
    resampled_aurocs,
    resampled_medians,
    with_width,
)
from tests.calibration.sources import mixture
from tests.golden.messages import fails


def test_resamples_are_of_groups_and_the_same_for_all_models(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    labels, groups = np.tile([1, 0, 0], 20), np.repeat(np.arange(20) * 7, 3)
    first = rng.normal(size=60)
    scores = np.stack([first, 2 * first + 5, -first])
    found = resampled_aurocs(labels, scores, groups, seed=3, resamples=50)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0] + found[2], 1)
    # By hand, for the first resample.
    drawn = np.random.default_rng((3, 1)).integers(20, size=20)
    rows = np.concatenate([np.flatnonzero(groups == 7 * group) for group in drawn])
    assert found[0, 0] == pytest.approx(auroc(labels[rows], first[rows]).value)
    # However many are held at a time.
    monkeypatch.setattr(resampling, "CHUNK", 60 * 7)
    np.testing.assert_array_equal(resampled_aurocs(labels, scores, groups, seed=3, resamples=50), found)
    assert np.isnan(resampled_aurocs(0 * labels, scores, groups, resamples=5)).tolist() == [[True] * 5] * 3


def test_medians_are_of_the_same_tracks_for_all_models() -> None:
    values = np.random.default_rng(1).random((2, 9))
    found = resampled_medians(np.stack([values[0], values[0] + 0.1]), resamples=40)
    np.testing.assert_allclose(found[1] - found[0], 0.1)
    assert set(found[0]) <= set(values[0]) and len(set(found[0])) > 2


def test_of_one_seed_the_interval_is_that_over_rows() -> None:
    """Every row a group: about DeLong's paired interval."""
    rng = np.random.default_rng(4)
    labels = np.repeat([0, 1], 400)
    common = rng.normal(size=800)
    scores = np.stack([1.5 * labels + common, labels + common + 0.5 * rng.normal(size=800)])
    moved = resampled_aurocs(labels, scores, np.arange(800))
    areas = [auroc(labels, row).value for row in scores]
    found = gain(areas[:1], areas[1:], moved[:1], moved[1:])
    expected = auroc_difference(labels, *scores)
    assert found.value == pytest.approx(expected.value)
    assert np.allclose(found[1:], expected[1:], atol=0.1 * (expected.high - expected.low))


def test_where_rows_tell_all_the_interval_is_student_s() -> None:
    first, second = [0.9, 0.87, 0.92], [0.85, 0.86, 0.84]
    still = np.tile(np.array(first)[:, None], 100), np.tile(np.array(second)[:, None], 100)
    differences = np.subtract(first, second)
    expected = ttest_1samp(differences, 0).confidence_interval(0.95)
    found = gain(first, second, *still)
    assert found == pytest.approx((differences.mean(), expected.low, expected.high))


def test_a_gain_without_an_interval() -> None:
    """Of no resample, or of tracks too few to be resampled."""
    values = np.random.default_rng(1).random((2, FEWEST_TRACKS))
    assert resampled_medians(values).shape == (2, resampling.RESAMPLES)
    few = resampled_medians(values[:, 1:])
    for none in (np.full((2, 5), np.nan), few):
        found = gain([0.8], [0.7], none[:1], none[1:])
        assert found == pytest.approx((0.1, math.nan, math.nan), nan_ok=True)
    assert few.shape == (2, 0)


def test_resamples_that_are_all_alike_are_no_certainty() -> None:
    """A single track has one median; models that separate the classes do in every resample."""
    same = np.full((1, 50), 0.7)
    found = gain([0.703], [0.701], same + 0.003, same + 0.001)
    assert found.low == found.high == found.value
    assert with_width(found) == pytest.approx((0.002, math.nan, math.nan), nan_ok=True)
    labels = np.tile([1, 0], 20)
    moved = resampled_aurocs(labels, np.stack([labels, 2 * labels]), np.arange(40) // 2)
    assert math.isnan(with_width(gain([1.0], [1.0], moved[:1], moved[1:])).low)


def test_the_interval_of_a_mean_auroc_is_symmetric_on_the_logit_scale() -> None:
    """Of one seed about DeLong's, of several as wide as the plain one to first order; never beyond 0 or 1."""
    rng = np.random.default_rng(6)
    labels = np.repeat([1, 0], 60)
    scores = rng.normal(size=(3, 120)) + np.array([[2.0], [2.4], [2.8]]) * labels
    areas = np.array([auroc(labels, row).value for row in scores])
    moved = resampled_aurocs(labels, scores, np.arange(120))
    one = mean_auroc(areas[:1], moved[:1], (60, 60))
    expected = auroc(labels, scores[0])
    assert one.value == areas[0]
    assert np.allclose(logit(one[1:]), logit(expected[1:]), atol=0.1 * np.ptp(logit(expected[1:])))
    found = mean_auroc(areas, moved, (60, 60))
    plain = gain(areas, np.zeros(3), moved, np.zeros((3, 1)))
    half = (plain.value - plain.low) / (plain.value * (1 - plain.value))
    assert found[1:] == pytest.approx([expit(logit(plain.value) + side * half) for side in (-1, 1)])
    apart = mean_auroc(np.array([0.5, 1.0]), np.stack([moved[0] / 2, moved[1]]), (60, 60))
    assert 0 < apart.low < 0.01 and 0.99 < apart.high < 1


def test_a_mean_auroc_without_variance() -> None:
    """As `auroc` has it: of separated classes from groups that share no row, of equal scores no interval."""
    labels, groups = np.tile([1, 0, 0], 12), np.repeat(np.arange(12), 3)
    for scores, expected in (
        (labels, auroc(np.repeat([1, 0], 12), np.repeat([1, 0], 12))),
        (-labels, auroc(np.repeat([1, 0], 12), np.repeat([0, 1], 12))),
        (np.zeros(36), (0.5, math.nan, math.nan)),
        (groups, (0.5, math.nan, math.nan)),  # a promoter and its negatives alike
    ):
        moved = resampled_aurocs(labels, np.stack([scores, scores]), groups)
        areas = np.full(2, auroc(labels, scores).value)
        assert mean_auroc(areas, moved, (12, 12)) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(("area", "pairs"), [(0.99, 50), (0.95, 50)])
def test_near_1_the_logit_scale_covers_the_truth(area: float, pairs: int) -> None:
    rng = np.random.default_rng(1)
    labels, groups = np.repeat([1, 0], pairs), np.tile(np.arange(pairs), 2)
    studies, covered = 150, 0
    for study in range(studies):
        scores = rng.normal(size=2 * pairs) + norm.ppf(area) * math.sqrt(2) * labels
        moved = resampled_aurocs(labels, scores[None], groups, seed=study, resamples=300)
        found = mean_auroc(np.array([auroc(labels, scores).value]), moved, (pairs, pairs))
        covered += found.low <= area <= found.high
    assert covered / studies >= 0.9


@pytest.mark.parametrize(("pairs", "seeds", "deviation"), [(100, 3, 0.0), (100, 3, 0.15), (200, 1, 0.0)])
def test_the_interval_covers_the_truth(pairs: int, seeds: int, deviation: float) -> None:
    """Simulated studies: models whose lift depends on start and seed, on rows that they share."""
    rng = np.random.default_rng(5)
    lifts = rng.normal(0, deviation, 50_000)
    truth = norm.cdf((1.4 + lifts) / math.sqrt(2)).mean() - norm.cdf((1.2 + lifts) / math.sqrt(2)).mean()
    labels, groups = np.tile([1, 0], pairs), np.repeat(np.arange(pairs), 2)
    studies, covered = 120, 0
    for study in range(studies):
        lift = np.repeat([1.4, 1.2], seeds) + rng.normal(0, deviation, 2 * seeds)
        own = rng.normal(size=(2 * seeds, 2 * pairs))
        scores = lift[:, None] * labels + math.sqrt(0.7) * rng.normal(size=2 * pairs) + math.sqrt(0.3) * own
        areas = [auroc(labels, row).value for row in scores]
        moved = resampled_aurocs(labels, scores, groups, seed=study, resamples=200)
        found = gain(areas[:seeds], areas[seeds:], moved[:seeds], moved[seeds:])
        covered += found.low <= truth <= found.high
    assert covered / studies >= 0.88  # 0.95 less four of its deviations would be 0.87


def tokens(blocks, seed, *, spread=0.2, each=30):
    """Tokens of blocks that are easy or hard as a whole, seen by a model and a baseline a little above."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(blocks), each)
    bases = rng.integers(1, 9, len(ids))
    rate = 1.9 + rng.normal(0, spread, blocks)[ids] + rng.normal(0, 0.3, len(ids))
    bits = {"model": bases * rate, "baseline": bases * (rate + 0.02 + rng.normal(0, 0.05, len(ids)))}
    return bits, bases, ids


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 9), st.integers(0, 99), st.sampled_from([1, 20, 1 << 22]))
def test_draws_are_those_made_one_by_one(blocks, seed, chunk):
    bits, bases, ids = tokens(blocks, seed, each=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampling, "CHUNK", chunk)
        found = bits_per_base(bits, bases, ids * 7 - 3, "model", seed=seed, resamples=50)
    rng = np.random.default_rng(seed)
    rates = {name: [] for name in bits}
    for _ in range(50):
        drawn = rng.integers(blocks, size=blocks)
        rows = np.concatenate([np.flatnonzero(ids == block) for block in drawn])
        for name, row in bits.items():
            rates[name].append(row[rows].sum() / bases[rows].sum())
    for name, row in bits.items():
        value, low, high = found[name].bits_per_base
        assert value == pytest.approx(row.sum() / bases.sum())
        assert (low, high) == pytest.approx(tuple(np.percentile(rates[name], [2.5, 97.5])))
    paired = np.subtract(rates["model"], rates["baseline"])
    assert found["baseline"].difference[1:] == pytest.approx(tuple(np.percentile(paired, [2.5, 97.5])))
    assert all(map(math.isnan, found["model"].difference))


def test_intervals_of_blocks_cover_the_truth():
    """In about 95 % of samples, where tokens drawn one by one would do so in half of them."""
    found = bits_per_base(*tokens(60, 1), "model")
    width = found["model"].bits_per_base.high - found["model"].bits_per_base.low
    paired = found["baseline"].difference  # narrower
    assert paired.high - paired.low < width / 4 and paired.low < -0.02 < paired.high < 0
    covered = alone = 0
    for seed in range(200):
        bits, bases, ids = tokens(50, seed, spread=0.3)
        low, high = bits_per_base(bits, bases, ids, "model", resamples=200)["model"].bits_per_base[1:]
        covered += low < 1.9 < high
        rows = np.arange(len(ids))
        low, high = bits_per_base(bits, bases, rows, "model", resamples=60)["model"].bits_per_base[1:]
        alone += low < 1.9 < high
    assert 178 <= covered <= 199
    assert alone < 150


def test_one_block_has_no_interval():
    found = bits_per_base(*tokens(1, 0), "model")["baseline"]
    for value in found:
        assert value.value and math.isnan(value.low) and math.isnan(value.high)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (({"a": [1.0]}, [1], [0], "model"), "model"),
        (({"a": [1.0, 2.0]}, [1], [0], "a"), "(2,)"),
        (({"a": [math.nan]}, [1], [0], "a"), "a has"),
        (({"a": []}, [], [], "a"), ""),
    ],
)
def test_bits_that_make_no_rate(arguments, named):
    with fails(ValueError, named):
        bits_per_base(*arguments)


# test_reliability


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


@pytest.mark.parametrize(("slope", "lift"), [(1.0, 0.0), (1.0, 0.6), (2.0, 0.5)])
@pytest.mark.parametrize(("n", "prior", "apart"), [(400, 0.5, 1.5), (1000, 0.5, 0.5), (4000, 0.2, 0.8)])
def test_the_debiased_error_and_its_interval_hold_where_the_error_is_known(
    slope: float, lift: float, n: int, prior: float, apart: float
) -> None:
    """Also where four times as many negatives stand for as many as there are positives."""
    known, samples = mixture(200_000, 0.5, seed=0, apart=apart, slope=slope, lift=lift), 110
    truth, found = float(np.abs(known.raw - known.true).mean()), []
    for seed in range(1, samples + 1):
        rows = mixture(n, prior, seed, apart=apart, slope=slope, lift=lift)
        weight = 1.0 if prior == 0.5 else rows.labels.sum() / (rows.labels == 0).sum()
        found.append(calibration_metrics(rows.labels, rows.raw, negative_weight=weight))
        assert prior == 0.5 or found[-1].share_positive == pytest.approx(0.5)
    inside = np.mean([one.ece_debiased_low <= truth <= one.ece_debiased_high for one in found])
    assert inside >= 0.87  # 95 % less three deviations of these samples, and some for the approximation
    plain, debiased, chance = (
        np.mean([getattr(one, name) for one in found])
        for name in ("ece", "ece_debiased", "ece_expected_if_calibrated")
    )
    # Nearer to the truth than what bins show, which of probabilities that hold is all noise.
    assert abs(debiased - truth) < 0.6 * abs(plain - truth) + 0.004
    if not truth > 1e-6:
        assert plain == pytest.approx(chance, rel=0.1)
    if prior != 0.5:  # with less noise than as many of both would have
        fewer = mixture(2 * int(n * prior), 0.5, 1, apart=apart, slope=slope, lift=lift)
        assert chance < 0.85 * calibration_metrics(fewer.labels, fewer.raw).ece_expected_if_calibrated


def test_a_negative_that_stands_there_thrice_for_a_third_each_changes_no_figure() -> None:
    rows = mixture(300, 0.5, seed=5)
    times = np.where(rows.labels == 1, 1, 3)
    groups = np.arange(300)
    once = calibration_metrics(rows.labels, rows.raw, groups=groups)
    labels, raw, ids = (np.repeat(column, times) for column in (rows.labels, rows.raw, groups))
    thrice = calibration_metrics(labels, raw, groups=ids, negative_weight=1 / 3)
    for name, value in once._asdict().items():
        # What bins show by chance is less: it would be, if the three were not the same row.
        if name == "ece_expected_if_calibrated" or name.startswith("ece_debiased"):
            continue
        assert getattr(thrice, name) == pytest.approx(value), name


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
