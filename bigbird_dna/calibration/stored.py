"""`calibration.json` of a model directory: the maps of a model's outputs, and what they were fitted on.

It vouches for itself: it has the SHA-256 of the weights that it was fitted for, and of its own content. So it
can be put beside a trained model, or replaced there, without a change of any other file.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from bigbird_dna.calibration.fitting import Fitted
from bigbird_dna.calibration.maps import CalibrationMap, CalibrationPart, Floats32, as_scored
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import ModelError, UsageError, check_fraction, shortened

FILE = "calibration.json"
FORMAT = 1
_LARGEST = 1 << 26  # bytes
_OWN, _WEIGHTS = "sha256", "weights_sha256"

Finish = Callable[[NDArray[Any]], Floats32]
"""From a model's probabilities (…, T), or (N,) of a model with one output, to calibrated ones."""


class CalibratedTrack(CalibrationPart):
    """The map of one output; `track` is None of a promoter model."""

    track: str | None = None
    map: CalibrationMap
    positives: Annotated[int, Field(ge=0, le=2**53)]
    negatives: Annotated[int, Field(ge=0, le=2**53)]
    shared: bool = False  # fitted to all tracks together: this one has too few positives or negatives

    @property
    def prior(self) -> float:
        """The fraction of positives among the rows that it was fitted to."""
        return self.positives / (self.positives + self.negatives)


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
    def of(cls, fitted: Mapping[str | None, Fitted], fitted_on: Mapping[str, Any]) -> Self:
        """From the maps by the names of their tracks."""
        tracks = (CalibratedTrack(track=name, **one._asdict()) for name, one in fitted.items())
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
    content = read_object(path, _LARGEST)
    if content.get("format") != FORMAT:
        said = shortened(repr(content.get("format")))
        raise ModelError(f"{path}: format {said}, this version reads format {FORMAT}")
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
