"""Maps from a model's probabilities to calibrated ones, and their shift to another share of positives.

A map belongs to one output of a model. It is fitted on validation rows alone (`fitting`), and stored as
numbers that are no code (`stored`). Neither map turns an order round.
"""

from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

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
