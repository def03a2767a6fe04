"""What the stride of a scan costs: figures by brute force, and a tiny run."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.scan_stride import draw, evaluate, main, page, scan
from bigbird_dna.calibration.calls import find_calls
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.genome.fasta import scan_fasta
from bigbird_dna.genome.promoters import write_loci
from bigbird_dna.genome.sequence import Locus, reverse_complement
from bigbird_dna.model.directory import load_promoter_model, save
from bigbird_dna.model.settings import PromoterSettings
from tests.conftest import REPOSITORY
from tests.reporting.test_scan import (
    SEEDS,
    STRANDS,
    plain_counts,
    plain_matches,
    random_points,
)
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

SCRIPT = REPOSITORY / "benchmarks" / "scan_stride.py"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("distance", [2, 15, 150])
def test_figures_are_those_of_brute_force(seed: int, distance: int) -> None:
    rng = np.random.default_rng(seed)
    calls = {("c", strand): find_calls(random_points(rng), 10) for strand in STRANDS}
    sites = {track: np.sort(rng.choice(500, 9, replace=False)) for track in calls}
    listed = [
        [*zip(*(values.tolist() for values in some), strict=True)]
        for some in calls.values()
    ]
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
    assert (found["precision"], found["recall"]) == pytest.approx(
        (best[2] / best[1], best[2] / 18)
    )
    assert found["calls_per_megabase"] == best[1] / 0.25
    gaps: list[int] = []
    for some, its in zip(listed, known, strict=True):
        gaps += plain_matches(
            [place for place, score in some if score >= best[0]], its, 100
        )
    near = [gap for gap in gaps if gap >= 0]
    assert found["median_distance"] == (np.median(near) if near else None)
    recall, precision = found["curve"]
    rises = [(0, 0), *((called, correct) for _, called, correct in counts)]
    rises = [after for before, after in pairwise(rises) if after[1] > before[1]]
    assert recall == pytest.approx([correct / 18 for _, correct in rises], abs=1e-5)
    assert precision == pytest.approx(
        [correct / called for called, correct in rises], abs=1e-5
    )


# A tiny run.


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A promoter model of random weights, a FASTA file of two contigs, and TSS on one of them."""
    directory = tmp_path_factory.mktemp("stride")
    tokenizer = small_tokenizer()
    config = small_encoder(tokenizer.vocabulary, max_length=64)
    settings = PromoterSettings(
        upstream=40, downstream=20, pooling="mean", jitter=4, views=1
    )
    save(
        directory / "model",
        random_model(tokenizer, config, settings, scale=3.0),
        {},
        {},
        {},
    )
    (directory / "genome.fa").write_text(
        f">a\n{random_dna(300, 1)}\n>b\n{random_dna(1000, 2)}\n"
    )
    sites = [
        Locus("b", place, strand, "x")
        for place in (39, 40, 200, 330)
        for strand in STRANDS
    ]
    write_loci(
        directory / "loci.tsv",
        [*sites, Locus("b", 700, "+", "beyond"), Locus("a", 150, "+", "x")],
    )
    return directory


def words(home: Path, *more: str) -> list[str]:
    names = (str(home / name) for name in ("model", "genome.fa", "loci.tsv"))
    return [*names, "--contig", "b", "--megabases", "0.0004", "--threads", "1", *more]


@pytest.mark.slow
def test_a_tiny_run(home: Path, tmp_path: Path) -> None:
    files = [tmp_path / "stride.json", tmp_path / "stride.svg"]
    asked = (
        "--strides",
        "1,20,5",
        "--distances",
        "3,20",
        "-o",
        str(files[0]),
        "--figure",
        str(files[1]),
    )
    command = [sys.executable, str(SCRIPT), *words(home, *asked)]
    outcome = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert outcome.returncode == 0, outcome.stderr
    result = json.loads(files[0].read_text())
    assert outcome.stdout == page(result)
    assert result["model"]["sha256"] == checksum(home / "model" / "model.safetensors")
    assert result["machine"]["cpu"] and result["date"].startswith("20")
    # Of + from 40 to 380, of − from 19 to 359: all of the eight but the one at 39 on +.
    assert result["scanned"] == {
        "contigs": {"b": 400},
        "megabases": 341 / 1e6,
        "sites": 7,
    }
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
    write_loci(
        loci,
        [Locus("b", 39, "+", "x"), Locus("b", 18, "-", "x"), Locus("a", 150, "+", "x")],
    )
    asked = words(home, *more)
    if more == (loci.name,):  # without a TSS whose window is on what is scanned
        asked = [
            str(loci) if word.endswith("loci.tsv") else word for word in words(home)
        ]
    with pytest.raises(SystemExit) as stopped:
        main(asked)
    assert stopped.value.code == code
    found = capsys.readouterr()
    assert not found.out and str(named) in found.err
    assert [*tmp_path.iterdir()] == [loci]
