"""Calibration maps of a model's probabilities, and their adjustment to another prevalence.

A map belongs to one output of a model. It is fitted on validation rows only, and stored as numbers (not code)
in `calibration.json` of the model's directory. Both kinds preserve the order of rows, except ties.

Both kinds are fitted to smoothed labels, as in Platt (1999): with m positives and n negatives, a positive
counts as (m + 1) / (m + 2), a negative as 1 / (n + 2). No calibrated probability is therefore 0 or 1, which
no prior could change and no number of rows could prove. Negatives may weigh less than positives
(`negative_weight` instead of 1) if they were oversampled; n is then the sum of their weights.

The file contains the SHA-256 of the weights it was fitted for. It can be added to a
trained model, or replaced, without changing any other file.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bigbird_dna.config.section import CalibrationMethod
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ModelError, UsageError, check_fraction

Flags = NDArray[np.bool_]
Array = NDArray[Any]

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
        odds = self.slope * log_odds(probabilities) + self.intercept
        from scipy.special import expit  # slow to import

        return np.asarray(expit(odds))


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
    positives: Annotated[int, Field(ge=0)]
    negatives: Annotated[int, Field(ge=0)]
    shared: bool = False  # fitted to all tracks together, because this track has too few rows of a class

    @property
    def prior(self) -> float:
        """Fraction of positives among the rows of the fit."""
        return self.positives / (self.positives + self.negatives)


def log_odds(probabilities: ArrayLike) -> Floats:
    """Return natural log-odds of probabilities clipped by `NEAREST` at both ends."""
    p = np.clip(np.asarray(probabilities, np.float64), NEAREST, 1 - NEAREST)
    from scipy.special import logit  # slow to import

    odds: Floats = logit(p)
    return odds


def shift_prior(probabilities: ArrayLike, fitted: float, prior: float) -> Floats:
    """Adjust probabilities calibrated for prevalence `fitted` to the prevalence `prior`.

    Bayes' rule on odds: the likelihood ratio of a row, its odds over the prevalence odds, stays the same
    (Saerens et al. 2002, equation 2.4; Elkan 2001, theorem 2). This is exact if the distributions of
    positives and of negatives equal those of the calibration, and only their proportion differs.
    """
    p = np.asarray(probabilities, np.float64)
    ratio = prior / (1 - prior) * (1 - fitted) / fitted
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
    needed = {"auto": MANY, "isotonic": LEAST_ISOTONIC, "platt": np.inf}[method]
    fit = fit_isotonic if fewest >= needed else fit_platt
    return CalibratedTrack(
        map=fit(y, p, negative_weight), positives=positives, negatives=negatives
    )


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


def smoothed(labels: Flags, negative_weight: float = 1.0) -> Floats:
    """Return labels (N,) smoothed as in Platt (1999, section 2.2)."""
    positives = int(labels.sum())
    negatives = (len(labels) - positives) * negative_weight
    return np.where(labels, (positives + 1) / (positives + 2), 1 / (negatives + 2))


def fit_platt(
    labels: Flags, probabilities: Floats, negative_weight: float = 1.0
) -> Platt:
    """Fit the line on log-odds by maximum likelihood, with a slope of at least `LEAST_SLOPE`."""
    slope, intercept = fit_line(
        log_odds(probabilities), labels, LEAST_SLOPE, negative_weight
    )
    return Platt(slope=slope, intercept=intercept)


def fit_line(
    scores: Floats,
    labels: Flags,
    least_slope: float,
    negative_weight: float = 1.0,
) -> tuple[float, float]:
    """Return slope (at least `least_slope`) and intercept of the log-odds of labels (N,) as a line in scores.

    Fits smoothed labels by maximum likelihood; the log-likelihood is concave.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    targets = smoothed(labels, negative_weight)
    weights = np.where(labels, 1.0, negative_weight) / len(labels)

    def loss(line: Floats) -> tuple[float, Floats]:
        odds = line[0] * scores + line[1]
        errors = weights * (expit(odds) - targets)
        value = weights @ (np.logaddexp(0, odds) - targets * odds)
        return value, np.array([errors @ scores, errors.sum()])

    fit = minimize(
        loss,
        (1.0, 0.0),
        jac=True,
        method="L-BFGS-B",
        bounds=[(least_slope, _LARGEST), (-_LARGEST, _LARGEST)],
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000},
    )
    slope, intercept = fit.x.tolist()
    return slope, intercept


def fit_isotonic(
    labels: Flags, probabilities: Floats, negative_weight: float = 1.0
) -> Isotonic:
    """Fit isotonic regression (Zadrozny & Elkan 2002), stored as the ends of its constant blocks."""
    weights = np.where(labels, 1.0, negative_weight)
    return isotonic_curve(probabilities, smoothed(labels, negative_weight), weights)


def isotonic_curve(x: Floats, y: Floats, weights: Array) -> Isotonic:
    """Return the non-decreasing least-squares fit to points with weights (N,)."""
    from sklearn.isotonic import IsotonicRegression

    model = IsotonicRegression().fit(x, y, weights)
    rising = np.maximum.accumulate(model.y_thresholds_)
    return Isotonic(
        scores=tuple(model.X_thresholds_.tolist()), probabilities=tuple(rising.tolist())
    )


FILE = "calibration.json"
FORMAT = 1
_WEIGHTS = "weights_sha256"

Finish = Callable[[NDArray[Any]], Floats32]
"""Converts a model's probabilities, (…, T), or (N,) for a single output, to calibrated ones."""


class Calibration(CalibrationPart):
    """The maps of all outputs of a model, in order, and the data of the fit."""

    format: Literal[1] = 1
    fitted_on: Mapping[str, Any]
    tracks: Annotated[tuple[CalibratedTrack, ...], Field(min_length=1)]

    @classmethod
    def of(
        cls, fitted: Mapping[str | None, CalibratedTrack], fitted_on: Mapping[str, Any]
    ) -> Self:
        """Build a calibration from maps by track name."""
        tracks = [
            track.model_copy(update={"track": name}) for name, track in fitted.items()
        ]
        return cls(fitted_on=dict(fitted_on), tracks=tuple(tracks))

    def __call__(self, probabilities: Array) -> Floats32:
        """Return calibrated probabilities, (…, T), or (N,) for a single unnamed output."""
        values = np.asarray(probabilities)
        if self.tracks[0].track is None:
            return self.tracks[0].map(values).astype(np.float32)
        calibrated = np.empty(values.shape, np.float32)
        for column, track in enumerate(self.tracks):
            calibrated[..., column] = track.map(values[..., column])
        return calibrated

    def only(self, columns: Sequence[int]) -> Self:
        """Return the calibration of the selected outputs, in this order."""
        tracks = tuple(self.tracks[column] for column in columns)
        return self.model_copy(update={"tracks": tracks})

    def finish(self, prior: float | None = None) -> Finish:
        """Return a calibration function adjusted to the prevalence `prior`; None: that of validation rows.

        `UsageError`: `prior` is not in (0, 1), or the model has tracks, which have different prevalences.
        """
        if prior is None:
            return self
        check_fraction("prior", prior, ends=False)
        track = self.tracks[0]
        if track.track is not None:
            raise UsageError(
                f"prior {prior}: applies to promoter models only; tracks use their own prevalence"
            )
        return lambda values: as_scored(
            track.map(np.asarray(values)), track.prior, prior
        )


def write_calibration(
    path: Path, calibration: CalibrationPart, weights_sha256: str
) -> None:
    """Write a file of a model's directory atomically, for weights with this checksum."""
    write_json(path, {**calibration.model_dump(mode="json"), _WEIGHTS: weights_sha256})


def read_calibration(path: Path, weights_sha256: str | None = None) -> Calibration:
    """Read `calibration.json`, which must match the weights; `ModelError` names the fault."""
    return read_part(path, Calibration, weights_sha256)


def read_part(path: Path, kind: type[P], weights_sha256: str | None = None) -> P:
    """Read a file of `write_calibration` as its kind; errors as in `read_calibration`."""
    content = read_object(path)
    if content.get("format") != FORMAT:
        raise ModelError(
            f"{path}: format {content.get('format')!r:.60} is not supported; this version reads {FORMAT}"
        )
    content.pop("sha256", None)  # of the content, in files of earlier versions
    weights = content.pop(_WEIGHTS, None)
    if weights_sha256 is not None and weights != weights_sha256:
        raise ModelError(
            f"{path}: fitted for another model: for weights with SHA-256 {weights!s:.12}, but these have "
            f"{weights_sha256[:12]}…; calibrate the model again"
        )
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise ModelError(
            f"{path}: invalid calibration: {where}: {fault['msg']:.200}"
        ) from None
