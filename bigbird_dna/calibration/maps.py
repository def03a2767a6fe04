"""Maps from a model's probabilities to calibrated ones, and their shift to another share of positives.

A map belongs to one output of a model. It is fitted on validation rows alone, and stored as numbers that are
no code, in `calibration.json` of the model's directory. Neither kind of map turns an order round.

Both kinds learn smoothed labels, as Platt's (1999): of m positives and n negatives a positive counts as
(m + 1) / (m + 2), a negative as 1 / (n + 2). So no calibrated probability is 0 or 1, which no prior could
move and no number of rows could prove. Negatives may weigh less than positives, `negative_weight` instead of
1, where there are more of them than the share of positives that probabilities are to hold for has. Then n is
the sum of their weights.

The file vouches for itself: it has the SHA-256 of the weights that it was fitted for, and of its own content.
So it can be put beside a trained model, or replaced there, without a change of any other file.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bigbird_dna.config import CalibrationMethod
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ModelError, UsageError, check_fraction, shortened

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

NEAREST = 2.0**-25
"""Log-odds are those of a probability from here to 1 less this: half a step of float32 below 1."""

_LARGEST = 1e6  # of a line's numbers: log-odds times it are numbers still
_Probability = Annotated[float, Field(gt=0, lt=1)]


class CalibrationPart(BaseModel):
    """A part of `calibration.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Platt(CalibrationPart):
    """A line on the scale of log-odds (Platt 1999): strictly rising, as its slope is above 0.

    Probabilities nearer to 0 or 1 than `NEAREST` count as lying there, and become equal.
    """

    method: Literal["platt"] = "platt"
    slope: float = Field(gt=0, le=_LARGEST)
    intercept: float = Field(ge=-_LARGEST, le=_LARGEST)

    def __call__(self, probabilities: ArrayLike) -> Floats:
        """Calibrated probabilities, of the same shape."""
        return from_log_odds(self.slope * log_odds(probabilities) + self.intercept)


class Isotonic(CalibrationPart):
    """A rising curve through K points, joined by lines and level beyond both ends.

    It is level between the ends of a block of rows that it takes together: what differs there becomes equal.
    """

    method: Literal["isotonic"] = "isotonic"
    scores: tuple[Annotated[float, Field(ge=0, le=1)], ...]  # (K,) of the model, rising
    probabilities: tuple[_Probability, ...]  # (K,) calibrated, not falling

    @model_validator(mode="after")
    def _is_a_rising_curve(self) -> Self:
        x, y = np.asarray(self.scores), np.asarray(self.probabilities)
        if len(x) != len(y) or not len(x):
            raise ValueError(f"{len(x)} scores and {len(y)} probabilities are not the points of a curve")
        if (np.diff(x) <= 0).any() or (np.diff(y) < 0).any():
            raise ValueError("scores must rise, and probabilities must not fall")
        return self

    def __call__(self, probabilities: ArrayLike) -> Floats:
        """Calibrated probabilities, of the same shape."""
        values = np.asarray(probabilities, np.float64)
        return np.interp(values, self.scores, self.probabilities)


CalibrationMap = Annotated[Platt | Isotonic, Field(discriminator="method")]


class CalibratedTrack(CalibrationPart):
    """The map of one output with the rows that it was fitted to; `track` is None of a promoter model."""

    track: str | None = None
    map: CalibrationMap
    positives: Annotated[int, Field(ge=0, le=2**53)]
    negatives: Annotated[int, Field(ge=0, le=2**53)]
    shared: bool = False  # fitted to all tracks together: this one has too few positives or negatives

    @property
    def prior(self) -> float:
        """The fraction of positives among the rows that it was fitted to."""
        return self.positives / (self.positives + self.negatives)


def log_odds(probabilities: ArrayLike) -> Floats:
    """Natural log-odds, with `NEAREST` at both ends."""
    p = np.clip(np.asarray(probabilities, np.float64), NEAREST, 1 - NEAREST)
    odds: Floats = np.log(p) - np.log1p(-p)
    return odds


def from_log_odds(odds: ArrayLike) -> Floats:
    """The probabilities of natural log-odds."""
    x = np.asarray(odds, np.float64)
    shrunk = np.exp(-np.abs(x))  # at most 1: nothing overflows
    found: Floats = np.where(x >= 0, 1.0, shrunk) / (1 + shrunk)
    return found


def shift_prior(probabilities: ArrayLike, fitted: float, wanted: float) -> Floats:
    """Probabilities that hold where a fraction `fitted` is positive, as they are where it is `wanted`.

    Bayes' rule on odds: a row's likelihood ratio is its odds over those of the fraction, and stays the same
    (Saerens et al. 2002, equation 2.4; Elkan 2001, theorem 2). It is exact if positives and negatives look
    each like those of the calibration, and only their numbers differ.
    """
    p = np.asarray(probabilities, np.float64)
    ratio = wanted / (1 - wanted) * (1 - fitted) / fitted
    weighted = ratio * p
    shifted: Floats = weighted / (weighted + (1 - p))
    return shifted


def as_scored(calibrated: ArrayLike, fitted: float, prior: float | None = None) -> Floats32:
    """Calibrated probabilities as scores: shifted from the share `fitted` to `prior`, if there is one."""
    values = np.asarray(calibrated)
    return (values if prior is None else shift_prior(values, fitted, prior)).astype(np.float32)


LEAST = 10
"""Rows of each class that a track needs for a map of its own."""
LEAST_ISOTONIC = 50
"""Rows of each class that a track needs for isotonic regression, where that is asked for."""
MANY = 1000
"""Rows of each class from which on `auto` is isotonic: with fewer its curve follows single rows."""
LEAST_SLOPE = 1e-3
"""Of `Platt`: scores that rank rows no better than chance keep their order, and become nearly equal."""

_STEPS = 100


def fit_map(
    labels: ArrayLike,
    probabilities: ArrayLike,
    method: CalibrationMethod = "auto",
    negative_weight: float = 1.0,
) -> CalibratedTrack | None:
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
    made: CalibrationMap = fit(y, p, negative_weight)
    return CalibratedTrack(map=made, positives=positives, negatives=negatives)


def fit_tracks(
    labels: NDArray[np.uint8], probabilities: NDArray[np.float32], method: CalibrationMethod = "auto"
) -> list[CalibratedTrack] | None:
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
        CalibratedTrack(map=whole.map, positives=count, negatives=len(labels) - count, shared=True)
        if one is None
        else one
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


FILE = "calibration.json"
FORMAT = 1
_LARGEST_FILE = 1 << 26  # bytes
_OWN, _WEIGHTS = "sha256", "weights_sha256"

Finish = Callable[[NDArray[Any]], Floats32]
"""From a model's probabilities (…, T), or (N,) of a model with one output, to calibrated ones."""


class Calibration(CalibrationPart):
    """The maps of all outputs of a model, in their order, and what they were fitted on."""

    format: Literal[1] = 1
    fitted_on: Mapping[str, Any]
    tracks: Annotated[tuple[CalibratedTrack, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _tracks_have_rows(self) -> Self:
        for one in self.tracks:
            if not one.positives + one.negatives:
                raise ValueError("a track was fitted to no row")
        return self

    @classmethod
    def of(cls, fitted: Mapping[str | None, CalibratedTrack], fitted_on: Mapping[str, Any]) -> Self:
        """From the maps by the names of their tracks."""
        tracks = (one.model_copy(update={"track": name}) for name, one in fitted.items())
        return cls(fitted_on=dict(fitted_on), tracks=tuple(tracks))

    def __call__(self, probabilities: NDArray[Any]) -> Floats32:
        """Calibrated probabilities, (…, T), or (N,) of a calibration of one output without a name."""
        values = np.asarray(probabilities)
        if self.tracks[0].track is None:
            return as_scored(self.tracks[0].map(values), self.tracks[0].prior)
        found = np.empty(values.shape, np.float32)
        for column, one in enumerate(self.tracks):
            found[..., column] = one.map(values[..., column])
        return found

    def only(self, columns: Sequence[int]) -> Self:
        """That of some outputs, in this order."""
        return self.model_copy(update={"tracks": tuple(self.tracks[column] for column in columns)})

    def finish(self, prior: float | None = None) -> Finish:
        """What `__call__` gives, moved to the fraction `prior` of positives; None: as on the validation rows.

        `UsageError`: `prior` isn't above 0 and below 1, or the model has tracks, each with a fraction of its
        own.
        """
        if prior is None:
            return self
        check_fraction("prior", prior, ends=False)
        if self.tracks[0].track is not None:
            raise UsageError(f"prior {prior}: goes with promoter models; each track has a share of its own")
        fitted = self.tracks[0].prior

        def shifted(probabilities: NDArray[Any]) -> Floats32:
            return as_scored(self.tracks[0].map(np.asarray(probabilities)), fitted, prior)

        return shifted


def write_calibration(path: Path, calibration: Calibration, weights_sha256: str) -> None:
    """Write `calibration.json` of the model whose weights file has this checksum, whole or not at all."""
    content = {**calibration.model_dump(mode="json"), _WEIGHTS: weights_sha256}
    write_json(path, {**content, _OWN: own_digest(content)})


def read_calibration(path: Path, weights_sha256: str | None = None) -> Calibration:
    """Read `calibration.json`, which must be that of these weights; `ModelError` names what is wrong."""
    content = read_object(path, _LARGEST_FILE)
    if content.get("format") != FORMAT:
        found_format = shortened(repr(content.get("format")))
        raise ModelError(f"{path}: format {found_format}, this version reads format {FORMAT}")
    own, weights = content.pop(_OWN, None), content.get(_WEIGHTS)
    try:
        found = own_digest(content)
    except RecursionError:
        raise ModelError(f"{path}: damaged: it is nested too deeply") from None
    if own != found:
        raise ModelError(
            f"{path}: damaged, or changed since it was written: its content has another checksum than it "
            "says; calibrate the model again"
        )
    if weights_sha256 is not None and weights != weights_sha256:
        raise ModelError(
            f"{path}: was fitted for another model: for weights with sha256 {shortened(str(weights), 12)}, "
            f"these have {weights_sha256[:12]}…; calibrate the model again"
        )
    content.pop(_WEIGHTS, None)
    try:
        return Calibration.model_validate(content)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise ModelError(f"{path}: not a calibration: {where}: {shortened(fault['msg'], 200)}") from None


def own_digest(content: Mapping[str, Any]) -> str:
    """SHA-256 of a calibration's content, which it says itself."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
