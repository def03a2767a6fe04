"""Intervals over blocks, tracks and seeds: their formulas, and how often they cover the truth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import norm, ttest_1samp
from scipy.stats import t as student
from sklearn.metrics import brier_score_loss

from bigbird_dna.metrics import reliability as reliability_module
from bigbird_dna.metrics import resampling
from bigbird_dna.metrics.auroc import auroc, auroc_difference
from bigbird_dna.metrics.reliability import (
    calibration_metrics,
    reliability,
)
from bigbird_dna.metrics.resampling import (
    FEWEST_TRACKS,
    SampledMetrics,
    bits_per_base,
    joined,
    mean_auroc,
    mean_over_seeds,
    resampled_medians,
    sampled_aurocs,
    with_width,
)
from tests.calibration.sources import mixture
from tests.golden.messages import fails


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(-6, 6)), max_size=12))
def test_joined_blocks_divide_neither_a_block_nor_a_group(
    rows: list[tuple[int, int]],
) -> None:
    blocks, groups = np.array(rows, np.int64).reshape(-1, 2).T
    expected = [*range(len(rows))]
    for _ in rows:  # each row takes the lowest number in its block and group
        near = [(blocks == block) | (groups == group) for block, group in rows]
        expected = [int(np.array(expected)[some].min()) for some in near]
    found = joined(blocks, groups).tolist()
    assert [found.index(one) for one in found] == expected
    assert {*found} == {*range(len({*found}))}


def test_medians_are_of_the_same_tracks_for_all_models() -> None:
    values = np.random.default_rng(1).random((2, 9))
    found = resampled_medians(np.stack([values[0], values[0] + 0.1]), resamples=40)
    np.testing.assert_allclose(found[1] - found[0], 0.1)
    assert set(found[0]) <= set(values[0]) and len(set(found[0])) > 2


def test_of_one_seed_the_interval_is_that_of_the_model() -> None:
    rng = np.random.default_rng(4)
    labels, blocks = np.repeat([0, 1], 100), np.arange(200) % 40
    scores = (
        rng.normal(size=(2, 200))
        + np.array([[1.5], [1.0]]) * labels
        + rng.normal(size=200)
    )
    found = sampled_aurocs(labels, scores, blocks)
    assert mean_auroc(found.of([1]), (40, 40)) == pytest.approx(
        auroc(labels, scores[1], blocks)
    )
    lead = mean_over_seeds(found.of([0]).minus(found.of([1])))
    assert lead == pytest.approx(auroc_difference(labels, *scores, blocks).estimate)


def test_where_seeds_tell_all_the_interval_is_student_s() -> None:
    first, second = np.array([0.9, 0.87, 0.92]), np.array([0.85, 0.86, 0.84])
    still = np.zeros((3, 5))
    expected = ttest_1samp(first - second, 0).confidence_interval(0.95)
    found = mean_over_seeds(
        SampledMetrics(first, still).minus(SampledMetrics(second, still))
    )
    assert found == pytest.approx(
        ((first - second).mean(), expected.low, expected.high)
    )


def test_the_interval_of_a_mean_is_between_those_of_its_parts() -> None:
    """Wider than with the data alone, and at most as wide as the squares of the halves of both t intervals."""
    rng = np.random.default_rng(5)
    values, deviations = rng.normal(size=3), rng.normal(size=(3, 40)) / 9
    metrics = SampledMetrics(values, deviations, 12.5)
    found = mean_over_seeds(metrics, (-np.inf, np.inf))
    of_seeds = student.ppf(0.975, 2) * values.std(ddof=1) / math.sqrt(3)
    of_data = student.ppf(0.975, 12.5) * np.linalg.norm(deviations.mean(axis=0))
    assert of_data < (found.high - found.low) / 2 < math.hypot(of_seeds, of_data)
    assert mean_over_seeds(metrics, (0, 0.1))[1:] == (0, 0.1)
    alone = mean_over_seeds(metrics.of([0]), (-np.inf, np.inf))
    half = student.ppf(0.975, 12.5) * np.linalg.norm(deviations[0])
    assert (alone.high - alone.low) / 2 == pytest.approx(half)


def test_resampled_metrics_have_the_variance_of_their_resamples() -> None:
    drawn = np.random.default_rng(6).normal(size=(2, 50))
    found = SampledMetrics.of_resamples([1.0, 2.0], drawn)
    np.testing.assert_allclose((found.deviations**2).sum(axis=1), drawn.var(axis=1))


def test_a_mean_without_an_interval() -> None:
    """Of tracks too few to be resampled, or of a class in a single block."""
    values = np.random.default_rng(1).random((2, FEWEST_TRACKS))
    assert resampled_medians(values).shape == (2, resampling.RESAMPLES)
    few = resampled_medians(values[:, 1:])
    assert few.shape == (2, 0)
    alone = sampled_aurocs([1, 1, 0, 0], [[3.0, 1, 2, 0], [1.0, 2, 3, 4]], [0, 0, 1, 2])
    for found in (SampledMetrics.of_resamples([0.8, 0.7], few), alone):
        for value in (
            mean_over_seeds(found),
            mean_over_seeds(found.of([0]).minus(found.of([1]))),
        ):
            assert not math.isnan(value.value) and np.isnan(value[1:]).all()


def test_no_variance_is_no_certainty() -> None:
    """A single track has one median; models that separate the classes have no deviations."""
    found = mean_over_seeds(SampledMetrics.of_resamples([0.002], np.full((1, 50), 0.7)))
    assert found.low == found.high == found.value
    assert with_width(found) == pytest.approx((0.002, math.nan, math.nan), nan_ok=True)
    labels = np.tile([1, 0], 20)
    both = sampled_aurocs(labels, np.stack([labels, 2 * labels]), np.arange(40) // 2)
    assert math.isnan(with_width(mean_over_seeds(both.of([0]).minus(both.of([1])))).low)


def test_the_interval_of_a_mean_auroc_is_symmetric_on_the_logit_scale() -> None:
    """As wide as the plain one to first order; never beyond 0 or 1."""
    rng = np.random.default_rng(6)
    labels = np.repeat([1, 0], 60)
    scores = rng.normal(size=(3, 120)) + np.array([[2.0], [2.4], [2.8]]) * labels
    areas = sampled_aurocs(labels, scores, np.arange(120))
    found, plain = mean_auroc(areas, (60, 60)), mean_over_seeds(areas, (-1, 2))
    half = (plain.value - plain.low) / (plain.value * (1 - plain.value))
    assert found[1:] == pytest.approx(
        [expit(logit(plain.value) + side * half) for side in (-1, 1)]
    )
    apart = mean_auroc(areas.of([0, 1])._replace(values=np.array([0.5, 1.0])), (60, 60))
    assert 0 < apart.low < 0.01 and 0.99 < apart.high < 1


def test_a_mean_auroc_without_variance() -> None:
    """As `auroc` has it: of separated classes from pairs that share no block, of equal scores no interval."""
    labels, blocks = np.tile([1, 0, 0], 12), np.repeat(np.arange(12), 3)
    for scores, expected in (
        (labels, auroc(np.repeat([1, 0], 12), np.repeat([1, 0], 12))),
        (-labels, auroc(np.repeat([1, 0], 12), np.repeat([0, 1], 12))),
        (np.zeros(36), (0.5, math.nan, math.nan)),
        (blocks, (0.5, math.nan, math.nan)),  # a promoter and its negatives alike
    ):
        found = sampled_aurocs(labels, np.stack([scores, scores]), blocks)
        assert mean_auroc(found, (12, 12)) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("deviation", [0.0, 0.15])
def test_the_interval_over_blocks_and_seeds_covers_the_truth(
    deviation: float, seeds: int = 3
) -> None:
    """Simulated studies: models whose lift depends on start and seed, on rows that they share."""
    rng = np.random.default_rng(5)
    lifts = rng.normal(0, deviation, 50_000)
    truth = (
        norm.cdf((1.4 + lifts) / math.sqrt(2)).mean()
        - norm.cdf((1.2 + lifts) / math.sqrt(2)).mean()
    )
    labels, blocks = np.tile([1, 0], 150), np.repeat(np.arange(50), 6)
    studies, covered = 300, 0
    for _ in range(studies):
        lift = np.repeat([1.4, 1.2], seeds) + rng.normal(0, deviation, 2 * seeds)
        scores = lift[:, None] * labels + math.sqrt(0.3) * rng.normal(size=50)[blocks]
        scores = (
            scores
            + math.sqrt(0.4) * rng.normal(size=300)
            + math.sqrt(0.3) * rng.normal(size=(6, 300))
        )
        found = sampled_aurocs(labels, scores, blocks)
        lead = mean_over_seeds(
            found.of(range(seeds)).minus(found.of(range(seeds, 2 * seeds)))
        )
        covered += lead.low <= truth <= lead.high
    assert 0.92 <= covered / studies <= 0.995


def tokens(blocks, seed, *, spread=0.2, each=30):
    """Tokens of blocks that are easy or hard as a whole, seen by a model and a baseline a little above."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(blocks), each)
    bases = rng.integers(1, 9, len(ids))
    rate = 1.9 + rng.normal(0, spread, blocks)[ids] + rng.normal(0, 0.3, len(ids))
    bits = {
        "model": bases * rate,
        "baseline": bases * (rate + 0.02 + rng.normal(0, 0.05, len(ids))),
    }
    return bits, bases, ids


@given(st.integers(2, 9), st.integers(0, 99))
def test_deviations_of_blocks_are_those_of_their_bits(blocks, seed):
    bits, bases, ids = tokens(blocks, seed, each=3)
    found = bits_per_base(bits, bases, ids * 7 - 3, "model")
    covered = np.array([bases[ids == block].sum() for block in range(blocks)])
    k = max(covered.sum() ** 2 / (covered**2).sum(), 2)
    rows = {**bits, "both": bits["model"] - bits["baseline"]}
    for name, row in rows.items():
        rate = row.sum() / bases.sum()
        off = [
            (row[ids == block] - rate * bases[ids == block]).sum() / bases.sum()
            for block in range(blocks)
        ]
        half = student.ppf(0.975, k - 1) * math.sqrt(np.square(off).sum() * k / (k - 1))
        value = (
            found["baseline"].difference
            if name == "both"
            else found[name].bits_per_base
        )
        low = rate - half if name == "both" else max(rate - half, 0)
        assert value == pytest.approx((rate, low, rate + half))
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
        low, high = bits_per_base(bits, bases, ids, "model")["model"].bits_per_base[1:]
        covered += low < 1.9 < high
        rows = np.arange(len(ids))
        low, high = bits_per_base(bits, bases, rows, "model")["model"].bits_per_base[1:]
        alone += low < 1.9 < high
    assert 178 <= covered <= 199
    assert alone < 150


def test_one_block_has_no_interval():
    found = bits_per_base(*tokens(1, 0), "model")["baseline"]
    for value in found:
        assert value.value and math.isnan(value.low) and math.isnan(value.high)


# test_reliability


def test_bins_and_error_by_hand(monkeypatch) -> None:
    monkeypatch.setattr(reliability_module, "BINS", 3)
    labels = [0, 0, 1, 0, 1, 1]
    curve = reliability(labels, [0.1, 0.2, 0.3, 0.6, 0.7, 0.9])
    assert curve["rows"].tolist() == [2, 2, 2]
    assert curve["probability"].tolist() == pytest.approx([0.15, 0.45, 0.8])
    assert curve["fraction"].tolist() == pytest.approx([0.0, 0.5, 1.0])
    found = calibration_metrics(labels, [0.1, 0.2, 0.3, 0.6, 0.7, 0.9])
    assert found.ece == pytest.approx((0.15 + 0.05 + 0.2) / 3)
    assert (found.share_positive, found.mean_probability) == (
        0.5,
        pytest.approx(2.8 / 6),
    )
    rows = mixture(20_000, 0.1, seed=1)  # probabilities that hold
    found = calibration_metrics(rows.labels, rows.true)
    assert found.ece < 0.01
    assert found.mean_probability == pytest.approx(found.share_positive, abs=0.01)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=60),
    st.randoms(),
)
def test_ties_are_never_divided_and_the_order_of_rows_counts_for_nothing(
    rows: list[tuple[bool, int]], random: "np.random.Generator"
) -> None:
    labels, places = np.array(rows).T
    shares = places / 5
    found = calibration_metrics(labels, shares)
    assert len(reliability(labels, shares)) <= len(set(places))
    random.shuffle(rows)  # type: ignore[arg-type]
    labels, places = np.array(rows).T
    assert calibration_metrics(labels, places / 5) == pytest.approx(
        found, nan_ok=True, abs=1e-9
    )


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([0.02, 0.3, 0.5]))
def test_the_brier_score_is_inside_its_interval(seed: int, prior: float) -> None:
    rows = mixture(200, prior, seed)
    found = calibration_metrics(rows.labels, rows.raw)
    assert found.brier == pytest.approx(brier_score_loss(rows.labels, rows.raw))
    assert found.brier_low <= found.brier <= found.brier_high


def test_few_rows_and_one_class() -> None:
    assert all(map(math.isnan, calibration_metrics([], [])))
    one = calibration_metrics([1], [0.25])
    assert (one.ece, one.brier) == (0.75, 0.5625)
    assert math.isnan(one.brier_low)
    alike = calibration_metrics([0] * 30, [0.5] * 30)
    assert alike.ece == 0.5 and alike.share_positive == 0


@pytest.mark.parametrize(
    ("labels", "shares"),
    [
        ([0, 2], [0.5, 0.5]),
        ([0, 1], [0.5, 1.1]),
        ([0, 1], [0.5, math.nan]),
        ([0], [0.5, 0.5]),
    ],
)
def test_what_is_no_label_or_probability_is_refused(
    labels: list[int], shares: list[float]
) -> None:
    with fails(ValueError):
        calibration_metrics(labels, shares)
