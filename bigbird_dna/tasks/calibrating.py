"""A calibration's place: the directory of its model, or a copy of that."""

import shutil
from pathlib import Path

from bigbird_dna.calibration.stored import FILE, Calibration, write_calibration
from bigbird_dna.directories import atomic_directory, check_directory, into_directory
from bigbird_dna.errors import UsageError
from bigbird_dna.model.catalogue import find_model
from bigbird_dna.model.content import list_files
from bigbird_dna.model.model import Model


def find_target(given: Path, output: Path | None) -> Path:
    """The directory of a model that is to be calibrated.

    Raises
    ------
    UsageError
        `output` can't be written; or it is None and the model comes with the package, which isn't changed.
    """
    path = find_model(given)
    if output is not None:
        check_directory(output, [path])
    elif path != Path(given):
        raise UsageError(
            f"{given}: a model that comes with the package is not changed: name a directory with -o"
        )
    return path


def install_calibration(model: Model, calibration: Calibration, output: Path | None) -> None:
    """Put a calibration into its model's directory, or with `output` into a copy of that.

    Either appears whole or not at all.
    """
    assert model.path is not None
    if output is None:
        with into_directory(model.path) as files:
            write_calibration(files / FILE, calibration, model.sha256)
        return
    with atomic_directory(output) as directory:
        for name in list_files(model.path):
            if name != FILE:
                shutil.copyfile(model.path / name, directory / name)
        write_calibration(directory / FILE, calibration, model.sha256)


def described(calibration: Calibration) -> str:
    """What the log says of a calibration's maps."""
    methods = [one.map.method for one in calibration.tracks if not one.shared]
    parts = [f"{methods.count(name):,} {name}" for name in ("isotonic", "platt") if name in methods]
    if shared := len(calibration.tracks) - len(methods):
        parts.append(f"{shared:,} with too few positives or negatives by one line for all tracks")
    return ", ".join(parts)
