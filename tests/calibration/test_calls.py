"""Calls of a stream against those of the whole, and the precision expected of calls of a planted genome."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.calibration.call_precision import (
    GROUP,
    CallPrecision,
    fit_calls,
    read_call_precision,
)
from bigbird_dna.calibration.calls import (
    MatchedCalls,
    Points,
    Scan,
    Track,
    find_calls,
    find_track_calls,
    match_tracks,
)
from bigbird_dna.calibration.maps import write_calibration
from bigbird_dna.errors import ModelError
from tests.golden.messages import fails

SIZES = {"stride": 10, "suppress": 100, "within": 100, "megabases": 2.0}
WINDOWS = st.lists(
    st.tuples(
        st.integers(1, 9), st.none() | st.integers(0, 4).map(lambda score: score / 4)
    ),
    max_size=60,
)
STRAND = st.sampled_from("+-")


def placed(windows: list[tuple[int, float | None]]) -> list[tuple[int, float | None]]:
    """Windows at positions, from the distance to the one before."""
    places = np.cumsum([gap for gap, _ in windows]).tolist()
    return [(place, score) for place, (_, score) in zip(places, windows, strict=True)]


def scored(windows: list[tuple[int, float | None]]) -> Points:
    known = [(place, score) for place, score in windows if score is not None]
    return (
        Points(*(np.array(column) for column in zip(*known, strict=True)))
        if known
        else Points(*[[]] * 2)
    )


def listed(calls: Points) -> list[tuple[int, float]]:
    return sorted(zip(*(np.asarray(column).tolist() for column in calls), strict=True))


@given(WINDOWS, st.integers(0, 30), STRAND)
def test_calls_of_the_other_strand_are_mirrored(
    gaps: list[tuple[int, float | None]], suppress: int, strand: str
) -> None:
    windows = scored(placed(gaps))
    if not len(windows.scores):
        return
    mirrored = Points(-windows.positions[::-1], windows.scores[::-1])
    other = {"+": "-", "-": "+"}[strand]
    back = [
        (-place, score)
        for place, score in listed(find_calls(mirrored, suppress, other))
    ]
    assert sorted(back) == listed(find_calls(windows, suppress, strand))


def planted(seed: int, contigs: str = "a", bases: int = 500_000) -> MatchedCalls:
    """Calls of contigs on which scores are higher at most TSSs, with decoys."""
    rng = np.random.default_rng(seed)
    windows: dict[Track, Points] = {}
    sites: dict[Track, np.ndarray] = {}
    for contig in contigs:
        for strand in "+-":
            positions = np.arange(0, bases, 50)
            scores = rng.beta(1, 6, len(positions))
            chosen = rng.choice(len(positions), len(positions) // 40, replace=False)
            scores[chosen] = rng.beta(5, 3, len(chosen))
            real = np.sort(positions[chosen[rng.random(len(chosen)) < scores[chosen]]])
            windows[contig, strand], sites[contig, strand] = (
                Points(positions, scores),
                real,
            )
    return match_tracks(find_track_calls(Scan(windows, 50), 100), sites, 100)


def fitted(calls: MatchedCalls) -> CallPrecision:
    found = fit_calls(calls, **SIZES, fitted_on={"contigs": ["a"]})
    assert found is not None
    return found


def test_precision_is_the_one_expected_on_other_contigs() -> None:
    precision = fitted(planted(1))
    new = planted(2, "bcd")
    expected, low, high = precision(new.scores)
    assert ((low <= expected) & (expected <= high)).all()
    assert (
        (np.diff(expected) <= 0).all()
        and (np.diff(low) <= 1e-12).all()
        and (np.diff(high) <= 1e-12).all()
    )
    for part in np.array_split(np.argsort(-new.scores[:3000], kind="stable"), 6):
        margin = 3 * np.sqrt(0.25 / len(part))
        realized = (new.gaps[part] >= 0).mean()
        assert low[part].mean() - margin < realized < high[part].mean() + margin
    for rate in (0.2, 0.3, 0.5):
        chosen = precision.at_rate(rate)
        assert chosen is not None and precision.expected_fdr[chosen] <= rate
        kept = new.scores >= precision.scores[chosen]
        assert (new.gaps[kept] < 0).mean() == pytest.approx(rate, abs=0.06)
        assert (new.gaps[kept] >= 0).sum() / len(new.site_blocks) == pytest.approx(
            precision.found[chosen] / precision.tss, abs=0.06
        )


def test_calls_of_a_lower_rate_are_some_of_those_of_a_higher() -> None:
    precision = fitted(planted(3))
    found = [precision.at_rate(rate) for rate in np.linspace(0, 1, 50)]
    reached = [one for one in found if one is not None]
    assert (
        found[0] is None
        and 20 < len(reached) < 50
        and found[-len(reached) :] == reached
    )
    assert reached == sorted(reached)
    for name, way in (("scores", -1), ("calls", 1), ("found", 1), ("expected_fdr", 1)):
        assert (way * np.diff(getattr(precision, name)) >= 0).all()


def test_the_best_score_has_the_largest_f1() -> None:
    calls = planted(6)
    precision = fitted(calls)
    best = precision.best()
    count = precision.calls[best]
    counts, right = np.arange(1, len(calls.gaps) + 1), np.cumsum(calls.gaps >= 0)
    f1 = 2 * right / (counts + len(calls.site_blocks))
    assert f1[count - 1] == pytest.approx(f1.max(), rel=0.02)
    assert precision.scores[best] == calls.scores[count - 1]


def test_the_few_best_calls_have_the_precision_of_a_group() -> None:
    calls = planted(7)
    lucky = calls._replace(gaps=np.where(np.arange(len(calls.gaps)) < 3, 0, calls.gaps))
    expected = fitted(lucky)(lucky.scores[:GROUP])[0]
    assert expected[0] == pytest.approx(expected[9], abs=0.03) and expected[0] < 0.99


def test_too_few_calls_of_a_kind_have_no_map() -> None:
    calls = planted(4)
    few = np.flatnonzero(calls.gaps >= 0)[:9]
    rows = np.sort(np.concatenate([few, np.flatnonzero(calls.gaps < 0)[:50]]))
    some = MatchedCalls(*(column[rows] for column in calls[:3]), calls.site_blocks)
    assert fit_calls(some, **SIZES, fitted_on={}) is None


def test_a_file_is_read_as_written_and_only_for_its_weights(tmp_path: Path) -> None:
    precision, path = fitted(planted(5)), tmp_path / "calls.json"
    write_calibration(path, precision, "abc")
    assert read_call_precision(path, "abc") == precision
    with fails(ModelError):
        read_call_precision(path, "xyz")
