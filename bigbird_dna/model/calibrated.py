"""What turns a model's probabilities into calibrated ones: from `calibration.json` of its directory."""

from pathlib import Path

from bigbird_dna.calibration.stored import FILE, Calibration, Finish, read_calibration
from bigbird_dna.checks import check_share
from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.model.model import Model
from bigbird_dna.model.settings import ChromatinSettings

_COMMANDS = {"promoter": "calibrate-promoter", "chromatin": "calibrate-chromatin"}


def calibration_of(model: Model) -> Calibration:
    """The calibration in a model's directory.

    Raises
    ------
    ModelError
        The model has none; or it is damaged, of other weights or of other tracks.
    """
    path = calibration_file(model)
    if path is None:
        command = _COMMANDS.get(model.task)
        hint = f"; `bigbird-dna {command}` fits one on validation data" if command else ""
        raise ModelError(f"{model.name}: has no calibration ({FILE}){hint}")
    found = read_calibration(path, model.sha256)
    settings = model.settings
    expected = [one.track for one in settings.tracks] if isinstance(settings, ChromatinSettings) else [None]
    if [one.track for one in found.tracks] != expected:
        raise ModelError(f"{path}: its tracks are not those of the model")
    return found


def calibration_file(model: Model) -> Path | None:
    """`calibration.json` of a model's directory; None where there is none, or the model was never saved."""
    path = None if model.path is None else model.path / FILE
    return path if path is not None and path.is_file() else None


def check_calibrated(calibrated: bool, prior: float | None) -> None:
    """`UsageError` for a prior that isn't above 0 and below 1, or of probabilities that aren't calibrated."""
    if prior is None:
        return
    if not calibrated:
        raise UsageError(f"prior {prior}: is for calibrated probabilities; ask for these too (--calibrated)")
    check_share("prior", prior)


def finish_of(model: Model, calibrated: bool, prior: float | None = None) -> Finish | None:
    """What is done to a model's probabilities in the end: None, or its calibration, shifted to `prior`.

    Raises
    ------
    UsageError
        As of `check_calibrated` and `Calibration.finish`.
    ModelError
        As of `calibration_of`.
    """
    check_calibrated(calibrated, prior)
    return calibration_of(model).finish(prior) if calibrated else None
