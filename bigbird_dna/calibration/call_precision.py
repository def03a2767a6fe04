"""The expected precision of calls: a map from a call's score to the probability that the call is correct.

A calibrated probability of a window is not that of a call: a call is the highest score of many windows, and
the prevalence of promoters in a genome is another than among validation windows. This map is therefore fitted
to the calls of whole validation contigs, which have the genome's prevalence. A call is correct as defined in
`calibration.calls`. The map is one of `calibration.maps`, which never decreases: isotonic regression on the
fractions of correct calls in groups of at least `GROUP` calls of similar scores. The few calls with the
highest scores thus have the precision of a group, however many of them happen to be correct. A line on
log-odds (Platt) is the map of few correct calls only: incomplete annotation limits the precision of the best
calls, and a line has no such limit.

Its interval is that of contigs resampled in blocks of 10 kb, with a map fitted to each resample. The expected
false-discovery rate of a score is the mean of 1 - precision over the validation calls with at least this
score. It never decreases as the score falls, so that a rate is one threshold, known before any scan.

`calls.json` in a model's directory is bound to the weights like `calibration.json`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from bigbird_dna.calibration.calls import MatchedCalls
from bigbird_dna.calibration.fitting import (
    LEAST,
    LEAST_ISOTONIC,
    fit_platt,
    isotonic_curve,
)
from bigbird_dna.calibration.maps import (
    CalibrationMap,
    CalibrationPart,
    Floats,
    log_odds,
    read_part,
)

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

FILE = "calls.json"
RESAMPLES = 200
GROUP = 30
"""Calls of the group with the highest scores, the smallest group."""
_GROUPS = 20  # of which the sizes increase geometrically
_POINTS = 400  # of the curves; ranks of calls increase geometrically
_SEED = 1

_Fractions = tuple[Annotated[float, Field(ge=0, le=1)], ...]
_Count = Annotated[int, Field(ge=0)]

# Axes: C calls, K points of the curves.


class CallPrecision(CalibrationPart):
    """Expected precision of a model's calls, and how the calls were made; `calls.json`."""

    format: Literal[1] = 1
    fitted_on: Mapping[str, Any]
    stride: Annotated[int, Field(ge=1)]  # distance of windows, bp
    suppress: _Count  # calls of a strand are farther apart, bp
    within: _Count  # largest distance of a correct call to its TSS, bp
    megabases: Annotated[
        float, Field(gt=0)
    ]  # validation sequence; both strands count once
    tss: Annotated[int, Field(ge=1)]
    map: CalibrationMap
    # (K,), by descending score: interval of the precision, and calls at or above the score.
    scores: _Fractions
    low: _Fractions
    high: _Fractions
    expected_fdr: _Fractions
    calls: tuple[Annotated[int, Field(ge=1)], ...]
    found: tuple[_Count, ...]  # TSSs that these calls take

    def __call__(self, scores: ArrayLike) -> tuple[Floats, Floats, Floats]:
        """Return the expected precision of calls with these scores (C,), and its interval: low and high."""
        values = np.asarray(scores, np.float64)
        expected = self.map(values)
        odds, points = log_odds(values), log_odds(self.scores[::-1])
        low = np.interp(odds, points, self.low[::-1])
        high = np.interp(odds, points, self.high[::-1])
        return expected, np.minimum(low, expected), np.maximum(high, expected)

    def at_rate(self, fdr: float) -> int | None:
        """Return the row with the lowest score and an expected false-discovery rate of at most `fdr`, if any."""
        reached = int(np.searchsorted(self.expected_fdr, fdr, "right"))
        return reached - 1 if reached else None

    def best(self) -> int:
        """Return the row with the largest F1 of precision and recall on the validation contigs."""
        return int((np.array(self.found) / (np.array(self.calls) + self.tss)).argmax())


def read_call_precision(path: Path, weights_sha256: str | None = None) -> CallPrecision:
    """Read `calls.json`, which must match the weights; `ModelError` names the fault."""
    return read_part(path, CallPrecision, weights_sha256)


def fit_calls(
    calls: MatchedCalls,
    *,
    stride: int,
    suppress: int,
    within: int,
    megabases: float,
    fitted_on: Mapping[str, Any],
) -> CallPrecision | None:
    """Fit the expected precision to the calls of validation contigs (`match_tracks`).

    None: fewer than `LEAST` of the calls are correct, or fewer are wrong. Other arguments are stored.
    """
    correct = calls.gaps >= 0
    fitted = _fit_precision(correct, calls.scores)
    if fitted is None:
        return None

    rows = _points(calls.scores)
    scores = calls.scores[rows]
    low, high = _interval(correct, calls, scores)
    wrong = np.cumsum(1 - fitted(calls.scores))[rows] / (rows + 1)
    return CallPrecision(
        fitted_on=dict(fitted_on),
        stride=stride,
        suppress=suppress,
        within=within,
        megabases=megabases,
        tss=len(calls.site_blocks),
        map=fitted,
        scores=tuple(scores.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        expected_fdr=tuple(np.maximum.accumulate(wrong).tolist()),
        calls=tuple((rows + 1).tolist()),
        found=tuple(np.cumsum(correct)[rows].tolist()),
    )


def _fit_precision(correct: Flags, scores: Floats) -> CalibrationMap | None:
    """Return the map of calls (C,); None if fewer than `LEAST` are correct, or fewer are wrong."""
    fewest = min(int(correct.sum()), int((~correct).sum()))
    if fewest < LEAST:
        return None

    if fewest < LEAST_ISOTONIC:
        return fit_platt(correct, scores)

    order = np.argsort(-scores, kind="stable")
    first = min(GROUP, len(order))
    ends = np.unique(np.geomspace(first, len(order), _GROUPS).astype(np.int64))
    sizes = np.diff(ends, prepend=0)
    means = np.add.reduceat(scores[order], ends - sizes) / sizes
    counts = np.add.reduceat(correct[order].astype(np.float64), ends - sizes)
    # A rate is never 0 or 1.
    return isotonic_curve(means, (counts + 0.5) / (sizes + 1), sizes)


def _points(scores: Floats) -> Ints:
    """Return indices of descending scores (C,): last rows of equal scores, at about geometric ranks."""
    last = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
    ranks = np.unique(np.geomspace(1, len(scores), _POINTS).astype(np.int64)) - 1
    return np.asarray(np.unique(last[np.searchsorted(last, ranks)]), np.int64)


def _interval(
    correct: Flags,
    calls: MatchedCalls,
    scores: Floats,
) -> tuple[Floats, Floats]:
    """Return the 95 % interval of the precision at descending scores (K,), from resampled blocks."""
    order = np.argsort(calls.blocks, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(calls.blocks[order])) + 1)
    generator = np.random.default_rng(_SEED)
    resampled = []
    for _ in range(RESAMPLES):
        blocks = generator.integers(len(groups), size=len(groups))
        rows = np.concatenate([groups[block] for block in blocks])
        fitted = _fit_precision(correct[rows], calls.scores[rows])
        if fitted is not None:  # too few correct calls by chance
            resampled.append(fitted(scores))

    if not resampled:
        return np.zeros(len(scores)), np.ones(len(scores))

    low, high = np.percentile(resampled, [2.5, 97.5], axis=0)
    return np.minimum.accumulate(low), np.minimum.accumulate(high)
