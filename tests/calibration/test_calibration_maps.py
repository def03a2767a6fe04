import json
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from bigbird_dna.calibration.fitting import (
    LEAST,
    LEAST_SLOPE,
    MANY,
    fit_isotonic,
    fit_map,
    fit_platt,
    fit_tracks,
    smoothed,
)
from bigbird_dna.calibration.maps import (
    FILE,
    CalibratedTrack,
    Calibration,
    Isotonic,
    Platt,
    log_odds,
    read_calibration,
    write_calibration,
)
from bigbird_dna.errors import ModelError
from tests.calibration.sources import mixture
from tests.golden.messages import fails

SHARES = st.floats(1e-6, 1 - 1e-6)


def test_platts_line_finds_the_distortion_of_a_known_source() -> None:
    rows = mixture(20_000, 0.5, seed=1, slope=1.6, lift=0.4)
    found = fit_platt(rows.labels.astype(bool), rows.raw.astype(float))
    # The model's log-odds are 1.6 true ones + 0.4: the line turns that round.
    assert found.slope == pytest.approx(1 / 1.6, rel=0.04)
    assert found.intercept == pytest.approx(-0.4 / 1.6, abs=0.05)
    assert np.abs(found(rows.raw) - rows.true).mean() < 0.01


def test_platts_line_is_that_of_a_logistic_regression_on_smoothed_labels() -> None:
    """A smoothed label t is a positive of weight t and a negative of weight 1 − t, or parts of these."""
    rows = mixture(2000, 0.25, seed=2)
    labels = rows.labels.astype(bool)
    x, t = log_odds(rows.raw)[:, None], smoothed(labels)
    oracle = LogisticRegression(C=1e12, tol=1e-10, max_iter=10_000)
    both = np.concatenate([t, 1 - t])
    oracle.fit(np.concatenate([x, x]), np.repeat([1, 0], len(x)), both)
    line = fit_platt(labels, rows.raw.astype(float))
    assert (line.slope, line.intercept) == pytest.approx(
        (oracle.coef_[0, 0], oracle.intercept_[0]), rel=1e-3
    )


@pytest.mark.parametrize("apart", [4.0, 50.0])
def test_separated_classes_give_a_finite_line(apart: float) -> None:
    labels = np.repeat([True, False], 50)
    odds = np.where(labels, apart, -apart) + np.linspace(-1, 1, 100)
    found = fit_platt(labels, expit(odds))
    assert 0 < found.slope < 100
    # As if each class had one more row, which is of the other.
    values = found(expit(odds))
    assert values[labels].mean() == pytest.approx(51 / 52, abs=0.002)
    assert values[~labels].mean() == pytest.approx(1 / 52, abs=0.002)


def test_scores_that_tell_nothing_or_the_opposite_keep_their_order() -> None:
    rows = mixture(400, 0.5, seed=3)
    found = fit_platt(rows.labels == 0, rows.raw.astype(float))
    assert found.slope == LEAST_SLOPE
    values = found(np.sort(rows.raw))
    assert (np.diff(values) >= 0).all() and np.ptp(values) < 0.02
    assert values.mean() == pytest.approx((rows.labels == 0).mean(), abs=0.01)
    same = fit_platt(rows.labels == 1, np.full(400, 0.7))
    assert same(0.7) == pytest.approx(rows.labels.mean(), abs=0.01)


def test_the_rising_curve_is_the_best_one_and_never_certain() -> None:
    rows = mixture(300, 0.4, seed=4)
    labels = rows.labels.astype(bool)
    found = fit_isotonic(labels, rows.raw.astype(float))
    values, target = found(rows.raw), smoothed(labels)
    rising = np.argsort(rows.raw, kind="stable")
    assert (np.diff(values[rising]) >= 0).all()
    assert values.min() > 0 and values.max() < 1
    # No rising step function is nearer: Newton's line is one, and so are its roundings.
    loss = ((values - target) ** 2).sum()
    line = fit_platt(labels, rows.raw.astype(float))(rows.raw)
    for other in (line, np.round(line, 1), np.full(len(line), target.mean())):
        assert loss <= ((other - target) ** 2).sum() + 1e-9


def test_the_curve_is_level_in_blocks_and_beyond_its_ends() -> None:
    found = Isotonic(scores=(0.2, 0.4, 0.8), probabilities=(0.1, 0.1, 0.5))
    assert found([0.0, 0.2, 0.3, 0.6, 0.8, 1.0]) == pytest.approx(
        [0.1, 0.1, 0.1, 0.3, 0.5, 0.5]
    )


@given(SHARES, SHARES)
def test_the_line_rises_strictly(one: float, two: float) -> None:
    curve = Platt(slope=0.4, intercept=-2.0)
    low, high = sorted((one, two))
    if high - low > 1e-9:
        assert curve(low) < curve(high)


@pytest.mark.parametrize(
    "values",
    [
        {"slope": 0, "intercept": 0},
        {"slope": float("nan"), "intercept": 0},
        {"scores": (0.1,), "probabilities": (1.0,)},
    ],
)
def test_maps_that_turn_an_order_round_or_are_certain_are_refused(values: dict) -> None:
    with pytest.raises(ValidationError):
        (Platt if "slope" in values else Isotonic)(**values)


def test_the_method_depends_on_the_rarer_class() -> None:
    rows = mixture(4 * MANY, 0.5, seed=5)

    def method(positives: int, negatives: int, asked: str) -> str | None:
        chosen = np.concatenate(
            [
                np.flatnonzero(rows.labels == 1)[:positives],
                np.flatnonzero(rows.labels == 0)[:negatives],
            ]
        )
        found = fit_map(rows.labels[chosen], rows.raw[chosen], asked)
        return None if found is None else found.map.method

    assert method(MANY, MANY, "auto") == "isotonic"
    assert method(MANY, MANY - 1, "auto") == "platt"
    assert method(MANY, MANY, "platt") == "platt"
    assert method(60, 60, "isotonic") == "isotonic"
    assert method(40, 60, "isotonic") == "platt"
    assert method(LEAST, LEAST, "auto") == "platt"
    assert method(LEAST - 1, MANY, "platt") is None


def test_tracks_with_few_positives_share_a_line() -> None:
    parts = [mixture(2000, prior, seed) for seed, prior in enumerate((0.3, 0.2, 0.001))]
    labels = np.stack([rows.labels for rows in parts], 1).astype(np.uint8)
    labels[:, 2] = 0
    raw = np.stack([rows.raw for rows in parts], 1)
    one, two, three = fit_tracks(labels, raw) or []
    assert (one.shared, two.shared, three.shared) == (False, False, True)
    assert three.map == fit_platt(
        labels.ravel().astype(bool), raw.ravel().astype(float)
    )
    assert (three.positives, three.negatives) == (0, 2000)
    assert fit_tracks(np.zeros_like(labels), raw) is None


# As files


WEIGHTS = "ab" * 32
LINE = CalibratedTrack(
    map=Platt(slope=0.7, intercept=-0.25), positives=30, negatives=70
)
CURVE = CalibratedTrack(
    map=Isotonic(scores=(0.25, 0.5), probabilities=(0.125, 0.75)),
    positives=0,
    negatives=100,
    shared=True,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_calibration(
        tmp_path / FILE,
        Calibration.of({"a": LINE, "b": CURVE}, {"split": "valid"}),
        WEIGHTS,
    )
    return tmp_path / FILE


def test_a_calibration_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    rows = mixture(3000, 0.5, seed=1)
    for method in ("platt", "isotonic"):
        fitted = fit_map(rows.labels, rows.raw, method)
        assert fitted is not None
        calibration = Calibration.of({None: fitted}, {"windows": 3000})
        write_calibration(tmp_path / FILE, calibration, WEIGHTS)
        found = read_calibration(tmp_path / FILE, WEIGHTS)
        assert found == calibration
        assert (found(rows.raw) == calibration(rows.raw)).all()


def test_each_track_has_its_own_map(path: Path) -> None:
    found = read_calibration(path)
    values = np.array([[0.3, 0.3], [0.9, 0.9]], np.float32)
    expected = np.stack([LINE.map(values[:, 0]), CURVE.map(values[:, 1])], 1).astype(
        np.float32
    )
    assert found(values).dtype == np.float32
    assert (found(values) == expected).all()
    assert (found(values[:, None, :]) == expected[:, None, :]).all()  # (N, K, T)
    assert (found.only([1])(values[:, 1:]) == expected[:, 1:]).all()


def _written(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def _edited(*keys: str | int, **fields: object) -> Callable[[Path], None]:
    """Fields changed below these keys, as in another version's file."""

    def edit(path: Path) -> None:
        values = json.loads(path.read_text())
        reduce(getitem, keys, values).update(fields)
        path.write_text(json.dumps(values))

    return edit


FIRST = ("tracks", 0)
SPOILED: list[Callable[[Path], object]] = [
    Path.unlink,
    *(_written(text) for text in (b"{", b"\xff", b"[]", b'{"format": 1, "format": 1}')),
    *(
        _edited(format=2),
        _edited(tracks=[]),
        _edited(more=1),
        _edited(weights_sha256="0" * 64),
    ),
    *(_edited(*FIRST, "map", slope=slope) for slope in (-1, 1e300)),
    _edited(*FIRST, "map", method="pickle"),
    _edited(*FIRST, positives=-1),
]


@pytest.mark.parametrize("spoil", SPOILED, ids=range(len(SPOILED)))
def test_a_bad_file_is_refused_in_a_sentence(
    path: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(path)
    with fails(ModelError, path) as caught:
        read_calibration(path, WEIGHTS)
    assert "\n" not in str(caught.value)
