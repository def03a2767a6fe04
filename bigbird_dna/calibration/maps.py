"""Calibration maps of a model's probabilities.

A map belongs to one output of a model. It is fitted on validation rows only, and stored as numbers (not code)
in `calibration.json` of the model's directory. Both kinds preserve the order of rows, except ties.

Both kinds are fitted to smoothed labels, as in Platt (1999): with m positives and n negatives, a positive
counts as (m + 1) / (m + 2), a negative as 1 / (n + 2). No calibrated probability is therefore 0 or 1, which
no number of rows could prove.

The file contains the SHA-256 of the weights it was fitted for. It can be added to a
trained model, or replaced, without changing any other file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ModelError

Flags = NDArray[np.bool_]
Array = NDArray[Any]

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

NEAREST = 2.0**-25
"""Probabilities are clipped to `NEAREST` … 1 − `NEAREST` (half a float32 step below 1) before log-odds."""

LARGEST = (
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
    slope: float = Field(gt=0, le=LARGEST)
    intercept: float = Field(ge=-LARGEST, le=LARGEST)

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


def log_odds(probabilities: ArrayLike) -> Floats:
    """Return natural log-odds of probabilities clipped by `NEAREST` at both ends."""
    p = np.clip(np.asarray(probabilities, np.float64), NEAREST, 1 - NEAREST)
    from scipy.special import logit  # slow to import

    odds: Floats = logit(p)
    return odds


FILE = "calibration.json"
FORMAT = 1
_WEIGHTS = "weights_sha256"


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
