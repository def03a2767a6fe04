import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from sklearn.linear_model import LogisticRegression

from bigbird_dna.calibration.maps import (
    LEAST,
    LEAST_SLOPE,
    MANY,
    Isotonic,
    Platt,
    fit_isotonic,
    fit_map,
    fit_platt,
    fit_tracks,
    from_log_odds,
    log_odds,
    shift_prior,
    smoothed,
)
from tests.calibration.sources import mixture

SHARES = st.floats(1e-6, 1 - 1e-6)


def test_platts_line_finds_the_distortion_of_a_known_source() -> None:
    rows = mixture(40_000, 0.5, seed=1, slope=1.6, lift=0.4)
    found = fit_platt(rows.labels.astype(bool), rows.raw.astype(float))
    # The model's log-odds are 1.6 true ones + 0.4: the line turns that round.
    assert found.slope == pytest.approx(1 / 1.6, rel=0.04)
    assert found.intercept == pytest.approx(-0.4 / 1.6, abs=0.05)
    assert np.abs(found(rows.raw) - rows.true).mean() < 0.01


def test_platts_line_is_that_of_a_logistic_regression_on_smoothed_labels() -> None:
    rows = mixture(400, 0.3, seed=2)
    labels = rows.labels.astype(bool)
    found = fit_platt(labels, rows.raw.astype(float))
    # A smoothed label t is a positive of weight t and a negative of weight 1 − t.
    x, t = log_odds(rows.raw)[:, None], smoothed(labels)
    oracle = LogisticRegression(C=1e12, tol=1e-10, max_iter=10_000)
    oracle.fit(np.concatenate([x, x]), np.repeat([1, 0], len(x)), np.concatenate([t, 1 - t]))
    assert (found.slope, found.intercept) == pytest.approx(
        (oracle.coef_[0, 0], oracle.intercept_[0]), rel=1e-4
    )


def test_negatives_of_less_weight_stand_for_a_source_with_fewer() -> None:
    """Four negatives for each positive of the source, which has as many of both."""
    rows = mixture(20_000, 0.2, seed=3)
    labels = rows.labels.astype(bool)
    weight = labels.sum() / (~labels).sum()
    even = mixture(20_000, 0.5, seed=4)
    for method in ("platt", "isotonic"):
        found = fit_map(labels, rows.raw, method, weight)  # type: ignore[arg-type]
        assert found is not None and found.prior == pytest.approx(0.5, abs=0.001)
        assert np.abs(found.map(even.raw) - even.true).mean() < 0.015
    # Each of the line's negatives counts like a part of one row.
    x, t = log_odds(rows.raw)[:, None], smoothed(labels, weight)
    each = np.where(labels, 1, weight)
    oracle = LogisticRegression(C=1e12, tol=1e-10, max_iter=10_000)
    both = np.concatenate([each * t, each * (1 - t)])
    oracle.fit(np.concatenate([x, x]), np.repeat([1, 0], len(x)), both)
    line = fit_platt(labels, rows.raw.astype(float), weight)
    assert (line.slope, line.intercept) == pytest.approx((oracle.coef_[0, 0], oracle.intercept_[0]), rel=1e-3)


@pytest.mark.parametrize("apart", [4.0, 50.0])
def test_separated_classes_give_a_finite_line(apart: float) -> None:
    labels = np.repeat([True, False], 50)
    odds = np.where(labels, apart, -apart) + np.linspace(-1, 1, 100)
    found = fit_platt(labels, from_log_odds(odds))
    assert 0 < found.slope < 100
    # As if each class had one more row, which is of the other.
    values = found(from_log_odds(odds))
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
    assert found([0.0, 0.2, 0.3, 0.6, 0.8, 1.0]) == pytest.approx([0.1, 0.1, 0.1, 0.3, 0.5, 0.5])


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
        {"scores": (), "probabilities": ()},
        {"scores": (0.1, 0.1), "probabilities": (0.1, 0.2)},
        {"scores": (0.1, 0.2), "probabilities": (0.3, 0.2)},
        {"scores": (0.1, 0.2), "probabilities": (0.3,)},
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
            [np.flatnonzero(rows.labels == 1)[:positives], np.flatnonzero(rows.labels == 0)[:negatives]]
        )
        found = fit_map(rows.labels[chosen], rows.raw[chosen], asked)  # type: ignore[arg-type]
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
    assert three.map == fit_platt(labels.ravel().astype(bool), raw.ravel().astype(float))
    assert (three.positives, three.negatives) == (0, 2000)
    assert fit_tracks(np.zeros_like(labels), raw) is None


@given(SHARES, SHARES, SHARES)
@example(0.5, 1.0000000000000002e-06, 0.999999)
def test_a_shift_there_and_back_changes_nothing(p: float, one: float, two: float) -> None:
    shifted = float(shift_prior(p, one, two))
    # Next to 1 a probability has few digits of its distance from it, and no more come back.
    lost = p * (1 - p) * 2**-53 / (1 - shifted)
    assert shift_prior(shifted, two, one) == pytest.approx(p, rel=1e-6, abs=lost)


@given(SHARES, st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_a_shift_is_bayes_rule(p: float, one: float, two: float) -> None:
    # Likelihoods of the evidence under either class, of which only the ratio counts.
    positive, negative = p / one, (1 - p) / (1 - one)
    expected = two * positive / (two * positive + (1 - two) * negative)
    assert shift_prior(p, one, two) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("prior", [0.5, 0.1, 0.01])
def test_shifted_probabilities_hold_in_a_mixture_with_fewer_positives(prior: float) -> None:
    even = mixture(40_000, 0.5, seed=6)
    fitted = fit_map(even.labels, even.raw, "platt")  # the source's own shape: only the shift is judged
    assert fitted is not None
    rare = mixture(400_000, prior, seed=7)
    values = shift_prior(fitted.map(rare.raw), fitted.prior, prior)
    assert values.mean() == pytest.approx(prior, rel=0.06)
    # And where it matters, among those that are likely positives:
    called = values > 0.5
    assert rare.labels[called].mean() == pytest.approx(values[called].mean(), abs=0.03)
    assert np.abs(values - rare.true).mean() < 0.15 * prior
