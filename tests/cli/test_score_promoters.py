"""`score-promoters` through the real command, with a tiny model of random weights.

The content of rows is tested in `tests/scoring`.
"""

import gzip
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from bigbird_dna.disk.atomic import checksum
from bigbird_dna.model.directory import load, save
from tests.cli.command import Run, refused, table
from tests.golden.messages import message
from tests.test_public_api import home as home
from tests.toys import BROKEN_FASTA, random_dna

COLUMNS = "contig\tstart\tend\tname\tscore\tstrand\tnote\ttss"


@pytest.fixture
def run(run: Run) -> Run:
    """Run `bigbird-dna score-promoters`."""
    return partial(run, "score-promoters")


@pytest.fixture
def model(home: Path) -> Path:
    """Directory of a promoter model."""
    return home / "promoter"


def fasta_text(records: dict[str, str]) -> str:
    return "".join(f">{name}\n{sequence}\n" for name, sequence in records.items())


RECORDS = {
    "chr1": random_dna(331, 2),
    "short": random_dna(45, 3),
    "gap": random_dna(60, 4) + "N" * 70 + random_dna(61, 5),
}


@pytest.fixture
def fasta(tmp_path: Path) -> Path:
    path = tmp_path / "genome.fa"
    path.write_text(fasta_text(RECORDS))
    return path


def test_table_of_a_small_genome(run: Run, model: Path, fasta: Path) -> None:
    result = run(model, fasta, "--stride", 30, "--device", "cpu")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert lines[0].startswith("## bigbird-dna 0.")
    assert lines[1] == f"## model {checksum(model / 'model.safetensors')}"
    assert lines[2].startswith(
        f"## command bigbird-dna score-promoters {model} {fasta} "
    )
    assert "--stride 30" in lines[2]
    assert lines[3] == COLUMNS
    rows = table(result.out)
    assert list(dict.fromkeys(row["contig"] for row in rows)) == list(RECORDS)
    message(result.err, "3 records")


def test_records_that_do_not_fill_a_window(
    run: Run, model: Path, tmp_path: Path
) -> None:
    """They have no score unless padding is asked for, whatever part of the window they fill."""
    records = {
        "chr1": random_dna(200, 2),
        "nearly": random_dna(59, 3),
        "fits": random_dna(45, 3),
        "tiny": "ACGTA",
        "less": random_dna(44, 4),
    }
    records["thin"] = random_dna(40, 5) + "N" * 6  # long enough, but not with its N
    short = [*records][1:]
    fasta = tmp_path / "genome.fa"
    fasta.write_text(fasta_text(records))
    said = "warning: 5 records are shorter than the model's window of 60 bp and are not scored"
    for format in ("tsv", "bed", "parquet", "bedgraph", "bigwig"):
        result = run(model, fasta, "-o", tmp_path / "x", "--format", format)
        assert result.code == 0 and result.err.count(said) == 1
    assert {
        line.split("\t")[0]
        for line in run(model, fasta, "--format", "bedgraph").out.splitlines()[3:]
    } == {"chr1"}
    for row in table(run(model, fasta).out):
        unscored = (row["score"], row["tss"], row["note"]) == ("NA", "NA", "short")
        assert unscored == (row["contig"] in short)
    assert "warning" not in run(model, fasta, "--contig", "chr1").err


GOOD = ">c\n" + "ACGT" * 30 + "\n"
BAD_FASTA = {
    "protein": BROKEN_FASTA["protein"][0],
    "truncated gzip": gzip.compress(GOOD.encode() * 50)[:-12],
    "damaged gzip": b"\x1f\x8b\x08\x00 not a gzip file at all",
    "late": (GOOD + ">d\nACGT\nACXT\n").encode(),
}


@pytest.mark.parametrize("kind", BAD_FASTA)
def test_bad_fasta(run: Run, model: Path, tmp_path: Path, kind: str) -> None:
    content, path = BAD_FASTA[kind], tmp_path / "bad.fa"
    path.write_bytes(content)
    refused(run(model, "-", stdin=content), 1)
    for output in (("-o", tmp_path / "out.tsv"), ()):
        refused(run(model, path, *output), 1, path)
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "value", [np.nan, np.finfo(np.float32).max]
)  # sums of the latter are not finite
@pytest.mark.parametrize("ending", ["bed", "tsv", "bedgraph", "bw", "parquet"])
def test_a_model_that_gives_no_numbers(
    run: Run, model: Path, fasta: Path, tmp_path: Path, ending: str, value: float
) -> None:
    broken = load(model)
    with torch.no_grad():
        for parameter in broken.network.parameters():
            parameter.fill_(value)
    save(tmp_path / "model", broken, {}, {}, {})
    out = tmp_path / f"out.{ending}"
    out.write_text("former")
    refused(
        run(tmp_path / "model", fasta, "-o", out), 1, tmp_path / "model", after_log=True
    )
    assert out.read_text() == "former"
    assert {one.name for one in tmp_path.iterdir()} == {"model", fasta.name, out.name}


def test_devices_and_links_are_not_replaced(
    run: Run, model: Path, fasta: Path, tmp_path: Path
) -> None:
    assert run(model, fasta, "-o", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()
    (tmp_path / "target.tsv").write_text("old")
    (tmp_path / "link.tsv").symlink_to("target.tsv")
    assert run(model, fasta, "-o", tmp_path / "link.tsv").code == 0
    assert (tmp_path / "link.tsv").is_symlink()
    assert len(table((tmp_path / "target.tsv").read_text())) > 10
