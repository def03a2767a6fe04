"""What the stride of a scan costs: calls, their matches and precision by brute force, and a tiny run."""

import json
import subprocess
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.scan_stride import (
    Points,
    draw,
    evaluate,
    find_calls,
    main,
    match_calls,
    page,
    scan,
    tss_position,
)
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.genome.fasta import scan_fasta
from bigbird_dna.genome.promoters import write_loci
from bigbird_dna.genome.sequence import Locus, Strand, reverse_complement, window_around
from bigbird_dna.model.directory import load_promoter_model, save
from bigbird_dna.model.settings import PromoterSettings
from bigbird_dna.scoring.scan import ScoredWindow
from tests.conftest import REPOSITORY
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

SCRIPT = REPOSITORY / "benchmarks" / "scan_stride.py"
SEEDS = range(20)
STRANDS: tuple[Strand, ...] = ("+", "-")


def random_points(rng: np.random.Generator) -> Points:
    """Windows of one track, with some of the same score."""
    places = np.sort(rng.choice(500, 60, replace=False))
    return Points(places, rng.integers(0, 25, 60) / 25)


# By brute force.


def plain_calls(windows: Points, suppress: int) -> list[tuple[int, float]]:
    left = sorted(zip(*(values.tolist() for values in windows), strict=True), key=lambda one: -one[1])
    calls = []
    while left:
        calls.append(left[0])
        left = [one for one in left if abs(one[0] - left[0][0]) > suppress]
    return calls


def plain_matches(calls: Iterable[int], sites: Iterable[int], distance: int) -> list[int]:
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
        window = ScoredWindow("c", own.start, own.end, strand, 0.5, "")
        assert tss_position(window, 300) == 1000


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_are_those_of_brute_force(seed: int) -> None:
    windows = random_points(np.random.default_rng(seed))
    for suppress in (0, 1, 7, 40):
        found = find_calls(windows, suppress)
        assert [*zip(*(values.tolist() for values in found), strict=True)] == plain_calls(windows, suppress)
        assert all(after - before > suppress for before, after in pairwise(sorted(found.positions)))


@pytest.mark.parametrize("seed", SEEDS)
def test_matches_are_those_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    calls, sites = rng.permutation(300)[:40], np.sort(rng.choice(300, 15 if seed else 0, replace=False))
    for distance in (0, 3, 20):
        found = match_calls(calls, sites, distance).tolist()
        assert found == plain_matches(calls.tolist(), sites.tolist(), distance)
        assert match_calls(calls[:9], sites, distance).tolist() == found[:9]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("distance", [2, 15, 150])
def test_figures_are_those_of_brute_force(seed: int, distance: int) -> None:
    rng = np.random.default_rng(seed)
    calls = {("c", strand): find_calls(random_points(rng), 10) for strand in STRANDS}
    sites = {track: np.sort(rng.choice(500, 9, replace=False)) for track in calls}
    listed = [[*zip(*(values.tolist() for values in some), strict=True)] for some in calls.values()]
    known = [some.tolist() for some in sites.values()]
    counts = plain_counts(listed, known, distance)
    found = evaluate(calls, sites, distance, 0.25)
    before, area = 0, 0.0
    for _, called, correct in counts:
        area += correct / called * (correct - before) / 18
        before = correct
    assert found["average_precision"] == pytest.approx(area)
    half = [correct / 18 for _, called, correct in counts if correct / called >= 0.5]
    assert found["recall_at_half"] == pytest.approx(max(half, default=0))
    best = max(counts, key=lambda one: (2 * one[2] / (one[1] + 18), -one[1]))
    assert found["best_f1"] == pytest.approx(2 * best[2] / (best[1] + 18))
    assert (found["threshold"], found["calls"]) == best[:2]
    assert (found["precision"], found["recall"]) == pytest.approx((best[2] / best[1], best[2] / 18))
    assert found["calls_per_megabase"] == best[1] / 0.25
    gaps: list[int] = []
    for some, its in zip(listed, known, strict=True):
        gaps += plain_matches([place for place, score in some if score >= best[0]], its, 100)
    near = [gap for gap in gaps if gap >= 0]
    assert found["median_distance"] == (np.median(near) if near else None)
    recall, precision = found["curve"]
    rises = [(0, 0), *((called, correct) for _, called, correct in counts)]
    rises = [after for before, after in pairwise(rises) if after[1] > before[1]]
    assert recall == pytest.approx([correct / 18 for _, correct in rises], abs=1e-5)
    assert precision == pytest.approx([correct / called for called, correct in rises], abs=1e-5)


# A tiny run.


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A promoter model of random weights, a FASTA file of two contigs, and TSS on one of them."""
    directory = tmp_path_factory.mktemp("stride")
    tokenizer = small_tokenizer()
    config = small_encoder(tokenizer.vocabulary, max_length=64)
    settings = PromoterSettings(upstream=40, downstream=20, pooling="mean", jitter=4, views=1)
    save(directory / "model", random_model(tokenizer, config, settings, scale=3.0), {}, {}, {})
    (directory / "genome.fa").write_text(f">a\n{random_dna(300, 1)}\n>b\n{random_dna(1000, 2)}\n")
    sites = [Locus("b", place, strand, "x") for place in (39, 40, 200, 330) for strand in STRANDS]
    write_loci(directory / "loci.tsv", [*sites, Locus("b", 700, "+", "beyond"), Locus("a", 150, "+", "x")])
    return directory


def words(home: Path, *more: str) -> list[str]:
    names = (str(home / name) for name in ("model", "genome.fa", "loci.tsv"))
    return [*names, "--contig", "b", "--megabases", "0.0004", "--threads", "1", *more]


def test_a_tiny_run(home: Path, tmp_path: Path) -> None:
    files = [tmp_path / "stride.json", tmp_path / "stride.svg"]
    asked = ("--strides", "1,20,5", "--distances", "3,20", "-o", str(files[0]), "--figure", str(files[1]))
    command = [sys.executable, str(SCRIPT), *words(home, *asked)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    result = json.loads(files[0].read_text())
    assert outcome.stdout == page(result)
    assert result["model"]["sha256"] == checksum(home / "model" / "model.safetensors")
    assert result["machine"]["cpu"] and result["date"].startswith("20")
    # Of + from 40 to 380, of − from 19 to 359: all of the eight but the one at 39 on +.
    assert result["scanned"] == {"contigs": {"b": 400}, "megabases": 341 / 1e6, "sites": 7}
    rows = result["results"]
    assert [row["stride"] for row in rows] == [1, 5, 20]
    assert [row["windows"] for row in rows] == [2 * 341, 2 * 69, 2 * 18]
    assert rows[-1]["ratio"] == 1 and all(row["seconds"] > 0 for row in rows)
    assert [[at["distance"] for at in row["at"]] for row in rows] == [[3, 20]] * 3
    assert files[1].read_text().startswith("<?xml")
    first = files[1].read_bytes()
    draw(result, files[1])
    assert files[1].read_bytes() == first


def test_a_coarse_scan_is_a_part_of_the_finest(home: Path) -> None:
    model, fasta = load_promoter_model(home / "model"), home / "genome.fa"
    contigs, sequence = scan_fasta(fasta), random_dna(1000, 2)
    finest = scan(model, fasta, contigs, 1, "cpu")[1]
    assert len(finest) == 4
    known = {
        track: dict(zip(*(values.tolist() for values in found), strict=True))
        for track, found in finest.items()
    }
    for track, found in scan(model, fasta, contigs, 7, "cpu")[1].items():
        for position, score in zip(*(values.tolist() for values in found), strict=True):
            assert known[track][position] == score
    window = reverse_complement(sequence[500 - 19 : 500 + 41])
    assert known["b", "-"][500] == model.predict([window])[0]


@pytest.mark.parametrize(
    ("more", "code", "named"),
    [
        (("--contig", "none", "--megabases", "0.00003"), 1, 30),
        (("--figure", "stride.txt"), 2, "stride.txt"),
        (("--strides", "0,5"), 2, "0,5"),
        (("--megabases", "0"), 2, "--megabases"),
        (("none.tsv",), 1, "none.tsv"),
    ],
)
def test_what_is_refused(
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    code: int,
    named: object,
) -> None:
    loci = tmp_path / "none.tsv"
    write_loci(loci, [Locus("b", 39, "+", "x"), Locus("b", 18, "-", "x"), Locus("a", 150, "+", "x")])
    asked = words(home, *more)
    if more == (loci.name,):  # without a TSS whose window is on what is scanned
        asked = [str(loci) if word.endswith("loci.tsv") else word for word in words(home)]
    with pytest.raises(SystemExit) as stopped:
        main(asked)
    assert stopped.value.code == code
    found = capsys.readouterr()
    assert not found.out and str(named) in found.err
    assert [*tmp_path.iterdir()] == [loci]
