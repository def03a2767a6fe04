"""AUROC and its interval by definition, pair by pair; curves and other metrics against scikit-learn."""

import math
from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import binomtest, norm, rankdata
from scipy.stats import t as student
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    matthews_corrcoef,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)

from bigbird_dna.metrics.auroc import (
    UNDEFINED,
    Z95,
    ascending,
    auroc,
    auroc_difference,
    auroc_note,
    discoveries,
    rank_rows,
)
from bigbird_dna.metrics.labels import binary_metrics, weighted_areas
from bigbird_dna.reporting.predictors import RATES, RECALLS, curve_points
from tests.golden.messages import fails, message

# Few distinct scores, so that ties are common.
ROWS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 6)),
    min_size=2,
    max_size=40,
).filter(lambda rows: 1 <= sum(label for label, _, _ in rows) <= len(rows) - 1)
PROPERTY = settings(max_examples=100, deadline=None)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_order_of_scores_is_that_of_a_stable_sort(kind):
    draw = np.random.default_rng(0)
    values = [
        0.0,
        -0.0,
        1e-45,
        -1e-45,
        1e-38,
        -3.5,
        3.5,
        np.inf,
        -np.inf,
        0.1,
        np.float32(0.1),
    ]
    for scores in (
        np.array(values),
        draw.choice(values, 500),
        draw.normal(size=4000),
        np.zeros(0),
    ):
        scores = scores.astype(kind)
        ranked, order = ascending(scores)
        assert np.array_equal(np.sort(order), np.arange(len(scores)))
        assert np.array_equal(scores[order], np.sort(scores))
        assert np.array_equal(rankdata(ranked), rankdata(scores)[order])
        assert kind == np.float64 or np.array_equal(
            order, np.argsort(scores, kind="stable")
        )


def columns(rows):
    return (np.array(column, dtype=float) for column in zip(*rows, strict=True))


def components(labels, scores):
    """V10 and V01 of DeLong et al., equations 5 and 6: every pair in turn."""
    p, q = scores[labels == 1], scores[labels == 0]
    wins = (p[:, None] > q) + 0.5 * (p[:, None] == q)
    return wins.mean(axis=1), wins.mean(axis=0)


def variance(v10, v01):
    return v10.var(ddof=1) / len(v10) + v01.var(ddof=1) / len(v01)


def plain(labels, scores):
    """The interval symmetric about the area, cut to 0 and 1."""
    v10, v01 = components(labels, scores)
    half = Z95 * math.sqrt(variance(v10, v01))
    return max(v10.mean() - half, 0), min(v10.mean() + half, 1)


def binormal(rng, m, n, area):
    """Labels and scores of two normal distributions with this AUROC."""
    labels = np.repeat([1, 0], [m, n])
    return labels, rng.normal(size=m + n) + labels * norm.ppf(area) * math.sqrt(2)


@PROPERTY
@given(ROWS)
def test_area_and_interval_count_pairs(rows):
    labels, scores, _ = columns(rows)
    v10, v01 = components(labels, scores)
    found = auroc(labels, scores)
    assert found.value == pytest.approx(v10.mean(), abs=1e-12)
    k = min(len(v10), len(v01))
    if k == 1 or len(set(scores)) == 1:
        assert math.isnan(found.low) and math.isnan(found.high)
    elif found.value in (0, 1):
        exact = binomtest(round(found.value * k), k).proportion_ci(0.95, "exact")
        assert found[1:] == pytest.approx(tuple(exact))
    else:
        slope = 1 / (found.value * (1 - found.value))
        half = norm.ppf(0.975) * slope * math.sqrt(variance(v10, v01))
        expected = expit(logit(found.value) - half), expit(logit(found.value) + half)
        assert found[1:] == pytest.approx(expected, abs=1e-9)
        assert 0 <= found.low <= found.value <= found.high <= 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("digits", [0, 1, 9])
@pytest.mark.parametrize(
    ("m", "n"), [(1, 500), (40, 900), (700, 30), (300, 300), (300_000, 300_000)]
)
def test_areas_are_those_of_scikit_learn(m, n, digits, dtype):
    labels, scores = binormal(np.random.default_rng(m + digits), m, n, 0.76)
    scores = np.round(scores, digits).astype(dtype)
    assert auroc(labels, scores).value == pytest.approx(
        roc_auc_score(labels, scores), abs=1e-12
    )
    assert rank_rows(labels, scores).average_precision == pytest.approx(
        average_precision_score(labels, scores), abs=1e-12
    )


@PROPERTY
@given(ROWS)
def test_paired_difference_counts_pairs(rows):
    labels, first, second = columns(rows)
    (a10, a01), (b10, b01) = components(labels, first), components(labels, second)
    found = auroc_difference(labels, first, second).estimate
    assert found.value == pytest.approx(a10.mean() - b10.mean(), abs=1e-12)
    if min(len(a10), len(a01)) == 1:
        assert math.isnan(found.low) and math.isnan(found.high)
        return
    if max(np.ptp(a10 - b10), np.ptp(a01 - b01)) < 1e-12:
        alike = (rankdata(first, "dense") == rankdata(second, "dense")).all()
        expected = (0, 0) if alike else (math.nan, math.nan)
        assert found[1:] == pytest.approx(expected, nan_ok=True)
        return
    half = Z95 * math.sqrt(variance(a10 - b10, a01 - b01))
    expected = max(found.value - half, -1), min(found.value + half, 1)
    assert found[1:] == pytest.approx(expected, abs=1e-12)


# Over blocks


def half_over_blocks(v10, v01, labels, blocks):
    """Half the width of an interval from the components' sums by block, one by one."""
    y = np.asarray(labels)
    sums = []
    for block in set(blocks):
        inside = np.asarray(blocks) == block
        own = [
            (v[inside[y == label]] - v.mean()).sum() / len(v)
            for v, label in ((v10, 1), (v01, 0))
        ]
        sums.append(sum(own))
    effective = []
    for label in (0, 1):
        rows = Counter(
            block for block, one in zip(blocks, y, strict=True) if one == label
        )
        effective.append(sum(rows.values()) ** 2 / sum(n**2 for n in rows.values()))
    k = max(2, min(effective))
    return student.ppf(0.975, k - 1) * math.sqrt(np.square(sums).sum() * k / (k - 1))


@PROPERTY
@given(ROWS, st.integers(1, 6), st.randoms())
def test_the_interval_over_blocks_is_that_of_sums_by_block(rows, count, random):
    labels, scores, second = columns(rows)
    blocks = np.array([random.randrange(count) for _ in rows])
    found = auroc(labels, scores, blocks)
    lead = auroc_difference(labels, scores, second, blocks).estimate
    (a10, a01), (b10, b01) = components(labels, scores), components(labels, second)
    assert (found.value, lead.value) == (
        auroc(labels, scores).value,
        auroc_difference(labels, scores, second).value,
    )
    k = min(len(set(blocks[labels == label])) for label in (0, 1))
    if k == 1:
        assert all(map(math.isnan, (*found[1:], *lead[1:])))
        return
    if not math.isnan(found.low) and found.value not in (0, 1):
        half = half_over_blocks(a10, a01, labels, blocks) / (
            found.value * (1 - found.value)
        )
        ends = expit(logit(found.value) - half), expit(logit(found.value) + half)
        assert found[1:] == pytest.approx(ends, abs=1e-7)
    if found.value in (0, 1):
        assert found[1:] == pytest.approx(
            tuple(binomtest(round(found.value * k), k).proportion_ci(0.95, "exact"))
        )
    if not math.isnan(lead.low) and lead.low < lead.high:
        half = half_over_blocks(a10 - b10, a01 - b01, labels, blocks)
        assert lead[1:] == pytest.approx(
            (max(lead.value - half, -1), min(lead.value + half, 1)), abs=1e-7
        )


@pytest.mark.parametrize("copies", [2, 5])
def test_copies_of_a_row_in_its_block_add_nothing(copies):
    """Of rows that count as independent, the interval becomes narrower."""
    labels, scores = binormal(np.random.default_rng(4), 40, 60, 0.8)
    blocks, other = (
        np.arange(100) // 2,
        scores + np.random.default_rng(5).normal(size=100),
    )
    many = [np.tile(x, copies) for x in (labels, scores, other, blocks)]
    assert auroc(many[0], many[1], many[3]) == pytest.approx(
        auroc(labels, scores, blocks)
    )
    assert auroc_difference(*many) == pytest.approx(
        auroc_difference(labels, scores, other, blocks)
    )
    alone, together = auroc(labels, scores), auroc(*many[:2])
    assert together.high - together.low < 0.8 * (alone.high - alone.low)


@pytest.mark.parametrize("rare", [False, True])
def test_intervals_over_blocks_cover_the_truth_of_rows_that_vary_together(rare):
    """Where DeLong's does not: positives in other blocks than negatives, or rare and clustered."""
    rng, area, covered = np.random.default_rng(6), 0.8, np.zeros(2)
    studies = 300
    for _ in range(studies):
        blocks = np.repeat(np.arange(120), 10)
        chance = rng.beta(0.02, 0.4, 120) if rare else np.arange(120) % 2
        labels = (rng.random(len(blocks)) < chance[blocks]).astype(int)
        scores = norm.ppf(area) * math.sqrt(2) * labels
        scores = (
            scores
            + math.sqrt(0.3) * rng.normal(size=120)[blocks]
            + math.sqrt(0.7) * rng.normal(size=1200)
        )
        for number, ids in enumerate((blocks, None)):
            low, high = auroc(labels, scores, ids)[1:]
            covered[number] += low <= area <= high
    ours, delong = covered / studies
    assert 0.91 < ours < 0.985 and delong < 0.85


def test_all_positives_in_one_block_have_no_interval():
    labels, blocks = np.repeat([1, 0], [5, 20]), np.repeat(np.arange(5), 5)
    scores = np.random.default_rng(7).normal(size=25)
    found = binary_metrics(labels, scores, resamples=10, blocks=blocks)
    assert math.isnan(found.auroc_low) and message(found.note)
    assert math.isnan(auroc_difference(labels, scores, -scores, blocks).low)
    with fails(ValueError, "(24,)"):
        auroc(labels, scores, blocks[1:])


@pytest.mark.parametrize(
    ("m", "n", "area", "least", "most_plain"),
    [(60, 60, 0.76, 0.93, 1), (10, 200, 0.99, 0.91, 0.72), (5, 500, 0.95, 0.74, 0.72)],
)
def test_interval_covers_the_truth_more_often_than_the_plain_one(
    m, n, area, least, most_plain
):
    """With few positives and an AUROC near 1 both err on the narrow side, the plain one by far more."""
    rng = np.random.default_rng(2)
    covered = np.zeros(2)
    for _ in range(1000):
        labels, scores = binormal(rng, m, n, area)
        for number, (low, high) in enumerate(
            (auroc(labels, scores)[1:], plain(labels, scores))
        ):
            covered[number] += low <= area <= high
    ours, theirs = covered / 1000
    assert least < ours < 0.98
    assert theirs < min(ours, most_plain)


@pytest.mark.parametrize(
    ("labels", "scores", "expected"),
    [
        ([1, 1, 0, 0], [3, 4, 1, 2], (1, math.sqrt(0.025), 1)),
        ([1, 1, 0, 0, 0], [1, 2, 3, 4, 5], (0, 0, 1 - math.sqrt(0.025))),
        ([1, 1, 0, 0], [5, 5, 5, 5], (0.5, math.nan, math.nan)),
        ([1, 0, 0], [2, 3, 1], (0.5, math.nan, math.nan)),
        ([1, 1, 0], [2, 3, 1], (1, math.nan, math.nan)),
        ([1, 1], [2, 3], UNDEFINED),
        ([0, 0], [2, 3], UNDEFINED),
        ([], [], UNDEFINED),
        ([1, 0, 1, 0], [2, 1, 0, 3], None),
    ],
)
def test_where_the_variance_says_nothing_a_note_does(labels, scores, expected):
    """Also of `binary_metrics`, without resamples, which its others need for an interval."""
    found = auroc(labels, scores)
    if expected:
        assert found == pytest.approx(expected, nan_ok=True)
    else:
        assert found.low < found.value < found.high
    n, positives = len(labels), sum(labels)
    text = auroc_note(positives, n - positives, found)
    assert bool(text) == bool(expected) and (not text or message(text))
    metrics = binary_metrics(labels, scores, resamples=0)
    assert (
        metrics[:2] == (n, positives)
        and metrics.note == text
        and math.isnan(metrics.auprc_low)
    )
    assert metrics[2:5] == pytest.approx(found, nan_ok=True)
    assert (
        math.isnan(metrics.mcc) == math.isnan(metrics.auprc) == math.isnan(found.value)
    )


@pytest.mark.parametrize(
    ("first", "second", "value", "ends"),
    [
        ([3, 4, 1, 2], [5, 5, 5, 5], 0.5, math.nan),  # separated, and a constant
        ([3, 4, 1, 2], [1, 2, 3, 4], 1, math.nan),
        (
            [3, 4, 1, 2],
            [4, 3, 2, 1],
            0,
            math.nan,
        ),  # both separated, each in its own order
        ([3, 4, 1, 2], [30, 40, 10, 20], 0, 0),
        ([5, 5, 5, 5], [2, 2, 2, 2], 0, 0),
    ],
)
def test_a_difference_without_variance_is_certain_of_one_ranking_alone(
    first, second, value, ends
):
    found = auroc_difference([1, 1, 0, 0], first, second).estimate
    assert found == pytest.approx((value, ends, ends), nan_ok=True)
    assert all(map(math.isnan, auroc_difference([1] * 4, first, second)))


def test_infinite_scores_are_ranked():
    scores, labels = (
        np.array([np.inf, 1.0, 0.0, -np.inf, np.inf], np.float32),
        np.array([1, 1, 0, 0, 0]),
    )
    expected = roc_auc_score(labels, np.clip(scores, -9, 9))
    assert auroc(labels, scores).value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("labels", "scores", "groups"),
    [
        ([0, 1], [0.1, math.nan], None),
        ([0, 1], [0.1], None),
        ([[0, 1]], [[0.1, 0.2]], None),
        ([0, 2], [0.1, 0.2], None),
        ([0, 1], [0.1, 0.2], [1]),
    ],
)
def test_bad_rows(labels, scores, groups):
    calls = [partial(binary_metrics, blocks=groups)]
    if groups is None and 2 not in labels:
        calls += [auroc, lambda y, x: auroc_difference(y, x, x)]
    for call in calls:
        with fails(ValueError):
            call(labels, scores)


@given(ROWS)
@example([(False, 0, 0), *[(True, 0, 0)] * 3, *[(True, 1, 0)] * 7])
def test_curves_are_those_of_scikit_learn(rows):
    """Where a vertical part is at a rate, the ROC curve has its upper end."""
    labels, scores, _ = columns(rows)
    true_rates, precisions = curve_points(rank_rows(labels, scores))
    false, true, _ = roc_curve(labels, scores, drop_intermediate=False)
    expected = np.interp(RATES + 1e-12, false, true)
    np.testing.assert_allclose(true_rates, expected, atol=1e-9)
    precision, recall, _ = precision_recall_curve(labels, scores)
    for value, at in zip(precisions, RECALLS, strict=True):
        # The first score that reaches the recall, or at recall 0 finds a promoter.
        reached = np.flatnonzero(recall >= max(at, 1e-9) - 1e-12)[-1]
        assert value == pytest.approx(precision[reached])


def simulated(rng, n):
    """`n` pairs whose positives score one deviation above the negatives, as probabilities."""
    labels = np.tile([0, 1], n)
    return labels, 1 / (1 + np.exp(0.5 - rng.normal(size=2 * n) - labels))


@settings(deadline=None, max_examples=40)
@given(ROWS, st.randoms(use_true_random=False))
def test_metrics_are_those_of_scikit_learn_and_under_weights_of_repeated_rows(
    rows, random
):
    labels, scores, _ = columns(rows)
    scores = scores / 6
    weights = np.array([random.randint(0, 3) for _ in rows])
    weights[[labels.argmax(), labels.argmin()]] += 1

    def expected(y, p):
        called = p >= 0.5
        metrics = f1_score(y, called, zero_division=0), matthews_corrcoef(y, called)
        return average_precision_score(y, p), *metrics

    found = binary_metrics(labels, scores, resamples=20)
    assert (found.n, found.positives) == (len(rows), labels.sum())
    assert found.auroc == pytest.approx(roc_auc_score(labels, scores))
    assert (found.auprc, found.f1, found.mcc) == pytest.approx(expected(labels, scores))
    some = np.stack([weights, 0 * weights, 1 - labels]).astype(float)
    _, found = weighted_areas(labels, scores, some)
    repeated = np.repeat(labels, weights), np.repeat(scores, weights)
    assert found[0] == pytest.approx(average_precision_score(*repeated))
    assert np.isnan(found[1:]).all()


def test_bootstrap_agrees_with_a_slow_one():
    rng = np.random.default_rng(4)
    labels, scores = simulated(rng, n=100)
    found = binary_metrics(labels, scores)
    slow = []
    for _ in range(150):
        rows = rng.integers(len(labels), size=len(labels))
        y, p = labels[rows], scores[rows]
        slow.append(average_precision_score(y, p))
    ends = np.percentile(slow, [2.5, 97.5])
    assert [found.auprc_low, found.auprc_high] == pytest.approx(ends, abs=0.035)


def test_groups_are_drawn_together():
    """Every row twice, the copies in one group: the same figures and intervals as every row once."""
    labels, scores = simulated(np.random.default_rng(1), n=40)
    groups = np.tile([f"pair {i}" for i in range(len(labels))], 2)
    order = np.unique(groups[: len(labels)], return_inverse=True)[1]
    once = binary_metrics(labels, scores, seed=3, blocks=order)
    twice = binary_metrics(
        np.tile(labels, 2), np.tile(scores, 2), seed=3, blocks=groups
    )
    apart = binary_metrics(np.tile(labels, 2), np.tile(scores, 2), seed=3)
    for name in ("auprc",):
        for end in ("", "_low", "_high"):
            assert getattr(twice, name + end) == pytest.approx(
                getattr(once, name + end)
            )
        widths = [
            getattr(m, f"{name}_high") - getattr(m, f"{name}_low")
            for m in (twice, apart)
        ]
        assert widths[0] > 1.15 * widths[1]


# Many differences


@given(
    st.lists(
        st.sampled_from([math.nan, 0.0, 1e-9, 0.003, 0.01, 0.02, 0.049, 0.3, 1.0]),
        max_size=30,
    )
)
def test_discoveries_are_those_of_the_step_up_procedure(values: list[float]) -> None:
    found = discoveries(values)
    chances = {row: value for row, value in enumerate(values) if not math.isnan(value)}
    ranked = sorted(chances.values())
    bounds = [p for rank, p in enumerate(ranked, 1) if p <= 0.05 * rank / len(ranked)]
    expected = {row for row in chances if bounds and chances[row] <= bounds[-1]}
    assert {*np.flatnonzero(found)} == expected


def test_p_values_are_those_at_which_the_interval_excludes_0() -> None:
    """Over rows of the normal distribution, over blocks of Student's t."""
    rng = np.random.default_rng(8)
    excluded = []
    for count in (None, 4, 12):
        for _ in range(60):
            labels, scores = binormal(rng, 40, 60, 0.7)
            other = scores + rng.normal(size=100) - 0.5 * labels
            blocks = None if count is None else rng.integers(count, size=100)
            found = auroc_difference(labels, scores, other, blocks)
            excluded.append(found.low > 0 or found.high < 0)
            assert (found.p < 0.05) == excluded[-1]
    assert 20 < sum(excluded) < 160
    assert auroc_difference(labels, scores, 2 * scores, blocks).p == 1


def test_chance_alone_makes_few_discoveries() -> None:
    rng = np.random.default_rng(0)
    rounds = [rng.random(100) for _ in range(200)]
    assert np.mean([discoveries(values).any() for values in rounds]) < 0.1  # of 0.05
    assert (
        np.mean([(values < 0.05).any() for values in rounds]) > 0.9
    )  # by single intervals
