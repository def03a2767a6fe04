"""Calls of a scan, their matches and metrics by brute force; the report of a written table."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.calibration import calls
from bigbird_dna.calibration.calls import (
    Points,
    find_calls,
    find_track_calls,
    match_calls,
    match_tracks,
    sites_of,
)
from bigbird_dna.genome.promoters import write_loci
from bigbird_dna.genome.sequence import STRANDS, Locus, tss_position, window_around
from bigbird_dna.reporting.scan import (
    METRICS,
    call_metrics,
    read_scan,
    scan_report,
    weighted_metrics,
)
from tests.cli.command import invoke

SEEDS = range(20)
UPSTREAM, DOWNSTREAM = 30, 10


def random_points(rng: np.random.Generator) -> Points:
    """Windows of one track, with some of the same score."""
    places = np.sort(rng.choice(500, 60, replace=False))
    return Points(places, rng.integers(0, 25, 60) / 25)


# By brute force.


def plain_calls(windows: Points, suppress: int) -> list[tuple[int, float]]:
    left = sorted(
        zip(*(values.tolist() for values in windows), strict=True),
        key=lambda one: -one[1],
    )
    calls = []
    while left:
        calls.append(left[0])
        left = [one for one in left if abs(one[0] - left[0][0]) > suppress]
    return calls


def plain_matches(
    calls: Iterable[int], sites: Iterable[int], distance: int
) -> list[int]:
    left, found = [*sites], []
    for call in calls:
        nearest = min(left, key=lambda site: (abs(site - call), site), default=None)
        if nearest is not None and abs(nearest - call) <= distance:
            left.remove(nearest)
            found.append(abs(nearest - call))
        else:
            found.append(-1)
    return found


def plain_counts(
    calls: list[list[tuple[int, float]]], sites: list[list[int]], distance: int
) -> list[tuple[float, int, int]]:
    """At each score that a call has: the score, how many calls, and how many of them are correct."""
    counts = []
    for least in sorted({score for some in calls for _, score in some}, reverse=True):
        above = [[place for place, score in some if score >= least] for some in calls]
        matched = [
            sum(gap >= 0 for gap in plain_matches(places, its, distance))
            for places, its in zip(above, sites, strict=True)
        ]
        counts.append((least, sum(map(len, above)), sum(matched)))
    return counts


def test_a_score_belongs_to_the_tss_of_its_window() -> None:
    for strand in STRANDS:
        own = window_around(Locus("c", 1000, strand, "x"), 300, 100)
        assert tss_position(own.start, own.end, strand, 300) == 1000


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_are_those_of_brute_force(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of long tracks, which are cut."""
    windows = random_points(np.random.default_rng(seed))
    monkeypatch.setattr(calls, "_WINDOWS_AT_ONCE", (9, 20, 1000)[seed % 3])
    for suppress in (0, 1, 7, 40):
        found = find_calls(windows, suppress)
        assert [
            *zip(*(values.tolist() for values in found), strict=True)
        ] == plain_calls(windows, suppress)
        assert all(
            after - before > suppress
            for before, after in pairwise(sorted(found.positions))
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_matches_are_those_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    calls, sites = (
        rng.permutation(300)[:40],
        np.sort(rng.choice(300, 15 if seed else 0, replace=False)),
    )
    for distance in (0, 3, 20):
        taken = match_calls(calls, sites, distance)
        gaps = [
            abs(sites[place] - call) if place >= 0 else -1
            for place, call in zip(taken, calls, strict=True)
        ]
        assert gaps == plain_matches(calls.tolist(), sites.tolist(), distance)
        assert len(set(taken[taken >= 0])) == (taken >= 0).sum()
        assert match_calls(calls[:9], sites, distance).tolist() == taken[:9].tolist()


# The report


def written(path: Path, windows: Iterable[tuple[str, int, str, float]]) -> Path:
    """A table of scores, of windows by contig, TSS position and strand."""
    lines = [
        "## written by a test",
        "contig\tstart\tend\tname\tscore\tstrand\tnote\ttss",
    ]
    for contig, position, strand, score in windows:
        own = window_around(Locus(contig, position, strand, "x"), UPSTREAM, DOWNSTREAM)
        text = "NA" if np.isnan(score) else repr(score)
        lines.append(
            f"{contig}\t{own.start}\t{own.end}\tx\t{text}\t{strand}\t\t{position}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two contigs of 100 kb scanned every 50 bp, with half of the TSSs found by high scores."""
    rng = np.random.default_rng(3)
    sites = [
        Locus(contig, int(place), strand, "x")
        for contig in ("a", "b")
        for strand in STRANDS
        for place in np.sort(
            rng.choice(np.arange(1000, 99_000, 500), 40, replace=False)
        )
    ]
    write_loci(
        tmp_path / "promoters.tsv",
        [*sites, Locus("b", 150_000, "+", "beyond"), Locus("c", 5, "+", "x")],
    )
    known = {(one.contig, one.position, one.strand): rng.random() for one in sites}
    windows = []
    for contig in ("a", "b"):
        for place in range(100, 100_000, 50):
            for strand in STRANDS:
                found = known.get((contig, place, strand), 1.0) < 0.5
                score = (
                    rng.uniform(0.9, 1)
                    if found or rng.random() < 0.01
                    else rng.uniform(0, 0.3)
                )
                windows.append((contig, place, strand, round(float(score), 4)))
    written(tmp_path / "scores.tsv", [*windows, ("a", 99_999, "+", np.nan)])
    return tmp_path


def plain_metrics(
    calls: list[list[tuple[int, float]]], sites: list[list[int]], distance: int
) -> list[float]:
    """`METRICS` of calls of tracks, by brute force."""
    total = sum(map(len, sites))
    area = last = best = threshold = 0.0
    recalls = dict.fromkeys((0.5, 0.8), 0.0)
    for score, count, correct in plain_counts(calls, sites, distance):
        precision, recall = correct / count, correct / total
        area += precision * (recall - last)
        last = recall
        for least in recalls:
            if precision >= least:
                recalls[least] = max(recalls[least], recall)
        if (f1 := 2 * correct / (count + total)) > best:
            best, threshold = f1, score
    gaps = [
        gap
        for some, its in zip(calls, sites, strict=True)
        for gap in plain_matches([x for x, y in some if y >= threshold], its, distance)
    ]
    return [
        area,
        *recalls.values(),
        float(np.median([gap for gap in gaps if gap >= 0])),
    ]


def test_report_is_that_of_brute_force(home: Path) -> None:
    options = {"within": (20, 300), "suppress": 200}
    table = scan_report(
        {"model": home / "scores.tsv"}, home / "promoters.tsv", home / "out", **options
    )
    frame = pd.read_csv(home / "out/scan.tsv", sep="\t").set_index("within")
    assert len(frame) == len(table) == 2 and set(frame["tss"]) == {160}
    assert (home / "out/scan.plotly.json").is_file()
    scan = read_scan(home / "scores.tsv")
    sites = sites_of(home / "promoters.tsv", scan)
    assert scan.stride == 50 and scan.megabases == pytest.approx(0.2, abs=0.001)
    found = find_track_calls(scan, 200)
    calls = [
        [*zip(*(values.tolist() for values in found[track]), strict=True)]
        for track in found
    ]
    tss = [sites[track].tolist() for track in found]
    for distance, row in frame.iterrows():
        assert row["calls"] == sum(map(len, calls))
        for name, value in zip(
            METRICS, plain_metrics(calls, tss, distance), strict=True
        ):
            assert row[name] == pytest.approx(value, rel=1e-5)
            assert row[f"{name}_low"] <= value <= row[f"{name}_high"]
    assert frame["average_precision_low"].lt(frame["average_precision_high"]).all()
    assert frame["recall_at_precision_0.8"].le(frame["recall_at_precision_0.5"]).all()


def test_metrics_of_resampled_blocks_are_those_of_repeated_calls(home: Path) -> None:
    """A call or TSS of a block that is drawn twice counts twice."""
    scan = read_scan(home / "scores.tsv")
    sites = sites_of(home / "promoters.tsv", scan)
    calls = find_track_calls(scan, 200)
    tied = {
        track: Points(one.positions, one.scores.round(1))
        for track, one in calls.items()
    }
    found = {
        "model": match_tracks(calls, sites, 20),
        "far": match_tracks(calls, sites, 300),
        "ties": match_tracks(tied, sites, 20),
    }
    ids = np.unique(np.concatenate([one.blocks for one in found.values()]))
    weights = np.random.default_rng(1).integers(0, 3, (4, len(ids)))
    weights[0] = 1
    for one in found.values():
        sampled = weighted_metrics(one, ids, weights)
        assert sampled[0, 0] == pytest.approx(one.curve.average_precision)
        for row, values in zip(weights, sampled.T, strict=True):
            times = dict(zip(ids.tolist(), row.tolist(), strict=True))
            repeats = np.array([times[block] for block in one.blocks.tolist()])
            total = sum(times[block] for block in one.site_blocks.tolist())
            again = one._replace(
                scores=np.repeat(one.scores, repeats),
                gaps=np.repeat(one.gaps, repeats),
                site_blocks=np.zeros(total, np.int64),
            )
            curve = again.curve
            best = curve.calls[(curve.correct / (curve.calls + total)).argmax()]
            gaps = again.gaps[:best]
            expected = [
                curve.average_precision,
                *(
                    curve.recall[curve.precision >= p].max(initial=0)
                    for p in (0.5, 0.8)
                ),
                np.median(gaps[gaps >= 0]),
            ]
            assert values == pytest.approx(expected)
    metrics = call_metrics(found)
    assert "difference" not in metrics["model"] and [*metrics] == [*found]
    far, name = metrics["far"], "average_precision"
    assert far[f"{name}_low"] < far[name] < far[f"{name}_high"]
    assert far["difference"] == pytest.approx(metrics["model"][name] - far[name])
    assert (  # paired
        far["difference_high"] - far["difference_low"]
        < far[f"{name}_high"] - far[f"{name}_low"]
    )


def test_calls_near_other_sites_only_are_counted(tmp_path: Path) -> None:
    windows = [
        ("a", 1000, "+", 0.9),  # annotated
        ("a", 3000, "+", 0.8),  # near an other one
        ("a", 3020, "+", 0.7),  # which is taken
        ("a", 1045, "+", 0.6),  # near the annotated one, which is taken, and an other
        *(("a", place, "+", 0.55) for place in (5000, 9000, 11_000)),  # annotated
        ("a", 3000, "-", 0.5),  # of the wrong strand
        ("a", 7000, "+", 0.1),  # below the best threshold
    ]
    written(tmp_path / "scores.tsv", windows)
    for name, sites in {
        "promoters": [1010, 5005, 9005, 11_005],
        "others": [1050, 3005, 7000],
    }.items():
        loci = [Locus("a", position, "+", f"x{position}") for position in sites]
        write_loci(tmp_path / f"{name}.tsv", loci)
    words = ["evaluate", "scan", "--scores", f"model={tmp_path / 'scores.tsv'}"]
    words += ["--promoters", f"{tmp_path / 'promoters.tsv'}", "--within", "50"]
    words += ["--suppress", "10", "-o", f"{tmp_path / 'out'}"]
    invoke(*words)
    assert "other_calls" not in pd.read_csv(tmp_path / "out/scan.tsv", sep="\t")
    invoke(*words, "--other-promoters", tmp_path / "others.tsv")
    (row,) = pd.read_csv(tmp_path / "out/scan.tsv", sep="\t").itertuples()
    assert (row.best_calls, row.other_calls) == (7, 1)
    assert (row.best_precision, row.precision_with_others) == pytest.approx(
        (4 / 7, 5 / 7)
    )


def test_perfect_and_useless_scores(home: Path) -> None:
    scan = read_scan(home / "scores.tsv")
    sites = sites_of(home / "promoters.tsv", scan)
    exact = {
        track: Points(own, np.linspace(1, 0.5, len(own)))
        for track, own in sites.items()
    }
    assert match_tracks(exact, sites, 0).curve.average_precision == 1
    assert (
        match_tracks(
            {track: Points(own + 7, 0 * own) for track, own in sites.items()}, sites, 5
        ).curve.correct
        == 0
    )


def test_a_scan_with_nothing_to_evaluate_is_a_table_that_says_so(home: Path) -> None:
    """By the command, so that the rest of a run's report is made: no TSS, no score, no window, or one TSS."""
    write_loci(home / "other.tsv", [Locus("z", 5, "+", "x")])
    write_loci(home / "one.tsv", [Locus("a", 5000, "+", "x")])
    unscored = written(home / "unscored.tsv", [("a", 100, "+", np.nan)])
    scans = {
        "model": home / "scores.tsv",
        "unscored": unscored,
        "none": written(home / "none.tsv", []),
    }
    words = [
        "evaluate",
        "scan",
        *(f"--scores={name}={path}" for name, path in scans.items()),
    ]
    words += ["--within", 100, "--within", 9, "-o", home / "out", "--promoters"]
    for name, tss in (("promoters", 160), ("one", 1), ("other", 0)):
        invoke(*words, home / f"{name}.tsv")
        table = pd.read_csv(home / "out/scan.tsv", sep="\t").set_index("predictor")
        assert (home / "out/scan.plotly.json").is_file()
        empty = table.loc[["unscored", "none", *["model"] * (not tss)]]
        assert not empty[["tss", "calls"]].any().any()
        assert empty.drop(columns=["within", "tss", "calls"]).isna().all().all()
        if tss:
            model = table.loc["model"]
            assert len(model) == 2 and set(model["tss"]) == {tss}
            assert model["average_precision"].notna().all()
            assert model["average_precision_low"].notna().all() or tss == 1
