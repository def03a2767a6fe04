import json
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.calibration.maps import (
    FILE,
    CalibratedTrack,
    Calibration,
    Isotonic,
    Platt,
    fit_map,
    own_digest,
    read_calibration,
    shift_prior,
    write_calibration,
)
from bigbird_dna.errors import ModelError, UsageError
from tests.calibration.sources import mixture
from tests.golden.messages import fails

WEIGHTS = "ab" * 32
LINE = CalibratedTrack(map=Platt(slope=0.7, intercept=-0.25), positives=30, negatives=70)
CURVE = CalibratedTrack(
    map=Isotonic(scores=(0.25, 0.5), probabilities=(0.125, 0.75)), positives=0, negatives=100, shared=True
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_calibration(tmp_path / FILE, Calibration.of({"a": LINE, "b": CURVE}, {"split": "valid"}), WEIGHTS)
    return tmp_path / FILE


def test_a_calibration_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    rows = mixture(3000, 0.5, seed=1)
    for method in ("platt", "isotonic"):
        fitted = fit_map(rows.labels, rows.raw, method)  # type: ignore[arg-type]
        assert fitted is not None
        calibration = Calibration.of({None: fitted}, {"windows": 3000})
        write_calibration(tmp_path / FILE, calibration, WEIGHTS)
        found = read_calibration(tmp_path / FILE, WEIGHTS)
        assert found == calibration
        assert (found(rows.raw) == calibration(rows.raw)).all()


def test_each_track_has_its_own_map(path: Path) -> None:
    found = read_calibration(path)
    values = np.array([[0.3, 0.3], [0.9, 0.9]], np.float32)
    expected = np.stack([LINE.map(values[:, 0]), CURVE.map(values[:, 1])], 1).astype(np.float32)
    assert found(values).dtype == np.float32
    assert (found(values) == expected).all()
    assert (found(values[:, None, :]) == expected[:, None, :]).all()  # (N, K, T)
    assert (found.only([1])(values[:, 1:]) == expected[:, 1:]).all()


def test_a_prior_is_of_promoter_models_and_a_share() -> None:
    found = Calibration.of({None: LINE}, {})
    values = np.array([0.2, 0.8], np.float32)
    shifted = found.finish(0.01)(values)
    assert shifted == pytest.approx(shift_prior(LINE.map(values), 0.3, 0.01), rel=1e-6)
    assert found.finish(0.3)(values) == pytest.approx(found(values), rel=1e-6)
    for prior in (0.0, 1.0, -1.0, float("nan")):
        with fails(UsageError):
            found.finish(prior)
    with fails(UsageError):
        Calibration.of({"a": LINE}, {}).finish(0.1)


def _written(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def _edited(*keys: str | int, **fields: object) -> Callable[[Path], None]:
    """Fields changed below these keys; the file's own checksum is right, as of another version's file."""

    def edit(path: Path) -> None:
        values = json.loads(path.read_text())
        del values["sha256"]
        reduce(getitem, keys, values).update(fields)
        path.write_text(json.dumps({**values, "sha256": own_digest(values)}))

    return edit


FIRST = ("tracks", 0)
SPOILED: list[Callable[[Path], object]] = [
    Path.unlink,
    *(_written(text) for text in (b"{", b"\xff", b"[]", b'{"format": 1, "format": 1}')),
    lambda path: path.write_text(path.read_text().replace("0.7", "0.8")),
    *(_edited(format=2), _edited(tracks=[]), _edited(more=1), _edited(weights_sha256="0" * 64)),
    *(_edited(*FIRST, "map", slope=slope) for slope in (-1, 1e300)),
    _edited(*FIRST, "map", method="pickle"),
    *(_edited(*FIRST, positives=10**400), _edited(*FIRST, positives=0, negatives=0)),
]


@pytest.mark.parametrize("spoil", SPOILED, ids=range(len(SPOILED)))
def test_a_bad_file_is_refused_in_a_sentence(path: Path, spoil: Callable[[Path], None]) -> None:
    spoil(path)
    with fails(ModelError, path) as caught:
        read_calibration(path, WEIGHTS)
    assert "\n" not in str(caught.value)
