"""`call-promoters` and `model calibrate`, against calls made of the table of `score-promoters`."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bigbird_dna
from bigbird_dna.calibration import call_precision
from bigbird_dna.calibration.call_precision import FILE, fit_calls, read_call_precision
from bigbird_dna.calibration.calls import (
    MatchedCalls,
    find_calls,
    find_track_calls,
    match_tracks,
    sites_of,
)
from bigbird_dna.calibration.maps import (
    write_calibration,
)
from bigbird_dna.disk.atomic import checksum, read_json
from bigbird_dna.errors import ModelError, UsageError
from bigbird_dna.genome.fasta import scan_fasta
from bigbird_dna.genome.promoters import write_loci
from bigbird_dna.genome.sequence import Locus, reverse_complement
from bigbird_dna.model.model import METRICS
from bigbird_dna.model.weights import RECORD
from bigbird_dna.reporting.scan import read_scan
from bigbird_dna.scoring.calls import scored_windows
from bigbird_dna.scoring.scan import score_inputs, window_inputs
from tests.cli.command import Run, refused, table
from tests.golden.messages import fails
from tests.scoring.conftest import RECORDS
from tests.scoring.test_promoter_scan import toy, write
from tests.toys import random_dna, update_json

STRIDE, SUPPRESS = 3, 20


@pytest.fixture(scope="module")
def model(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The promoter model with an expected precision, of calls with random scores."""
    path = tmp_path_factory.mktemp("called") / "model"
    shutil.copytree(home / "promoter", path)
    rng = np.random.default_rng(1)
    scores = np.sort(rng.random(400))[::-1]
    gaps = np.where(rng.random(400) < scores, 5, -1)
    calls = MatchedCalls(scores, gaps, np.arange(400), np.arange(300))
    sizes = {"stride": STRIDE, "suppress": SUPPRESS, "within": 30, "megabases": 0.1}
    fitted = fit_calls(calls, **sizes, fitted_on={})
    assert fitted is not None
    write_calibration(path / FILE, fitted, checksum(path / "model.safetensors"))
    return path


def called(text: str) -> list[tuple[str, int, str, float]]:
    return [
        (row["contig"], int(row["start"]), row["strand"], float(row["model_score"]))
        for row in table(text)
    ]


def test_calls_are_those_of_the_scores(
    run: Run, model: Path, home: Path, tmp_path: Path
) -> None:
    genome = home / "genome.fa.gz"
    assert (
        run(
            "score-promoters",
            model,
            genome,
            "--stride",
            STRIDE,
            "-o",
            tmp_path / "scores.tsv",
        ).code
        == 0
    )
    scan = read_scan(tmp_path / "scores.tsv")
    expected = {
        (*track, place): score
        for track, calls in find_track_calls(scan, SUPPRESS).items()
        for place, score in zip(
            calls.positions.tolist(), calls.scores.tolist(), strict=True
        )
    }
    assert (
        run(
            "call-promoters", model, genome, "--fdr", 1, "-o", tmp_path / "calls.bed"
        ).code
        == 0
    )
    found = called((tmp_path / "calls.bed").read_text())
    assert {
        (contig, strand, place): score for contig, place, strand, score in found
    } == pytest.approx(expected, abs=2e-6)
    order = [*RECORDS]
    assert found == sorted(found, key=lambda one: (order.index(one[0]), one[1], one[2]))
    precision = read_call_precision(model / FILE)
    for row in table((tmp_path / "calls.bed").read_text()):
        values = [float(one) for one in precision(float(row["model_score"]))]
        shown = [
            float(row[name])
            for name in ("probability", "precision_low", "precision_high")
        ]
        assert (
            shown == pytest.approx(values, abs=1e-4)
            and int(row["end"]) == int(row["start"]) + 1
        )
        assert int(row["score"]) == round(1000 * float(row["probability"]))
    # A rate leaves the calls out that are below its score, and nothing else.
    for rate in (0.3, 0.2, 0.1):
        chosen = precision.at_rate(rate)
        assert chosen is not None
        counts = bigbird_dna.call_promoters(
            model, genome, tmp_path / "some.bed", fdr=rate
        )
        some = called((tmp_path / "some.bed").read_text())
        assert some == [
            one for one in found if one[-1] >= precision.scores[chosen] - 1e-6
        ] and counts.calls == len(some)
    assert len(some) < len(found)
    assert run("call-promoters", model, genome, "-o", tmp_path / "best.bed").code == 0
    some = called((tmp_path / "best.bed").read_text())
    assert some == [
        one for one in found if one[-1] >= precision.scores[precision.best()] - 1e-6
    ]


def test_streams_strands_and_contigs_have_the_same_calls(
    run: Run, model: Path, home: Path, tmp_path: Path
) -> None:
    fasta, words = (
        home / "genome.fa",
        ("call-promoters", model, home / "genome.fa", "--fdr", "0.7"),
    )
    assert run(*words, "-o", tmp_path / "calls.bed").code == 0
    whole = (tmp_path / "calls.bed").read_text()
    assert run(*words).out == whole and len(called(whole)) > 10
    for strand in "+-":
        assert called(run(*words, "--strand", strand).out) == [
            one for one in called(whole) if one[2] == strand
        ]
    some = called(run(*words, "--contig", "gap", "--contig", "last").out)
    assert some == [one for one in called(whole) if one[0] in ("gap", "last")]
    (_, middle, *_) = sorted(one for one in called(whole) if one[0] == "long")[5]
    part = called(run(*words, "--contig", f"long:{middle - 30}-{middle + 30}").out)
    assert part and all(abs(one[1] - middle) <= 30 for one in part)
    assert {one[0] for one in part} == {"long"}
    records = fasta.read_text().split(">")[1:]
    other = write(
        tmp_path / "other.fa",
        {one.split("\n")[0]: "".join(one.split("\n")[1:]) for one in records[::-1]},
    )
    assert sorted(called(run(*words[:2], other, *words[3:]).out)) == sorted(
        called(whole)
    )


def test_calls_of_the_reverse_complement_are_mirrored(tmp_path: Path) -> None:
    text = (
        random_dna(700, 3) + "A" * 60 + random_dna(300, 4)
    )  # a plateau of equal scores
    found = []
    for name, sequence, bases in (
        ("a", text, 50),
        ("b", reverse_complement(text), 1000),
    ):
        path = write(tmp_path / name, {"c": sequence})
        inputs = window_inputs(path, ["c"], stride=2, upstream=9, downstream=15)
        rows = [row for batch in score_inputs(inputs, toy, bases) for row in batch]
        found.append(
            [
                (position, strand, score)
                for strand, windows in scored_windows(rows).items()
                for position, score in zip(
                    *find_calls(windows, 15, strand), strict=True
                )
            ]
        )
    other = {"+": "-", "-": "+"}
    mirrored = [
        (len(text) - 1 - place, other[strand], score)
        for place, strand, score in found[1]
    ]
    assert sorted(mirrored) == sorted(found[0]) and len(found[0]) > 50


def test_the_precision_is_fitted_to_the_calls_of_validation_contigs(
    run: Run, home: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    shutil.copytree(home / "promoter", path)
    words = (
        "score-promoters",
        path,
        home / "genome.fa.gz",
        "--stride",
        1,
        "--contig",
        "long",
    )
    assert run(*words, "-o", tmp_path / "scores.tsv").code == 0
    scan = read_scan(tmp_path / "scores.tsv")
    places = find_track_calls(scan, 5)["long", "+"].positions[:40:2].tolist()
    promoters = tmp_path / "promoters.tsv"
    write_loci(
        promoters, [Locus("long", place, "+", f"p{place}") for place in sorted(places)]
    )
    calibrate = ("model calibrate", path, "--reference", home / "genome.fa.gz")
    calibrate += (
        "--promoters",
        promoters,
        "--stride",
        1,
        "--suppress",
        5,
        "--within",
        2,
    )
    refused(run(*calibrate), 2, "--contig")
    weights = checksum(path / "model.safetensors")
    named = (*calibrate, "--contig", "long")
    assert run(*named, "-o", tmp_path / "made").code == 0
    found = read_call_precision(tmp_path / "made" / FILE, weights)
    assert not (path / FILE).exists() and found.fitted_on["contigs"] == ["long"]
    sites = sites_of(promoters, scan)
    calls = match_tracks(find_track_calls(scan, 5), sites, 2)
    assert (found.tss, found.calls[-1], found.found[-1]) == (
        len(places),
        len(calls.scores),
        (calls.gaps >= 0).sum(),
    )
    # Without what it needs.
    for more in (
        ("--contig", "gap"),
        ("--contig", "none"),
        ("--within", 0),
        ("--method", "line"),
    ):
        refused(
            run(*calibrate, *more, "-o", tmp_path / "new"),
            1 if more[0] == "--contig" else 2,
            more[1],
        )
    write_loci(promoters, [Locus("long", places[0], "+", "x")])
    refused(
        run(*calibrate, "--contig", "long", "-o", tmp_path / "new"), 1, "promoters.tsv"
    )
    assert not (tmp_path / "new").exists()
    assert bigbird_dna.call_promoters(
        tmp_path / "made", home / "genome.fa.gz", tmp_path / "x", fdr=1
    ).calls


def test_calls_are_measured_on_test_contigs(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `evaluate scan`, on the test contigs of the training or on others."""
    monkeypatch.setattr(call_precision, "RESAMPLES", 20)
    path, genome, promoters = (
        tmp_path / "model",
        home / "genome.fa.gz",
        tmp_path / "promoters.tsv",
    )
    shutil.copytree(home / "promoter", path)
    scans = {}
    for contig in ("long", "gap"):
        words = ("score-promoters", path, genome, "--stride", 3, "--contig", contig)
        assert run(*words, "-o", tmp_path / f"{contig}.tsv").code == 0
        scans[contig] = read_scan(tmp_path / f"{contig}.tsv")
    write_loci(
        promoters,
        [
            Locus(contig, place, "+", f"{contig}{place}")
            for contig, scan in scans.items()
            for place in sorted(
                find_track_calls(scan, 5)[contig, "+"].positions[:40:2].tolist()
            )
        ],
    )
    calibrate = (
        "model calibrate",
        path,
        "--reference",
        genome,
        "--promoters",
        promoters,
    )
    calibrate += ("--contig", "long", "--stride", 3, "--suppress", 5, "--within", 2)
    before = read_json(path / METRICS)

    def measured(*more: object) -> dict[str, Any]:
        shutil.rmtree(tmp_path / "made", ignore_errors=True)
        assert run(*calibrate, *more, "-o", tmp_path / "made").code == 0
        found: dict[str, Any] = read_json(tmp_path / "made" / METRICS)
        calls = found.pop("calls")
        assert found == before
        return dict(calls)

    assert measured().keys() == {"valid"}
    (test,) = (measured("--test-contig", "gap")["test"],)
    files = {name: [f"model={tmp_path / name}.tsv"] for name in scans}
    for key in ("expected_precision", "precision", "recall"):
        assert 0 <= test[key] <= 1
    words = ("--promoters", promoters, "--suppress", 5, "-o", tmp_path / "scan")
    assert run("evaluate scan", "--scores", *files["gap"], *words).code == 0
    for row in pd.read_csv(tmp_path / "scan/scan.tsv", sep="\t").to_dict("records"):
        name = f"average_precision_within_{row['within']}_bp"
        assert test[name] == pytest.approx(row["average_precision"], abs=1e-5)
    # Those of the training, unless the genome lacks one.
    for contigs, splits in (
        (["gap"], {"valid", "test"}),
        (["gap", "none"], {"valid"}),
        (7, {"valid"}),
    ):
        update_json(path / RECORD, configuration={"genome": {"test": contigs}})
        assert measured().keys() == splits
    # A region of a contig, whose other part is for training.
    size = scan_fasta(genome)["long"]
    region = f"long:{size // 2 + 1}-{size}"
    update_json(
        path / RECORD, configuration={"genome": {"valid": [region], "test": ["gap"]}}
    )
    calibrate = tuple(word for word in calibrate if word not in ("--contig", "long"))
    assert measured()["test"]["tss"] == test["tss"]
    found = read_call_precision(tmp_path / "made" / FILE)
    assert found.fitted_on["contigs"] == [region]
    assert found.megabases == pytest.approx(size / 2e6, abs=1e-4)
    calibrate += ("--contig", "long")
    refused(run(*calibrate, "--test-contig", "long", "-o", tmp_path / "new"), 2, "long")
    refused(
        run(*calibrate, "--test-contig", "absent", "-o", tmp_path / "new"),
        1,
        "absent",
        after_log=True,
    )


def test_what_cannot_be_called_is_refused(
    run: Run, model: Path, home: Path, tmp_path: Path
) -> None:
    genome, out = home / "genome.fa.gz", tmp_path / "calls.bed"
    with fails(ModelError):
        bigbird_dna.call_promoters(home / "promoter", genome, out)
    other = tmp_path / "other"
    shutil.copytree(home / "other", other)
    shutil.copyfile(model / FILE, other / FILE)
    with fails(ModelError):
        bigbird_dna.call_promoters(other, genome, out)
    for options in (
        {"fdr": 0.0},
        {"fdr": 1.5},
        {"strand": "x"},
        {"format": "bigwig"},
    ):
        with fails(UsageError):
            bigbird_dna.call_promoters(model, genome, out, **options)
    (tmp_path / "x.fa").write_text(">a\nACGX\n")
    refused(run("call-promoters", model, tmp_path / "x.fa", "-o", out), 1, "x.fa")
    refused(
        run("call-promoters", home / "chromatin", genome, "-o", out), 1, "chromatin"
    )
    refused(run("call-promoters", model, genome, "-o", genome), 2, genome)
    assert not out.exists()
