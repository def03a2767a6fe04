"""Fitting of calibration maps to the probabilities and labels of validation rows.

Both methods learn smoothed labels, as Platt's (1999): of m positives and n negatives a positive counts as
(m + 1) / (m + 2), a negative as 1 / (n + 2). So no calibrated probability is 0 or 1, which no prior could
move and no number of rows could prove.

Negatives may weigh less than positives, `negative_weight` instead of 1: where there are more of them than the
share of positives that probabilities are to hold for has. Then n is the sum of their weights.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.calibration.maps import CalibrationMap, Floats, Isotonic, Platt, log_odds
from bigbird_dna.config import CalibrationMethod

LEAST = 10
"""Rows of each class that a track needs for a map of its own."""
LEAST_ISOTONIC = 50
"""Rows of each class that a track needs for isotonic regression, where that is asked for."""
MANY = 1000
"""Rows of each class from which on `auto` is isotonic: with fewer its curve follows single rows."""
LEAST_SLOPE = 1e-3
"""Of `Platt`: scores that rank rows no better than chance keep their order, and become nearly equal."""

_STEPS = 100


class Fitted(NamedTuple):
    """A map with the rows that it was fitted to."""

    map: CalibrationMap
    positives: int
    negatives: int
    shared: bool = False  # by all tracks, as it has too few rows of its own

    @property
    def prior(self) -> float:
        """The share of positives."""
        return self.positives / (self.positives + self.negatives)


def fit_map(
    labels: ArrayLike,
    probabilities: ArrayLike,
    method: CalibrationMethod = "auto",
    negative_weight: float = 1.0,
) -> Fitted | None:
    """Fit a map to rows (N,) of one track; None where a class has fewer than `LEAST`, by weight.

    "auto" is isotonic from `MANY` rows of each class on, and else Platt's; "isotonic" is Platt's too where a
    class has fewer than `LEAST_ISOTONIC`.
    """
    y, p = np.asarray(labels).astype(bool), np.asarray(probabilities, np.float64)
    positives = int(y.sum())
    negatives = round((len(y) - positives) * negative_weight)
    fewest = min(positives, negatives)
    if fewest < LEAST:
        return None
    needed = {"auto": MANY, "isotonic": LEAST_ISOTONIC, "platt": None}[method]
    isotonic = needed is not None and fewest >= needed
    fit = fit_isotonic if isotonic else fit_platt
    made: Isotonic | Platt = fit(y, p, negative_weight)
    return Fitted(made, positives, negatives)


def fit_tracks(
    labels: NDArray[np.uint8], probabilities: NDArray[np.float32], method: CalibrationMethod = "auto"
) -> list[Fitted] | None:
    """A map for each track of rows × tracks (N, T); None if all tracks together have too few of a class.

    A track with fewer than `LEAST` positives or negatives gets the one line that fits all tracks' rows
    together best (Platt's), and that track's own counts.
    """
    own = [fit_map(labels[:, track], probabilities[:, track], method) for track in range(labels.shape[1])]
    if all(own):
        return [one for one in own if one is not None]
    whole = fit_map(labels.ravel(), probabilities.ravel(), "platt")
    if whole is None:
        return None
    counts = labels.sum(axis=0, dtype=np.int64).tolist()
    return [
        Fitted(whole.map, count, len(labels) - count, shared=True) if one is None else one
        for one, count in zip(own, counts, strict=True)
    ]


def smoothed(labels: NDArray[np.bool_], negative_weight: float = 1.0) -> Floats:
    """Labels (N,) as Platt (1999, section 2.2) smooths them."""
    positives = int(labels.sum())
    negatives = (len(labels) - positives) * negative_weight
    return np.where(labels, (positives + 1) / (positives + 2), 1 / (negatives + 2))


def fit_platt(labels: NDArray[np.bool_], probabilities: Floats, negative_weight: float = 1.0) -> Platt:
    """The line on log-odds of the largest likelihood; its slope is `LEAST_SLOPE` at least."""
    slope, intercept = fit_line(log_odds(probabilities), labels, LEAST_SLOPE, negative_weight)
    return Platt(slope=slope, intercept=intercept)


def fit_line(
    scores: Floats, labels: NDArray[np.bool_], least_slope: float, negative_weight: float = 1.0
) -> tuple[float, float]:
    """Slope, `least_slope` at least, and intercept of the log-odds of labels (N,) by scores (N,).

    They are those of the largest likelihood of smoothed labels, by Newton's method. Its logarithm is concave,
    and strictly so unless all scores are equal.
    """
    t = smoothed(labels, negative_weight)
    weights = np.where(labels, 1.0, negative_weight)
    slope, intercept = _newton(scores, t, weights)
    if slope < least_slope:
        slope, intercept = least_slope, _newton(scores, t, weights, least_slope)[1]
    return slope, intercept


def _newton(x: Floats, t: Floats, weights: Floats, slope: float | None = None) -> tuple[float, float]:
    """Slope and intercept, or for a given slope the intercept, of the largest likelihood."""
    design = np.stack([x, np.ones_like(x)], axis=1)
    free = np.array([slope is None, True])
    w = np.array([1.0 if slope is None else slope, 0.0])
    loss = _loss(design @ w, t, weights)
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-np.clip(design @ w, -700, 700)))
        gradient = design.T @ (weights * (p - t))
        curvature = (design * (weights * p * (1 - p))[:, None]).T @ design + 1e-12 * len(x) * np.eye(2)
        step = np.zeros(2)
        step[free] = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
        # Full steps overshoot where rows are nearly separated.
        while (found := _loss(design @ (w - step), t, weights)) > loss and np.abs(step).max() > 1e-12:
            step /= 2
        w, before, loss = w - step, loss, found
        if abs(before - loss) <= 1e-12 * abs(before) and np.abs(step).max() < 1e-8:
            break
    return float(w[0]), float(w[1])


def _loss(odds: Floats, t: Floats, weights: Floats) -> float:
    return float(weights @ (np.logaddexp(0, odds) - t * odds))


def fit_isotonic(labels: NDArray[np.bool_], probabilities: Floats, negative_weight: float = 1.0) -> Isotonic:
    """The rising curve of the least squares (Zadrozny & Elkan 2002), by the ends of its level blocks."""
    from sklearn.isotonic import IsotonicRegression

    weights = np.where(labels, 1.0, negative_weight)
    model = IsotonicRegression().fit(probabilities, smoothed(labels, negative_weight), weights)
    x, y = model.X_thresholds_.astype(np.float64), model.y_thresholds_.astype(np.float64)
    return Isotonic(scores=tuple(x.tolist()), probabilities=tuple(np.maximum.accumulate(y).tolist()))
