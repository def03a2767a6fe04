"""Fit calibration maps to validation rows: Platt scaling and isotonic regression."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bigbird_dna.calibration.maps import (
    LARGEST,
    Array,
    CalibratedTrack,
    Flags,
    Floats,
    Floats32,
    Isotonic,
    Platt,
    log_odds,
)
from bigbird_dna.config.section import CalibrationMethod

LEAST = 10
"""Rows of each class needed for a separate map of a track."""
LEAST_ISOTONIC = 50
"""Rows of each class needed for isotonic regression, if requested."""
MANY = 1000
"""Rows of each class from which `auto` is isotonic; with fewer, the curve follows single rows."""
LEAST_SLOPE = 1e-3
"""Least slope of `Platt`: scores no better than chance keep their order, but become nearly equal."""


def fit_map(
    labels: ArrayLike,
    probabilities: ArrayLike,
    method: CalibrationMethod = "auto",
) -> CalibratedTrack | None:
    """Fit a map to rows (N,) of one track; None if a class has fewer than `LEAST` rows.

    "auto" uses isotonic regression from `MANY` rows of each class on, otherwise Platt scaling. "isotonic"
    also falls back to Platt scaling if a class has fewer than `LEAST_ISOTONIC` rows.
    """
    y, p = np.asarray(labels).astype(bool), np.asarray(probabilities, np.float64)
    positives = int(y.sum())
    negatives = len(y) - positives
    fewest = min(positives, negatives)
    if fewest < LEAST:
        return None

    needed = {"auto": MANY, "isotonic": LEAST_ISOTONIC, "platt": np.inf}[method]
    fit = fit_isotonic if fewest >= needed else fit_platt
    return CalibratedTrack(map=fit(y, p), positives=positives, negatives=negatives)


def fit_tracks(
    labels: NDArray[np.uint8],
    probabilities: Floats32,
    method: CalibrationMethod = "auto",
) -> list[CalibratedTrack] | None:
    """Fit a map per track of rows × tracks (N, T); None if all tracks together have too few rows of a class.

    A track with fewer than `LEAST` positives or negatives gets the Platt map fitted to the rows of all tracks
    together, with its own counts.
    """
    tracks = []
    common: CalibratedTrack | None = None
    for y, p in zip(labels.T, probabilities.T, strict=True):
        track = fit_map(y, p, method)
        if track is None:
            common = common or fit_map(labels.ravel(), probabilities.ravel(), "platt")
            if common is None:
                return None

            positives = int(y.sum())
            track = CalibratedTrack(
                map=common.map,
                positives=positives,
                negatives=len(y) - positives,
                shared=True,
            )

        tracks.append(track)

    return tracks


def smoothed(labels: Flags) -> Floats:
    """Return labels (N,) smoothed as in Platt (1999, section 2.2)."""
    positives = int(labels.sum())
    negatives = len(labels) - positives
    return np.where(labels, (positives + 1) / (positives + 2), 1 / (negatives + 2))


def fit_platt(labels: Flags, probabilities: Floats) -> Platt:
    """Fit the line on log-odds by maximum likelihood, with a slope of at least `LEAST_SLOPE`."""
    from sklearn.linear_model import LogisticRegression

    odds, targets = log_odds(probabilities), smoothed(labels)
    # A smoothed label t is a positive of weight t and a negative of weight 1 - t.
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(
        np.tile(odds, 2)[:, None],
        np.repeat([1, 0], len(odds)),
        np.concatenate([targets, 1 - targets]),
    )
    slope, intercept = float(model.coef_[0, 0]), float(model.intercept_[0])
    if slope < LEAST_SLOPE:
        slope = LEAST_SLOPE
        intercept = float(log_odds(targets.mean()) - slope * odds.mean())

    return Platt(slope=min(slope, LARGEST), intercept=intercept)


def fit_isotonic(labels: Flags, probabilities: Floats) -> Isotonic:
    """Fit isotonic regression (Zadrozny & Elkan 2002), stored as the ends of its constant blocks."""
    return isotonic_curve(probabilities, smoothed(labels))


def isotonic_curve(x: Floats, y: Floats, weights: Array | None = None) -> Isotonic:
    """Return the non-decreasing least-squares fit to points (N,), each with the weight 1 or with `weights` (N,)."""
    from sklearn.isotonic import IsotonicRegression

    model = IsotonicRegression().fit(x, y, weights)
    rising = np.maximum.accumulate(model.y_thresholds_)
    return Isotonic(
        scores=tuple(model.X_thresholds_.tolist()), probabilities=tuple(rising.tolist())
    )
