"""Scans by a model of start sites: rows, strands, files, and calls."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigbird_dna
from bigbird_dna.calibration import call_precision
from bigbird_dna.calibration.call_precision import FILE, read_call_precision
from bigbird_dna.calibration.calls import find_track_calls
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.intervals import Places
from bigbird_dna.genome.promoters import write_loci
from bigbird_dna.genome.sequence import Intervals, Locus, reverse_complement
from bigbird_dna.model.directory import save
from bigbird_dna.reporting.scan import read_scan
from bigbird_dna.scoring.scan import (
    STRIDE,
    ScoredWindow,
    count_scores,
    scan_bases,
    scan_records,
)
from tests.cli.command import Run, frame, refused
from tests.golden.messages import fails, message
from tests.scoring.test_call_promoters import called
from tests.scoring.test_promoter_scan import write
from tests.toys import SITE_MOTIF, motif_model, random_dna, start_site_model

MODEL = start_site_model()
RECORDS = {
    "long": random_dna(901, 2),
    "gap": random_dna(300, 4) + "N" * 140 + random_dna(310, 5),
    "short": random_dna(59, 3),
    "last": random_dna(112, 6),
    "shortest": random_dna(60, 7),
}
SCORED = 80  # bp of a window


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, and a genome."""
    home = tmp_path_factory.mktemp("dense")
    save(home / "model", MODEL, {}, {}, {})
    write(home / "genome.fa", RECORDS)
    return home


def scan(
    records: dict[str, str], stride: int = STRIDE, **options: Any
) -> list[ScoredWindow]:
    chosen = {"strands": ("+", "-"), "max_n": 1.0, "places": None} | options
    batches = scan_bases(iter(records.items()), MODEL, stride, **chosen)
    return [row for rows in batches for row in rows]


@pytest.mark.parametrize(("stride", "strands"), [(1, "-"), (7, "+-"), (40, "+-")])
def test_rows_tile_records_and_have_the_highest_probability(
    stride: int, strands: str
) -> None:
    records = {name: RECORDS[name] for name in ("short", "long", "shortest")}
    rows = scan(records, stride, strands=tuple(strands))
    assert [row.strand for row in rows] == [*strands] * (len(rows) // len(strands))
    for name, text in records.items():
        own = [row for row in rows if row.contig == name]
        if len(text) < 60:
            assert [(row.note, row.score, row.tss) for row in own] == [
                ("short", None, None)
            ] * len(strands)
            continue

        starts = [row.start for row in own[:: len(strands)]]
        ends = [row.end for row in own[:: len(strands)]]
        assert starts == [*range(0, len(text), stride)]
        assert ends == [*starts[1:], len(text)]
        size = SCORED - SCORED % stride  # windows begin at a row
        probs = np.full((2, len(text)), np.nan)
        for start in range(0, len(text), size):
            first = max(start - 20, 0)
            part = text[first : start + size + 20]
            end = min(start + size, len(text))
            values = MODEL.window_probabilities([part])[0]
            probs[:, start:end] = values[:, start - first : end - first]

        if size == SCORED:
            np.testing.assert_allclose(MODEL.predict(text)[0], probs, atol=1e-6)

        for row in own:
            inside = probs["+-".index(row.strand), row.start : row.end]
            assert row.score == pytest.approx(inside.max(), abs=1e-6)
            assert row.note == "" and row.tss is not None
            assert inside[row.tss - row.start] == pytest.approx(row.score, abs=1e-6)


def test_python_and_a_scan_read_the_same_windows() -> None:
    """Also if a window's scored bases are no multiple of the stride."""
    model = start_site_model(window=127)
    text = RECORDS["long"]
    (probs,) = model.predict([text])
    batches = scan_bases([("a", text)], model, STRIDE, ("+", "-"), 1.0, None)
    for row in (row for rows in batches for row in rows):
        inside = probs["+-".index(row.strand), row.start : row.end]
        assert row.score == pytest.approx(inside.max(), abs=1e-6)


def test_wide_rows_are_those_of_windows() -> None:
    rows = scan({"a": RECORDS["long"]}, 1000)
    assert sum(row.end - row.start for row in rows) == 2 * 901
    assert max(row.end - row.start for row in rows) == SCORED


def test_windows_with_many_n_and_short_records_have_no_score() -> None:
    rows = scan(RECORDS, max_n=0.3)
    for row in rows:
        start = row.start // SCORED * SCORED
        window = RECORDS[row.contig][max(start - 20, 0) : start + SCORED + 20]
        fraction = window.count("N") / len(window)
        if row.contig == "short":
            assert (row.note, row.start, row.end, row.tss) == ("short", 0, 59, None)
        else:
            assert (row.note != "") == (fraction > 0.3)
            assert not row.note or row.note == f"n_fraction={fraction:.4g}"
        assert (row.score is None) == (row.note != "")

    unscored = {row.contig for row in rows if row.score is None}
    assert unscored == {"gap", "short"}


def test_regions_have_the_rows_of_a_whole_scan() -> None:
    regions = {"long": ([205], [230]), "gap": ([5, 250], [6, 252])}
    places = Places(
        {name: Intervals.union(*map(np.array, both)) for name, both in regions.items()},
        str,
    )
    records = {name: RECORDS[name] for name in regions}
    rows = scan(records, places=places)
    expected = [
        row for row in scan(records) if places.overlaps(row.contig, row.start, row.end)
    ]
    assert rows == expected and len(rows) == 2 * (3 + 1 + 1)


def test_a_moved_sequence_has_moved_calls() -> None:
    """Each of 200 sites, at any place of a window, keeps its score."""
    model = motif_model()
    parts, sites, length = [], [], 0
    for number in range(200):
        spacer = random_dna(30 + number % 23, number)
        strand = "+-"[number % 3 == 0]
        motif = SITE_MOTIF if strand == "+" else reverse_complement(SITE_MOTIF)
        parts += [spacer, motif]
        start = length + len(spacer)
        sites.append((start + 9 if strand == "+" else start - 2, strand))
        length = start + len(motif)

    text = "".join(parts) + random_dna(40, 1)

    def calls(sequence: str) -> dict[tuple[int, str], float]:
        batches = scan_bases([("a", sequence)], model, 10, ("+", "-"), 1.0, None)
        rows = [row for batch in batches for row in batch]
        return {(row.tss, row.strand): row.score for row in rows if row.score > 0.5}

    found = calls(text)
    assert {*sites} <= found.keys() and len(found) < 230
    for shift in (1, 7, 10):
        moved = calls(random_dna(shift, 99) + text)
        for position, strand in sites:
            score = moved[position + shift, strand]
            assert score == pytest.approx(found[position, strand], abs=0.05)


def test_the_progress_of_a_scan_ends_near_its_total(home: Path) -> None:
    lengths = {name: len(text) for name, text in RECORDS.items()}
    batches = scan_records(home / "genome.fa", lengths, MODEL, strands=("+",), max_n=1)
    scores = sum(map(len, batches))
    assert scores > 100
    assert count_scores(lengths.values(), MODEL) == pytest.approx(scores, rel=0.05)


# Commands


def test_files_of_scores(run: Run, home: Path, tmp_path: Path) -> None:
    words = ("score-promoters", home / "model", home / "genome.fa", "--max-n", 1)
    whole = run(*words)
    message(whole.err, "1 records are shorter than the shortest sequence of 60 bp")
    rows = frame(whole.out)
    for row, expected in zip(rows.itertuples(), scan(RECORDS), strict=True):
        assert (row.contig, row.strand) == (expected.contig, expected.strand)
        assert (int(row.start), int(row.end)) == (expected.start, expected.end)
        if expected.score is None:
            assert (row.note, row.score) == ("short", "NA")
        else:
            assert float(row.score) == pytest.approx(expected.score, abs=2e-6)
            assert int(row.tss) == expected.tss

    best = frame(run(*words, "--per-record").out)
    assert best["contig"].tolist() == [*RECORDS]
    for row in best[best["score"] != "NA"].itertuples():
        probs = MODEL.predict(RECORDS[row.contig])[0]
        assert float(row.score) == pytest.approx(probs.max(), abs=2e-6)
        at_tss = probs["+-".index(row.strand), int(row.tss)]  # two can be as high
        assert at_tss == pytest.approx(probs.max(), abs=2e-6)

    (tmp_path / "some.bed").write_text("long\t205\t230\n")
    some = run(*words, "--regions", tmp_path / "some.bed", "--format", "bedgraph").out
    signal = run(*words, "--format", "bedgraph").out
    inside = [
        line
        for line in signal.splitlines()
        if line.startswith("long") and 210 <= int(line.split("\t")[1]) < 220
    ]
    assert inside and {*inside} <= {*some.splitlines()}

    with fails(UsageError, "call-promoters"):
        bigbird_dna.score_promoters(
            home / "model", home / "genome.fa", tmp_path / "x", calibrated=True
        )
    assert not (tmp_path / "x").exists()


def test_calls_have_the_precision_that_they_were_found_to_have(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_precision, "RESAMPLES", 20)
    genome, made = home / "genome.fa", tmp_path / "made"
    words = ("score-promoters", home / "model", genome, "--stride", 4)
    assert run(*words, "-o", tmp_path / "scores.tsv").code == 0
    tracks = find_track_calls(read_scan(tmp_path / "scores.tsv"), 20)
    best = tracks["long", "+"].positions[:12].tolist()
    loci = [Locus("long", place, "+", f"p{place}") for place in sorted(best)]
    write_loci(tmp_path / "promoters.tsv", loci)
    calibrate = ("model calibrate", home / "model", "--reference", genome)
    calibrate += ("--promoters", tmp_path / "promoters.tsv", "--stride", 4)
    calibrate += ("--suppress", 20, "--within", 4, "-o", made)
    refused(run(*calibrate), 2, "--contig")
    assert run(*calibrate, "--contig", "long").code == 0
    fitted = read_call_precision(made / FILE)
    assert (fitted.stride, fitted.tss) == (4, len(best))

    words = ("call-promoters", made, genome, "--fdr", 1, "-o", tmp_path / "calls.bed")
    assert run(*words).code == 0
    found = called((tmp_path / "calls.bed").read_text())
    assert {(contig, strand, place) for contig, place, strand, _ in found} == {
        (*track, place)
        for track, calls in tracks.items()
        for place in calls.positions.tolist()
    }
    assert {contig for contig, *_ in found} == {"long", "gap", "last", "shortest"}
    for contig, place, strand, score in found:
        probs = MODEL.predict(RECORDS[contig])[0]
        assert score == pytest.approx(probs["+-".index(strand), place], abs=2e-6)
