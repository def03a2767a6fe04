"""How often the 95 % intervals of the reports cover the truth in simulated studies (results/intervals.md).

`python -m docs.generators.coverage NAME` writes `docs/results/data/NAME.json`. Scores are normal; a share of
their variance is common to all rows of a block, so rows that are near each other are alike. A line of the
output is a setting, a metric and what the interval is calculated over: blocks, as in the reports, or rows, to
show the difference. The truth of an AUROC is that of rows in different blocks, in closed form; that of other
metrics is their value on a thousand times as much data.
"""

import argparse
import datetime
import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from scipy.stats import norm

from bigbird_dna.metrics.auroc import Estimate, auroc, auroc_difference
from bigbird_dna.metrics.reliability import calibration_metrics
from bigbird_dna.metrics.resampling import (
    SampledMetrics,
    binary_metrics,
    bits_per_base,
    mean_auroc,
    mean_over_seeds,
    resampled_medians,
    sampled_aurocs,
)

from .collect import header, write_run

Values = NDArray[np.float64]
Ids = NDArray[np.int64]
Found = dict[tuple[str, str], Estimate]  # (metric, over) → value with interval
Rng = np.random.Generator

LIFT, OTHER = (
    1.4,
    1.2,
)  # distances of the classes in standard deviations, of two predictors
OF_SEEDS, OF_TRACKS = (
    0.1,
    0.4,
)  # standard deviations of this distance over models and over tracks
COMMON = 0.7  # share of the variance that the scores of two predictors have in common
SHARES = (0.0, 0.3)  # of the variance that a block has in common
RESAMPLES = 300
TRUTHS = 1000  # studies whose rows give the truth
PROMOTER_BLOCKS, TRACK_BLOCKS, POSITIVE = (
    200,
    250,
    0.03,
)  # blocks of a study; fraction of positive bins
SETTINGS = {
    **{
        "common": SHARES[1],
        "lift": LIFT,
        "other": OTHER,
        "of_seeds": OF_SEEDS,
        "of_tracks": OF_TRACKS,
    },
    **{"blocks": PROMOTER_BLOCKS, "track_blocks": TRACK_BLOCKS, "positive": POSITIVE},
}


class Study(NamedTuple):
    """Labels and block ids (N,) of simulated rows."""

    labels: Ids
    blocks: Ids


def derived(rng: Rng, blocks: int = PROMOTER_BLOCKS) -> Study:
    """Promoters, one to nine in a block, each with a negative in the same block."""
    ids = np.repeat(np.arange(blocks), rng.integers(1, 10, blocks)).repeat(2)
    return Study(np.arange(len(ids)) % 2, ids)


def elsewhere(rng: Rng, blocks: int = PROMOTER_BLOCKS) -> Study:
    """Promoters, and as many negatives anywhere in the genome."""
    ids = np.repeat(np.arange(blocks), rng.integers(1, 10, blocks))
    return Study(
        np.repeat([1, 0], len(ids)), np.append(ids, rng.integers(blocks, size=len(ids)))
    )


def sequences(rng: Rng) -> Study:
    """Sequences of a user, 120 promoters and 350 others, each a block of its own."""
    return Study(np.repeat([1, 0], [120, 350]), np.arange(470))


def bins(rng: Rng, blocks: int = TRACK_BLOCKS, concentration: float = 0.6) -> Study:
    """Bins of 250 bp of a track, 3 % positive on average, most of these in a few blocks."""
    share = rng.beta(POSITIVE * concentration, (1 - POSITIVE) * concentration, blocks)
    labels = (rng.random((blocks, 40)) < share[:, None]).astype(np.int64).ravel()
    return Study(labels, np.arange(blocks).repeat(40))


def normal(rng: Rng, blocks: Ids, share: float) -> Values:
    """Standard normal values of the rows (N,), of which `share` of the variance is that of the block."""
    own = rng.normal(size=len(blocks))
    return (
        math.sqrt(share) * rng.normal(size=blocks.max() + 1)[blocks]
        + math.sqrt(1 - share) * own
    )


def scores(rng: Rng, study: Study, share: float, lifts: ArrayLike) -> Values:
    """Scores (M, N) of predictors with these distances of the classes (M,), similar to each other."""
    shared = math.sqrt(COMMON) * normal(rng, study.blocks, share)
    own = [
        math.sqrt(1 - COMMON) * normal(rng, study.blocks, share)
        for _ in np.asarray(lifts)
    ]
    return (
        np.multiply.outer(np.asarray(lifts, float), study.labels)
        + shared
        + np.stack(own)
    )


def probabilities(values: Values, labels: Ids) -> Values:
    """Calibrated probabilities of scores with the distance `LIFT`."""
    return np.asarray(expit(LIFT * (values - LIFT / 2) + logit(labels.mean())))


def areas(draw: Callable[[Rng], Study], rng: Rng, share: float, seed: int) -> Found:
    """AUROC of a predictor, and its difference to another."""
    study = draw(rng)
    first, second = scores(rng, study, share, (LIFT, OTHER))
    found: Found = {}
    for over, ids in (("blocks", study.blocks), ("rows", None)):
        found["AUROC", over] = auroc(study.labels, first, ids)
        found["difference of AUROC", over] = auroc_difference(
            study.labels, first, second, ids
        ).estimate
    return found


def promoters(draw: Callable[[Rng], Study], rng: Rng, share: float, seed: int) -> Found:
    """Also the other metrics of a report of promoters, and means over three seeds as in Table 6."""
    found, study = areas(draw, rng, share, seed), draw(rng)
    labels, blocks = study
    values = probabilities(scores(rng, study, share, [LIFT])[0], labels)
    some = binary_metrics(labels, values, seed, blocks=blocks, resamples=RESAMPLES)
    held = calibration_metrics(labels, values, blocks=blocks)
    found["AUPRC", "blocks"] = Estimate(some.auprc, some.auprc_low, some.auprc_high)
    found["F1", "blocks"] = Estimate(some.f1, some.f1_low, some.f1_high)
    found["MCC", "blocks"] = Estimate(some.mcc, some.mcc_low, some.mcc_high)
    found["Brier score", "blocks"] = Estimate(
        held.brier, held.brier_low, held.brier_high
    )
    error = held.ece_debiased, held.ece_debiased_low, held.ece_debiased_high
    found["calibration error", "rows"] = Estimate(*error)
    models = scores(
        rng, study, share, np.repeat([LIFT, OTHER], 3) + rng.normal(0, OF_SEEDS, 6)
    )
    reached = sampled_aurocs(labels, models, blocks)
    of_classes = [len(np.unique(blocks[labels == label])) for label in (1, 0)]
    first, second = reached.of(range(3)), reached.of(range(3, 6))
    found["mean AUROC of three seeds", "blocks and seeds"] = mean_auroc(
        first, of_classes
    )
    found["difference of such means", "blocks and seeds"] = mean_over_seeds(
        first.minus(second)
    )
    return found


def medians(tracks: int, rng: Rng, share: float, seed: int) -> Found:
    """Median AUROC over tracks, on the same bins and with similar scores."""
    lifts = LIFT + rng.normal(0, OF_TRACKS, tracks)
    values = []
    noise = scores(
        rng,
        Study(
            np.zeros(TRACK_BLOCKS * 40, np.int64), np.arange(TRACK_BLOCKS).repeat(40)
        ),
        share,
        0 * lifts,
    )
    for lift, row in zip(lifts, noise, strict=True):
        labels = bins(rng).labels
        values.append(auroc(labels, lift * labels + row).value)
    row = np.array([values])
    medians = SampledMetrics.of_resamples(
        np.median(row, axis=1), resampled_medians(row, seed, RESAMPLES), tracks - 1
    )
    found = mean_over_seeds(medians, (0.0, 1.0))
    return {(f"median AUROC of {tracks} tracks", "tracks"): found}


def tokens(rng: Rng, share: float, seed: int) -> Found:
    """Bits per base of a model, and the difference to a baseline."""
    ids = np.arange(100).repeat(30)
    bases, rate = rng.integers(1, 9, len(ids)), 1.9 + 0.4 * normal(rng, ids, share)
    bits = {
        "model": bases * rate,
        "baseline": bases * (rate + 0.02 + rng.normal(0, 0.05, len(ids))),
    }
    found: Found = {}
    for over, names in (("blocks", ids), ("rows", np.arange(len(ids)))):
        rates = bits_per_base(bits, bases, names, "model")
        found["bits per base", over] = rates["model"].bits_per_base
        found["difference of bits per base", over] = rates["baseline"].difference
    return found


def truths(draw: Callable[[Rng], Study]) -> dict[str, float]:
    """True values of the metrics of studies."""
    rng = np.random.default_rng(0)
    lifts = np.stack(
        [lift + rng.normal(0, OF_SEEDS, 1_000_000) for lift in (LIFT, OTHER)]
    )
    first, second = norm.cdf(lifts / math.sqrt(2)).mean(axis=1)
    one, other = norm.cdf(np.array([LIFT, OTHER]) / math.sqrt(2))
    labels = np.concatenate([draw(rng).labels for _ in range(TRUTHS)])
    values = probabilities(LIFT * labels + rng.normal(size=len(labels)), labels)
    whole = binary_metrics(labels, values, resamples=0)
    return {
        "AUROC": one,
        "difference of AUROC": one - other,
        "mean AUROC of three seeds": first,
        "difference of such means": first - second,
        "AUPRC": whole.auprc,
        "F1": whole.f1,
        "MCC": whole.mcc,
        "Brier score": float(((values - labels) ** 2).mean()),
        "calibration error": 0.0,
    }


class Setting(NamedTuple):
    """A kind of study: draws its rows and returns its metrics, whose true values are known."""

    name: str
    run: Callable[[Rng, float, int], Found]
    true: Mapping[str, float]
    shares: tuple[float, ...] = SHARES


def settings() -> Iterator[Setting]:
    """Yield all kinds of studies."""
    yield Setting(
        "promoters, negatives derived from them",
        partial(promoters, derived),
        truths(derived),
    )
    yield Setting(
        "promoters, negatives from elsewhere",
        partial(promoters, elsewhere),
        truths(elsewhere),
    )
    yield Setting(
        "custom sequences", partial(promoters, sequences), truths(sequences), (0.0,)
    )
    yield Setting("bins, positives in few blocks", partial(areas, bins), truths(bins))
    for tracks in (20, 80):
        middle = float(norm.cdf(LIFT / math.sqrt(2)))
        true = {f"median AUROC of {tracks} tracks": middle}
        yield Setting("tracks of a group", partial(medians, tracks), true)
    yield Setting(
        "masked tokens",
        tokens,
        {"bits per base": 1.9, "difference of bits per base": -0.02},
    )


def covered(setting: Setting, share: float, studies: int) -> Iterator[dict[str, Any]]:
    """Yield one row per metric: how often its interval contains the truth, and its mean width."""
    inside: dict[tuple[str, str], list[bool]] = {}
    widths: dict[tuple[str, str], list[float]] = {}
    for number in range(studies):
        for key, (_, low, high) in setting.run(
            np.random.default_rng((1, number)), share, number
        ).items():
            if not math.isnan(low):
                inside.setdefault(key, []).append(low <= setting.true[key[0]] <= high)
                widths.setdefault(key, []).append(high - low)
    for key, hits in inside.items():
        row = {
            "setting": setting.name,
            "common": share,
            "metric": key[0],
            "over": key[1],
            "studies": len(hits),
        }
        yield row | {
            "coverage": float(np.mean(hits)),
            "width": round(float(np.mean(widths[key])), 4),
        }


def main() -> None:
    """Write the JSON file of the simulation."""
    parser = argparse.ArgumentParser(prog="python -m docs.generators.coverage")
    parser.add_argument("name", help="NAME of docs/results/data/NAME.json")
    parser.add_argument(
        "--studies", type=int, default=1000, help="simulated studies of each kind"
    )
    given = parser.parse_args()
    began, rows = time.monotonic(), []
    for setting in settings():
        for share in setting.shares:
            rows += covered(setting, share, given.studies)
            print(
                f"{setting.name}, {share:.0%} in common: {time.monotonic() - began:.0f} s",
                flush=True,
            )
    minutes = round((time.monotonic() - began) / 60, 1)
    command = (
        f"python -m docs.generators.coverage {given.name} --studies {given.studies}"
    )
    document = header(datetime.date.today(), command, minutes)
    write_run(
        given.name, document | {"tables": {"settings": [SETTINGS], "coverage": rows}}
    )


if __name__ == "__main__":
    main()
