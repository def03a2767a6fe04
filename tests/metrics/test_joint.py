"""Metrics of several outputs: values are those of other implementations, and intervals contain the truth."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.metrics.joint import JointEstimates, joint_estimates
from bigbird_dna.metrics.labels import regression_estimates

Floats = NDArray[np.float64]
Rows = tuple[Floats, Floats, NDArray[np.int64]]
joint_aurocs = partial(joint_estimates, spearman=False)
joint_correlations = partial(joint_estimates, spearman=True)
OF_KIND: dict[str, Callable[..., JointEstimates]] = {
    "auroc": joint_aurocs,
    "spearman": joint_correlations,
}


def draw(
    kind: str, rng: np.random.Generator, groups: int, outputs: int, strength: float
) -> Rows:
    """Return labels and scores of groups of one to five rows, which have a part in common."""
    ids = np.repeat(np.arange(groups), rng.integers(1, 6, groups))
    size = len(ids), outputs
    shared = rng.normal(size=(2, groups, 1))
    labels, scores = (rng.normal(size=size) + one[ids] for one in shared)
    scores += strength * labels
    return (labels > 0.5) * 1.0 if kind == "auroc" else labels, scores, ids


def test_one_auroc_is_that_of_rows_in_blocks() -> None:
    labels, scores, ids = draw("auroc", np.random.default_rng(1), 40, 3, 0.3)
    found = joint_aurocs(labels[:, :1], scores[:, :1], ids)
    assert found.outputs == [found.mean]
    assert [*found.mean] == pytest.approx([*auroc(labels[:, 0], scores[:, 0], ids)])


@pytest.mark.parametrize("ties", [False, True])
def test_spearman_and_its_interval_agree_with_other_implementations(ties: bool) -> None:
    labels, scores, ids = draw("spearman", np.random.default_rng(2), 150, 2, 0.4)
    if ties:
        labels, scores = np.round(labels), np.round(2 * scores)
    found = joint_correlations(labels, scores, ids)
    for t, one in enumerate(found.outputs):
        assert one.value == pytest.approx(
            spearmanr(labels[:, t], scores[:, t]).statistic
        )
    alone = joint_correlations(labels[:, :1], scores[:, :1], ids).mean
    drawn = regression_estimates(labels[:, :1], {"model": scores[:, :1]}, ids)["model"][
        0
    ][1]
    assert alone.value == pytest.approx(drawn.value)
    assert [alone.low, alone.high] == pytest.approx([drawn.low, drawn.high], abs=0.02)


@pytest.mark.parametrize("kind", OF_KIND)
def test_intervals_of_many_outputs_hold_together(kind: str) -> None:
    """They are wider than each alone by a known factor, and the mean's is that of one value."""
    labels, scores, ids = draw(kind, np.random.default_rng(3), 400, 50, 0.2)
    together = OF_KIND[kind](labels, scores, ids)
    scale = np.arctanh if kind == "spearman" else lambda p: np.log(p / (1 - p))
    for t, one in enumerate(together.outputs):
        alone = OF_KIND[kind](labels[:, [t]], scores[:, [t]], ids).mean
        assert one.value == alone.value
        widths = [float(np.ptp(scale(np.array(each[1:])))) for each in (one, alone)]
        assert widths[0] / widths[1] == pytest.approx(
            3.29 / 1.96, rel=0.05
        )  # normal quantiles
    assert together.mean.value == pytest.approx(
        np.mean([one.value for one in together.outputs])
    )
    assert np.ptp(together.mean[1:]) < min(np.ptp(one[1:]) for one in together.outputs)


@pytest.mark.parametrize("kind", OF_KIND)
def test_intervals_contain_the_truth(kind: str) -> None:
    """Of ten outputs, all do in 95 % of samples, and so does that of the mean."""
    rng, samples = np.random.default_rng(4), 200
    labels, scores, ids = draw(kind, rng, 20_000, 10, 0.3)
    truth = OF_KIND[kind](labels, scores, ids)
    together = mean = 0
    for _ in range(samples):
        found = OF_KIND[kind](*draw(kind, rng, 60, 10, 0.3))
        pairs = zip(found.outputs, truth.outputs, strict=True)
        together += all(one.low <= other.value <= one.high for one, other in pairs)
        mean += found.mean.low <= truth.mean.value <= found.mean.high
    assert together > 0.91 * samples
    assert 0.91 * samples < mean < 0.99 * samples


def test_certain_and_undefined_values() -> None:
    numbers, ids = np.arange(20.0)[:, None], np.arange(20)
    for sign in (1, -1):
        found = joint_correlations(numbers, sign * numbers, ids).mean
        assert found.value == pytest.approx(sign)
        assert -1 <= found.low < found.high <= 1 and max(found[1:], key=abs) * sign > 0
        # Half as many pairs in order are less certain.
        fewer = joint_correlations(numbers, sign * numbers, ids // 2).mean
        assert fewer.high - fewer.low > found.high - found.low
    both = np.hstack([numbers, numbers])
    two = joint_correlations(both, both, ids)
    assert (
        two.mean == two.outputs[0]
        and two.mean.low < joint_correlations(numbers, numbers, ids).mean.low
    )
    constant = np.hstack([numbers, 0 * numbers])
    found = joint_correlations(constant, both, ids)
    assert math.isnan(found.outputs[1].value) and found.mean == found.outputs[0]
    assert math.isnan(joint_correlations(numbers, numbers, 0 * ids).mean.value)
    labels = np.hstack([numbers > 9, numbers > 99])
    areas = joint_aurocs(labels, both, ids)
    assert math.isnan(areas.outputs[1].value) and areas.mean == areas.outputs[0]
    assert areas.mean.value == 1 and 0.5 < areas.mean.low < 1
