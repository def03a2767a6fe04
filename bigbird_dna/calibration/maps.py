"""Calibration maps of a model's probabilities, and their adjustment to another prevalence.

A map belongs to one output of a model. It is fitted on validation rows only, and stored as numbers (not code)
in `calibration.json` of the model's directory. Both kinds preserve the order of rows, except ties.

Both kinds are fitted to smoothed labels, as in Platt (1999): with m positives and n negatives, a positive
counts as (m + 1) / (m + 2), a negative as 1 / (n + 2). No calibrated probability is therefore 0 or 1, which
no prior could change and no number of rows could prove. Negatives may weigh less than positives
(`negative_weight` instead of 1) if they were oversampled; n is then the sum of their weights.

The file contains the SHA-256 of the weights it was fitted for, and of its own content. It can be added to a
trained model, or replaced, without changing any other file.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bigbird_dna.config.section import CalibrationMethod
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ModelError, UsageError, check_fraction, shortened

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

NEAREST = 2.0**-25
"""Probabilities are clipped to `NEAREST` … 1 − `NEAREST` (half a float32 step below 1) before log-odds."""

_LARGEST = (
    1e6  # limit of slope and intercept, so that products with log-odds stay finite
)
_Probability = Annotated[float, Field(gt=0, lt=1)]


class CalibrationPart(BaseModel):
    """Base class of the objects in `calibration.json`, and of other files that are bound to weights."""

    remedy: ClassVar[str] = "calibrate the model again"
    """What to do if a file is damaged, or of another model."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


P = TypeVar("P", bound=CalibrationPart)


class Platt(CalibrationPart):
    """A line on the scale of log-odds (Platt 1999), strictly increasing because its slope is above 0.

    Probabilities closer to 0 or 1 than `NEAREST` are clipped, and become equal.
    """

    method: Literal["platt"] = "platt"
    slope: float = Field(gt=0, le=_LARGEST)
    intercept: float = Field(ge=-_LARGEST, le=_LARGEST)

    def __call__(self, probabilities: ArrayLike) -> Floats:
        """Return calibrated probabilities, of the same shape."""
        return from_log_odds(self.slope * log_odds(probabilities) + self.intercept)


class Isotonic(CalibrationPart):
    """A non-decreasing curve through K points, piecewise linear, and constant beyond both ends.

    It is constant within a block of rows pooled by the fit, where different probabilities become equal.
    """

    method: Literal["isotonic"] = "isotonic"
    scores: tuple[
        Annotated[float, Field(ge=0, le=1)], ...
    ]  # (K,) of the model, increasing
    probabilities: tuple[_Probability, ...]  # (K,) calibrated, non-decreasing

    @model_validator(mode="after")
    def _is_a_rising_curve(self) -> Self:
        x, y = np.asarray(self.scores), np.asarray(self.probabilities)
        if len(x) != len(y) or not len(x):
            raise ValueError(
                f"needs as many scores as probabilities, found {len(x)} and {len(y)}"
            )
        if (np.diff(x) <= 0).any() or (np.diff(y) < 0).any():
            raise ValueError(
                "scores must increase, and probabilities must not decrease"
            )
        return self

    def __call__(self, probabilities: ArrayLike) -> Floats:
        """Return calibrated probabilities, of the same shape."""
        values = np.asarray(probabilities, np.float64)
        return np.interp(values, self.scores, self.probabilities)


CalibrationMap = Annotated[Platt | Isotonic, Field(discriminator="method")]


class CalibratedTrack(CalibrationPart):
    """The map of one output, and the numbers of rows of its fit; `track` is None for a promoter model."""

    track: str | None = None
    map: CalibrationMap
    positives: Annotated[int, Field(ge=0, le=2**53)]
    negatives: Annotated[int, Field(ge=0, le=2**53)]
    shared: bool = False  # fitted to all tracks together, because this track has too few rows of a class

    @property
    def prior(self) -> float:
        """Fraction of positives among the rows of the fit."""
        return self.positives / (self.positives + self.negatives)


def log_odds(probabilities: ArrayLike) -> Floats:
    """Return natural log-odds of probabilities clipped by `NEAREST` at both ends."""
    p = np.clip(np.asarray(probabilities, np.float64), NEAREST, 1 - NEAREST)
    odds: Floats = np.log(p) - np.log1p(-p)
    return odds


def from_log_odds(odds: ArrayLike) -> Floats:
    """Return the probabilities of natural log-odds."""
    x = np.asarray(odds, np.float64)
    shrunk = np.exp(-np.abs(x))  # at most 1: no overflow
    found: Floats = np.where(x >= 0, 1.0, shrunk) / (1 + shrunk)
    return found


def shift_prior(probabilities: ArrayLike, fitted: float, wanted: float) -> Floats:
    """Adjust probabilities calibrated for prevalence `fitted` to the prevalence `wanted`.

    Bayes' rule on odds: the likelihood ratio of a row, its odds over the prevalence odds, stays the same
    (Saerens et al. 2002, equation 2.4; Elkan 2001, theorem 2). This is exact if the distributions of
    positives and of negatives equal those of the calibration, and only their proportion differs.
    """
    p = np.asarray(probabilities, np.float64)
    ratio = wanted / (1 - wanted) * (1 - fitted) / fitted
    weighted = ratio * p
    shifted: Floats = weighted / (weighted + (1 - p))
    return shifted


def as_scored(
    calibrated: ArrayLike, fitted: float, prior: float | None = None
) -> Floats32:
    """Return calibrated probabilities as scores, adjusted from prevalence `fitted` to `prior` if given."""
    values = np.asarray(calibrated)
    return (values if prior is None else shift_prior(values, fitted, prior)).astype(
        np.float32
    )


LEAST = 10
"""Rows of each class needed for a separate map of a track."""
LEAST_ISOTONIC = 50
"""Rows of each class needed for isotonic regression, if requested."""
MANY = 1000
"""Rows of each class from which `auto` is isotonic; with fewer, the curve follows single rows."""
LEAST_SLOPE = 1e-3
"""Least slope of `Platt`: scores no better than chance keep their order, but become nearly equal."""

_STEPS = 100


def fit_map(
    labels: ArrayLike,
    probabilities: ArrayLike,
    method: CalibrationMethod = "auto",
    negative_weight: float = 1.0,
) -> CalibratedTrack | None:
    """Fit a map to rows (N,) of one track; None if a class has fewer than `LEAST` rows, by weight.

    "auto" uses isotonic regression from `MANY` rows of each class on, otherwise Platt scaling. "isotonic"
    also falls back to Platt scaling if a class has fewer than `LEAST_ISOTONIC` rows.
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
    labels: NDArray[np.uint8],
    probabilities: NDArray[np.float32],
    method: CalibrationMethod = "auto",
) -> list[CalibratedTrack] | None:
    """Fit a map per track of rows × tracks (N, T); None if all tracks together have too few rows of a class.

    A track with fewer than `LEAST` positives or negatives gets the Platt map fitted to the rows of all tracks
    together, with its own counts.
    """
    own = [
        fit_map(labels[:, track], probabilities[:, track], method)
        for track in range(labels.shape[1])
    ]
    if all(own):
        return [one for one in own if one is not None]
    whole = fit_map(labels.ravel(), probabilities.ravel(), "platt")
    if whole is None:
        return None
    counts = labels.sum(axis=0, dtype=np.int64).tolist()
    return [
        CalibratedTrack(
            map=whole.map, positives=count, negatives=len(labels) - count, shared=True
        )
        if one is None
        else one
        for one, count in zip(own, counts, strict=True)
    ]


def smoothed(labels: NDArray[np.bool_], negative_weight: float = 1.0) -> Floats:
    """Return labels (N,) smoothed as in Platt (1999, section 2.2)."""
    positives = int(labels.sum())
    negatives = (len(labels) - positives) * negative_weight
    return np.where(labels, (positives + 1) / (positives + 2), 1 / (negatives + 2))


def fit_platt(
    labels: NDArray[np.bool_], probabilities: Floats, negative_weight: float = 1.0
) -> Platt:
    """Fit the line on log-odds by maximum likelihood, with a slope of at least `LEAST_SLOPE`."""
    slope, intercept = fit_line(
        log_odds(probabilities), labels, LEAST_SLOPE, negative_weight
    )
    return Platt(slope=slope, intercept=intercept)


def fit_line(
    scores: Floats,
    labels: NDArray[np.bool_],
    least_slope: float,
    negative_weight: float = 1.0,
) -> tuple[float, float]:
    """Return slope (at least `least_slope`) and intercept of the log-odds of labels (N,) as a line in scores.

    Fits smoothed labels by maximum likelihood with Newton's method. The log-likelihood is concave, and
    strictly concave unless all scores are equal.
    """
    t = smoothed(labels, negative_weight)
    weights = np.where(labels, 1.0, negative_weight)
    slope, intercept = _newton(scores, t, weights)
    if slope < least_slope:
        slope, intercept = least_slope, _newton(scores, t, weights, least_slope)[1]
    return slope, intercept


def _newton(
    x: Floats, t: Floats, weights: Floats, slope: float | None = None
) -> tuple[float, float]:
    """Return the maximum-likelihood slope and intercept, or the intercept for a given slope."""
    design = np.stack([x, np.ones_like(x)], axis=1)
    free = np.array([slope is None, True])
    w = np.array([1.0 if slope is None else slope, 0.0])
    loss = _loss(design @ w, t, weights)
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-np.clip(design @ w, -700, 700)))
        gradient = design.T @ (weights * (p - t))
        curvature = (
            design * (weights * p * (1 - p))[:, None]
        ).T @ design + 1e-12 * len(x) * np.eye(2)
        step = np.zeros(2)
        step[free] = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
        # Halve steps that overshoot, as with nearly separated rows.
        while (found := _loss(design @ (w - step), t, weights)) > loss and np.abs(
            step
        ).max() > 1e-12:
            step /= 2
        w, before, loss = w - step, loss, found
        if abs(before - loss) <= 1e-12 * abs(before) and np.abs(step).max() < 1e-8:
            break
    return float(w[0]), float(w[1])


def _loss(odds: Floats, t: Floats, weights: Floats) -> float:
    return float(weights @ (np.logaddexp(0, odds) - t * odds))


def fit_isotonic(
    labels: NDArray[np.bool_], probabilities: Floats, negative_weight: float = 1.0
) -> Isotonic:
    """Fit isotonic regression (Zadrozny & Elkan 2002), stored as the ends of its constant blocks."""
    from sklearn.isotonic import IsotonicRegression

    weights = np.where(labels, 1.0, negative_weight)
    model = IsotonicRegression().fit(
        probabilities, smoothed(labels, negative_weight), weights
    )
    x, y = (
        model.X_thresholds_.astype(np.float64),
        model.y_thresholds_.astype(np.float64),
    )
    return Isotonic(
        scores=tuple(x.tolist()), probabilities=tuple(np.maximum.accumulate(y).tolist())
    )


FILE = "calibration.json"
FORMAT = 1
_OWN, _WEIGHTS = "sha256", "weights_sha256"

Finish = Callable[[NDArray[Any]], Floats32]
"""Converts a model's probabilities, (…, T), or (N,) for a single output, to calibrated ones."""


class Calibration(CalibrationPart):
    """The maps of all outputs of a model, in order, and the data of the fit."""

    format: Literal[1] = 1
    fitted_on: Mapping[str, Any]
    tracks: Annotated[tuple[CalibratedTrack, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _tracks_have_rows(self) -> Self:
        for one in self.tracks:
            if not one.positives + one.negatives:
                raise ValueError("a track has no rows")
        return self

    @classmethod
    def of(
        cls, fitted: Mapping[str | None, CalibratedTrack], fitted_on: Mapping[str, Any]
    ) -> Self:
        """Build a calibration from maps by track name."""
        tracks = (
            one.model_copy(update={"track": name}) for name, one in fitted.items()
        )
        return cls(fitted_on=dict(fitted_on), tracks=tuple(tracks))

    def __call__(self, probabilities: NDArray[Any]) -> Floats32:
        """Return calibrated probabilities, (…, T), or (N,) for a single unnamed output."""
        values = np.asarray(probabilities)
        if self.tracks[0].track is None:
            return as_scored(self.tracks[0].map(values), self.tracks[0].prior)
        found = np.empty(values.shape, np.float32)
        for column, one in enumerate(self.tracks):
            found[..., column] = one.map(values[..., column])
        return found

    def only(self, columns: Sequence[int]) -> Self:
        """Return the calibration of the selected outputs, in this order."""
        return self.model_copy(
            update={"tracks": tuple(self.tracks[column] for column in columns)}
        )

    def finish(self, prior: float | None = None) -> Finish:
        """Return a calibration function adjusted to the prevalence `prior`; None: that of validation rows.

        `UsageError`: `prior` is not in (0, 1), or the model has tracks, which have different prevalences.
        """
        if prior is None:
            return self
        check_fraction("prior", prior, ends=False)
        if self.tracks[0].track is not None:
            raise UsageError(
                f"prior {prior}: applies to promoter models only; tracks use their own prevalence"
            )
        fitted = self.tracks[0].prior

        def shifted(probabilities: NDArray[Any]) -> Floats32:
            return as_scored(
                self.tracks[0].map(np.asarray(probabilities)), fitted, prior
            )

        return shifted


def write_calibration(
    path: Path, calibration: CalibrationPart, weights_sha256: str
) -> None:
    """Write a file of a model's directory atomically, for weights with this checksum."""
    content = {**calibration.model_dump(mode="json"), _WEIGHTS: weights_sha256}
    write_json(path, {**content, _OWN: own_digest(content)})


def read_calibration(path: Path, weights_sha256: str | None = None) -> Calibration:
    """Read `calibration.json`, which must match the weights; `ModelError` names the fault."""
    return read_part(path, Calibration, weights_sha256)


def read_part(path: Path, kind: type[P], weights_sha256: str | None = None) -> P:
    """Read a file of `write_calibration` as its kind; errors as in `read_calibration`."""
    content = read_object(path)
    if content.get("format") != FORMAT:
        found_format = shortened(repr(content.get("format")))
        raise ModelError(
            f"{path}: format {found_format} is not supported; this version reads {FORMAT}"
        )
    own, weights = content.pop(_OWN, None), content.get(_WEIGHTS)
    try:
        found = own_digest(content)
    except RecursionError:
        raise ModelError(f"{path}: damaged: it is nested too deeply") from None
    if own != found:
        raise ModelError(
            f"{path}: damaged, or changed since it was written: its checksum does not match its content; "
            f"{kind.remedy}"
        )
    if weights_sha256 is not None and weights != weights_sha256:
        raise ModelError(
            f"{path}: fitted for another model: for weights with SHA-256 {shortened(str(weights), 12)}, "
            f"but these have {weights_sha256[:12]}…; {kind.remedy}"
        )
    content.pop(_WEIGHTS, None)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise ModelError(
            f"{path}: invalid calibration: {where}: {shortened(fault['msg'], 200)}"
        ) from None


def own_digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a calibration's content, which the file also contains."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
