"""The models, genome, regions and variants of the front doors' tests, and the same models calibrated."""

import shutil
from pathlib import Path

import pytest

from bigbird_dna.calibration.maps import (
    FILE,
    CalibratedTrack,
    Calibration,
    Isotonic,
    Platt,
    write_calibration,
)
from bigbird_dna.disk.atomic import checksum
from tests.test_public_api import home as home

LINE = CalibratedTrack(map=Platt(slope=0.6, intercept=-0.8), positives=40, negatives=60)
CURVE = CalibratedTrack(
    map=Isotonic(scores=(0.2, 0.45, 0.55, 0.8), probabilities=(0.01, 0.1, 0.3, 0.9)),
    positives=20,
    negatives=180,
)


@pytest.fixture(scope="module")
def calibrated(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`promoter` and `chromatin`: the models of `home`, with calibrations."""
    directory = tmp_path_factory.mktemp("calibrated")
    maps: dict[str, dict[str | None, CalibratedTrack]] = {
        "promoter": {None: LINE},
        "chromatin": {"one": LINE, "two": CURVE},
    }
    for name, fitted in maps.items():
        shutil.copytree(home / name, directory / name)
        weights = checksum(home / name / "model.safetensors")
        write_calibration(directory / name / FILE, Calibration.of(fitted, {"split": "valid"}), weights)
    return directory
