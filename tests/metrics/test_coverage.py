"""How often the 95 % intervals of reports contain the truth, in simulated studies: between 93 and 97 %.

    python -m tests.metrics.test_coverage    # prints the table of docs/results/intervals.md

Scores are normal, and the truth is known in closed form or from a thousand times as much data. Rows of a block share a
part of the variance of their scores.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from math import asin, pi, sqrt
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import norm

from bigbird_dna.calibration.call_precision import fit_calls
from bigbird_dna.calibration.calls import MatchedCalls
from bigbird_dna.metrics.auroc import ENDS, auroc, auroc_difference
from bigbird_dna.metrics.labels import binary_metrics, label_metrics
from bigbird_dna.metrics.reliability import calibration_metrics
from bigbird_dna.metrics.resampling import (
    SampledMetrics,
    bits_per_base,
    mean_auroc,
    mean_over_seeds,
    resampled_medians,
    sampled_aurocs,
)
from bigbird_dna.reporting.scan import METRICS, call_metrics, weighted_metrics

STUDIES = 2000
"""The standard error of a coverage of 95 % is half a percent."""
LIFT, OTHER_LIFT = 1.4, 1.2  # distances of the classes, in standard deviations
COMMON = 0.3  # of the variance of scores, in settings with blocks
RESAMPLES = 500

Generator = np.random.Generator
Intervals = Iterator[tuple[str, Any, float]]
"""Name of a metric, its value with interval, and the truth."""


def true_auroc(lift: float) -> float:
    """AUROC of two normal distributions."""
    return float(norm.cdf(lift / sqrt(2)))


def noise(generator: Generator, blocks: np.ndarray, common: float) -> np.ndarray:
    """Normal deviations, of which the rows of a block share a part of the variance."""
    of_block = generator.normal(size=blocks.max() + 1)[blocks]
    return sqrt(common) * of_block + sqrt(1 - common) * generator.normal(
        size=len(blocks)
    )


def promoters(generator: Generator, count: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Labels and blocks: each block has one to nine promoters, and as many negatives."""
    sizes = generator.integers(1, 10, count)
    blocks = np.repeat(np.arange(count), 2 * sizes)
    labels = np.concatenate([np.repeat([1, 0], size) for size in sizes])
    return labels, blocks


def calibrated(scores: np.ndarray) -> np.ndarray:
    """Probability of a positive, if both classes are as frequent."""
    return expit(LIFT * (scores - LIFT / 2))


def class_truth() -> dict[str, float]:
    """Metrics of thresholded probabilities on much data."""
    generator = np.random.default_rng(0)
    labels = np.repeat([1, 0], 500_000)
    p = calibrated(LIFT * labels + generator.normal(size=len(labels)))
    metrics = binary_metrics(labels, p, resamples=0)
    return {
        "auprc": metrics.auprc,
        "brier": float(np.mean((p - labels) ** 2)),
    }


TRUTH = class_truth()


def rows(generator: Generator) -> Intervals:
    """AUROC by DeLong's method, of independent rows."""
    for positives, negatives in ((100, 100), (30, 1000)):
        labels = np.repeat([1, 0], [positives, negatives])
        shared = generator.normal(size=len(labels))
        first = LIFT * labels + 0.8 * shared + 0.6 * generator.normal(size=len(labels))
        second = (
            OTHER_LIFT * labels
            + 0.8 * shared
            + 0.6 * generator.normal(size=len(labels))
        )
        name = f"{positives} positives, {negatives:,} negatives"
        yield f"AUROC, {name}", auroc(labels, first), true_auroc(LIFT)
        difference = true_auroc(LIFT) - true_auroc(OTHER_LIFT)
        yield (
            f"difference of AUROC, {name}",
            auroc_difference(labels, first, second),
            difference,
        )


def promoter_metrics(generator: Generator, common: float) -> Intervals:
    """Metrics of promoter models, over blocks."""
    labels, blocks = promoters(generator, 200)
    scores = LIFT * labels + noise(generator, blocks, common)
    other = OTHER_LIFT * labels + noise(generator, blocks, common)
    p = calibrated(scores)
    metrics = binary_metrics(labels, p, blocks=blocks, resamples=RESAMPLES)
    for name, truth in (("auroc", true_auroc(LIFT)), *TRUTH.items()):
        if name != "brier":
            ends = [getattr(metrics, f"{name}{end}") for end in ("", "_low", "_high")]
            yield name.upper(), ends, truth
    difference = true_auroc(LIFT) - true_auroc(OTHER_LIFT)
    yield (
        "difference of AUROC",
        auroc_difference(labels, scores, other, blocks),
        difference,
    )
    brier = calibration_metrics(labels, p, blocks=blocks)
    yield (
        "Brier score",
        (brier.brier, brier.brier_low, brier.brier_high),
        TRUTH["brier"],
    )


def promoters_alone(generator: Generator) -> Intervals:
    """Promoters with independent rows."""
    return promoter_metrics(generator, 0.0)


def promoters_in_blocks(generator: Generator) -> Intervals:
    """Promoters whose block explains a part of the variance."""
    return promoter_metrics(generator, COMMON)


def bins(generator: Generator) -> Intervals:
    """A track whose positives are in few blocks."""
    rates = generator.beta(0.3, 9.7, size=250)
    blocks = np.repeat(np.arange(250), 40)
    labels = (generator.random(len(blocks)) < rates[blocks]).astype(int)
    scores = LIFT * labels + noise(generator, blocks, COMMON)
    other = OTHER_LIFT * labels + noise(generator, blocks, COMMON)
    difference = true_auroc(LIFT) - true_auroc(OTHER_LIFT)
    yield "AUROC", auroc(labels, scores, blocks), true_auroc(LIFT)
    yield (
        "difference of AUROC",
        auroc_difference(labels, scores, other, blocks),
        difference,
    )


def outputs(generator: Generator) -> Intervals:
    """Labels of sequences: three outputs, their mean, and the difference of two predictors."""
    groups = np.arange(400)
    labels = (generator.random((400, 3)) < 0.5).astype(int)
    shared = generator.normal(size=(400, 1))
    first = 0.6 * shared + 0.8 * generator.normal(size=(400, 3)) + LIFT * labels
    second = 0.6 * shared + 0.8 * generator.normal(size=(400, 3)) + OTHER_LIFT * labels
    predictors = {"first": calibrated(first), "second": calibrated(second)}
    table = label_metrics(labels, predictors, groups, [*"abc"], "multilabel")
    rows = table.set_index(["model", "output"])
    difference = true_auroc(LIFT) - true_auroc(OTHER_LIFT)
    for name, title, truth in (
        ("auroc", "AUROC", true_auroc(LIFT)),
        ("auprc", "AUPRC", TRUTH["auprc"]),
    ):
        for output, which in (("macro", "mean of three outputs"), ("a", "one output")):
            estimate = interval_of(rows.loc[("first", output)], name)
            yield f"{title}, {which}", estimate, truth
    estimate = interval_of(rows.loc[("second", "macro")], "auroc_difference")
    yield "difference of AUROC, mean of three outputs", estimate, difference


def interval_of(row: Any, name: str) -> list[float]:
    """A metric of a row with its interval."""
    return [row[name], row[f"{name}_low"], row[f"{name}_high"]]


def regression(generator: Generator) -> Intervals:
    """Correlations of measured and predicted numbers."""
    for correlation in (0.5, 0.9):
        predicted = generator.normal(size=(300, 1))
        error = sqrt(1 / correlation**2 - 1)
        measured = predicted + error * generator.normal(size=(300, 1))
        row = label_metrics(
            measured, {"model": predicted}, np.arange(300), ["x"], "regression"
        ).iloc[0]
        spearman = 6 / pi * asin(correlation / 2)
        for name, truth in (("pearson", correlation), ("spearman", spearman)):
            yield f"{name.title()}, {correlation}", interval_of(row, name), truth


def seeds(generator: Generator) -> Intervals:
    """Means over three seeds; the distance of the classes varies between seeds."""
    for of_seeds in (0.03, 0.1, 0.2):
        labels, blocks = promoters(generator)
        shared = noise(generator, blocks, COMMON)
        tables = []
        for lift in (LIFT, OTHER_LIFT):
            lifts = generator.normal(lift, of_seeds, size=(3, 1))
            single = generator.normal(size=(3, len(labels)))
            tables.append(lifts * labels + 0.9 * shared + sqrt(0.19) * single)
        first, second = (sampled_aurocs(labels, table, blocks) for table in tables)
        spread = sqrt(2 + of_seeds**2)
        truths = [float(norm.cdf(lift / spread)) for lift in (LIFT, OTHER_LIFT)]
        name = f"seeds vary by {of_seeds}"
        yield f"mean AUROC, {name}", mean_auroc(first, (100, 100)), truths[0]
        yield (
            f"difference of mean AUROC, {name}",
            mean_over_seeds(first.minus(second)),
            truths[0] - truths[1],
        )


def tracks(generator: Generator) -> Intervals:
    """Medians over tracks, whose distances of the classes vary."""
    for count in (20, 80):
        lifts = generator.normal(LIFT, 0.4, size=count)
        areas = []
        for lift in lifts:
            positives = lift + generator.normal(size=60)
            negatives = np.sort(generator.normal(size=600))
            areas.append(np.searchsorted(negatives, positives).mean() / 600)
        samples = resampled_medians(np.array([areas]))
        medians = SampledMetrics.of_resamples([np.median(areas)], samples, count - 1)
        yield (
            f"median AUROC of {count} tracks",
            mean_over_seeds(medians),
            true_auroc(LIFT),
        )


def language(generator: Generator) -> Intervals:
    """Bits per base over blocks, and the difference of two predictors of the same tokens."""
    blocks = np.repeat(np.arange(60), generator.integers(50, 150, size=60))
    bases = generator.integers(3, 12, size=len(blocks))
    common = noise(generator, blocks, COMMON)
    bits = {
        "model": bases * (1.9 + 0.3 * common),
        "other": bases * (1.92 + 0.3 * common + 0.1 * noise(generator, blocks, COMMON)),
    }
    rates = bits_per_base(bits, bases, blocks, "model")
    yield "bits per base", rates["model"].bits_per_base, 1.9
    yield "difference of bits per base", rates["other"].difference, -0.02


def simulated_calls(generator: Generator, count: int, lift: float) -> MatchedCalls:
    """Calls in blocks: those with higher scores are more often correct."""
    site_blocks = np.repeat(np.arange(count), generator.poisson(2, size=count))
    called = np.flatnonzero(generator.random(len(site_blocks)) < 0.7)
    wrong = np.repeat(np.arange(count), generator.poisson(3, size=count))
    scores = np.append(
        lift + generator.normal(size=len(called)), generator.normal(size=len(wrong))
    )
    taken = np.append(called, np.full(len(wrong), -1))
    blocks = np.append(site_blocks[called], wrong)
    order = np.argsort(-scores)
    return MatchedCalls(
        expit(scores)[order],
        np.where(taken[order] >= 0, generator.integers(1000, size=len(order)), -1),
        blocks[order],
        site_blocks,
    )


def call_truth() -> list[dict[str, float]]:
    """Metrics of both predictors on much data."""
    generator, ids = np.random.default_rng(1), np.arange(200_000)
    truth = []
    for lift in (LIFT, OTHER_LIFT):
        calls = simulated_calls(generator, len(ids), lift)
        values = weighted_metrics(calls, ids, np.ones((1, len(ids))))
        truth.append(dict(zip(METRICS, values[:, 0].tolist(), strict=True)))
    return truth


CALLS = call_truth()


def true_precision(score: np.ndarray) -> np.ndarray:
    """Probability that a simulated call is correct."""
    return expit(LIFT * (logit(score) - LIFT / 2) + np.log(1.4 / 3))


def calls(generator: Generator) -> Intervals:
    """Calls along a genome, over blocks."""
    first, second = (
        simulated_calls(generator, 150, lift) for lift in (LIFT, OTHER_LIFT)
    )
    metrics = call_metrics({"first": first, "second": second})
    for name in METRICS:
        interval = [metrics["first"][f"{name}{end}"] for end in ENDS]
        yield name.replace("_", " "), interval, CALLS[0][name]
    interval = [metrics["second"][f"difference{end}"] for end in ENDS]
    difference = CALLS[0]["average_precision"] - CALLS[1]["average_precision"]
    yield "difference of average precision", interval, difference


def promised_precision(generator: Generator) -> Intervals:
    """The precision expected of calls, of a map fitted to validation contigs."""
    fitted = fit_calls(
        simulated_calls(generator, 300, LIFT),
        stride=10,
        suppress=100,
        within=100,
        megabases=3.0,
        fitted_on={},
    )
    assert fitted is not None
    for odds in (0.0, 1.0, 2.0):
        score = expit(odds)
        value = [float(side) for side in fitted(score)]
        yield f"expected precision of a call, {score:.2f}", value, true_precision(score)


SETTINGS: dict[str, Callable[[Generator], Intervals]] = {
    "rows": rows,
    "promoters": promoters_alone,
    "promoters, 30 % of the variance common to a block": promoters_in_blocks,
    "bins, positives in few blocks": bins,
    "labeled sequences": outputs,
    "regression": regression,
    "three seeds": seeds,
    "medians over tracks": tracks,
    "masked tokens": language,
    "calls": calls,
    "calibrated calls": promised_precision,
}


def coverage(setting: str, studies: int = STUDIES) -> dict[str, float]:
    """Return the fraction of studies whose interval contains the truth, by metric."""
    hits = defaultdict(list)
    for seed in range(studies):
        generator = np.random.default_rng((seed, len(setting)))
        for name, estimate, truth in SETTINGS[setting](generator):
            _, low, high, *_ = estimate
            hits[name].append(bool(low <= truth <= high))
    return {name: float(np.mean(values)) for name, values in hits.items()}


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_intervals_contain_the_truth_in_95_percent_of_studies(setting: str) -> None:
    coverages = coverage(setting)
    wrong = {
        name: value for name, value in coverages.items() if not 0.93 <= value <= 0.97
    }
    assert not wrong


if __name__ == "__main__":
    import sys

    studies = int(sys.argv[1]) if sys.argv[1:] else STUDIES
    print("| setting | metric | coverage |\n| --- | --- | --- |")
    for setting in sys.argv[2:] or SETTINGS:
        for name, value in coverage(setting, studies).items():
            print(f"| {setting} | {name} | {100 * value:.1f} % |", flush=True)
