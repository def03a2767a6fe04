"""Contigs and regions that scorers keep to: the same results as of everything, and no others."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bigbird_dna
from bigbird_dna.errors import DataError
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.genome.region_filter import find_places
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.settings import PromoterSettings
from tests.cli.command import Run, refused
from tests.golden.messages import fails
from tests.toys import random_dna

RECORDS = {"chr1": random_dna(1500, 1), "chr2": random_dna(40, 2), "chr3": random_dna(700, 3)}
REGIONS = [("chr1", 300, 420), ("chr1", 415, 500), ("chr1", 1100, 1101), ("chr3", 0, 30), ("chr3", 660, 900)]


class Letters(LoadedPromoterModel):
    """Scores what any base can change."""

    sha256 = "abcd"

    def window_probabilities(self, sequences, **_):
        places = np.arange(1, 61)
        return np.array(
            [((np.frombuffer(s.encode(), np.uint8) * places).sum() % 997) / 997 for s in sequences]
        )


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Letters:
    from torch import nn

    from bigbird_dna.config import EncoderConfig

    settings = PromoterSettings(upstream=45, downstream=15, pooling="mean", jitter=0, views=1)
    made = Letters(nn.Module(), None, EncoderConfig(), settings, Path("model"))
    monkeypatch.setattr("bigbird_dna.scoring.promoters.load_promoter_model", lambda _: made)
    return made


@pytest.fixture(params=["plain", "indexed"])
def fasta(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "genome.fa"
    path.write_text("".join(f">{name}\n{text}\n" for name, text in RECORDS.items()))
    if request.param == "plain":
        return path
    prepare_reference(path, tmp_path / "genome.fa.gz")
    return tmp_path / "genome.fa.gz"


@pytest.fixture
def bed(tmp_path: Path) -> Path:
    path = tmp_path / "regions.bed"
    path.write_text("".join(f"{contig}\t{start}\t{end}\n" for contig, start, end in reversed(REGIONS)))
    return path


@pytest.fixture
def scored(model: Letters, fasta: Path, tmp_path: Path) -> Callable[..., list[list[str]]]:
    """Rows of a scan with these options."""

    def scan(**options: object) -> list[list[str]]:
        out = tmp_path / "out"
        counts = bigbird_dna.score_promoters(model, fasta, out, stride=17, **options)  # type: ignore[arg-type]
        lines = [line.split("\t") for line in out.read_text().splitlines() if not line.startswith("#")]
        if options.get("format") != "bedgraph":
            assert counts.scored + counts.not_scored == len(lines)
        return lines

    return scan


def overlaps(row: list[str]) -> bool:
    start, end = int(row[1]), int(row[2])
    return any(row[0] == c and start < right and left < end for c, left, right in REGIONS)


@pytest.mark.parametrize("format", ["tsv", "bed"])
def test_windows_of_contigs_and_regions_are_those_of_a_whole_scan(
    scored: Callable[..., list[list[str]]], bed: Path, format: str
) -> None:
    whole = scored(format=format)
    assert len({row[0] for row in whole}) == 3
    assert scored(format=format, contigs=["chr3", "chr2"]) == [row for row in whole if row[0] != "chr1"]
    assert scored(format=format, contigs="chr3") == [row for row in whole if row[0] == "chr3"]
    inside = [row for row in whole if overlaps(row)]
    assert 10 < len(inside) < len(whole)
    assert scored(format=format, regions=bed) == inside
    alone = scored(format=format, regions=bed, contigs=["chr3"])
    assert alone == [row for row in inside if row[0] == "chr3"]
    assert scored(format=format, regions=bed, contigs=["chr2"]) == []


def test_a_signal_in_regions_is_that_of_a_whole_scan(
    scored: Callable[..., list[list[str]]], bed: Path
) -> None:
    def bases(**options: object) -> dict[tuple[str, int], str]:
        return {
            (contig, base): score
            for contig, start, end, score in scored(format="bedgraph", **options)
            for base in range(int(start), int(end))
        }

    whole = bases()
    inside = {
        (contig, base): score
        for (contig, base), score in whole.items()
        if any(contig == c and left <= base < right for c, left, right in REGIONS)
    }
    assert 100 < len(inside) < len(whole)
    assert bases(regions=bed) == inside


def test_places_that_are_not_there(run: Run, model: Letters, fasta: Path, bed: Path, tmp_path: Path) -> None:
    words = ("score-promoters", "model", fasta)
    refused(run(*words, "--contig", "chr9"), 1, f"{fasta}: has none of the contigs chr9", "chr1, chr2, chr3")
    some = run(*words, "--contig", "chr9", "--contig", "chr2")
    assert some.code == 0 and f"warning: {fasta} has no contig chr9" in some.err
    assert {line.split("\t")[0] for line in some.out.splitlines() if line[0] != "#"} == {"chr2"}
    assert "scores along 1 records" in some.err
    assert "--contig chr9 --contig chr2" in some.out.splitlines()[2]
    bed.write_text("x\t0\t10\ny\t0\t10\n")
    both = f"{bed}: none of its contigs (x, y) is in {fasta} (chr1, chr2, chr3)"
    refused(run(*words, "--regions", bed), 1, both)
    bed.write_text("x\t0\t10\nchr2\t0\t10\n")
    some = run(*words, "--regions", bed)
    assert some.code == 0 and "1 regions on contigs that" in some.err
    bed.write_text("chr2\t9\t5\n")
    refused(run(*words, "--regions", bed), 1, f"{bed}: line 1")
    refused(run(*words, "--regions", tmp_path / "none.bed"), 1, "none.bed: no such file")
    refused(run(*words, "--regions", bed, "-o", bed), 2, "is the input")


def test_contigs_under_their_other_names(tmp_path: Path) -> None:
    known = {"chr21": 48_129_895, "chr22": 51_304_566}
    (tmp_path / "x.bed").write_text("22\t10\t20\nNC_000021.8\t5\t9\nchr22\t15\t30\n")
    places = find_places(["22", "CM000683.1"], tmp_path / "x.bed", known, "x.fa", None)
    assert places is not None
    assert list(places.clipped("chr22", 0, 100)) == [(10, 30)] == list(places.clipped("22", 0, 100))
    assert places.overlaps("21", 8, 9) and not places.overlaps("21", 9, 10)
    assert not places.overlaps("chr22", 30, 31) and places.overlaps("chr22", 29, 31)
    assert find_places([], None, known, "x.fa", None) is None
    with fails(DataError):
        find_places(["1"], None, known, "x.fa", None)
