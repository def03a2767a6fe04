"""`evaluate nearest-fasta` and its kin: what they write, and what they refuse in one sentence."""

from pathlib import Path

import pandas as pd
import pytest

from bigbird_dna.config import load_config
from bigbird_dna.genome.sequence import reverse_complement
from tests.cli.command import Run, refused
from tests.toys import BROKEN_FASTA, random_dna

HEADER = "name\tsimilarity\tnearest\torientation"


@pytest.fixture
def fasta(tmp_path: Path) -> tuple[Path, Path]:
    """Three held-out records: a turned copy, half a copy in a longer record, and one of N."""
    one, two = random_dna(120, 1), random_dna(300, 2)
    held_out = (
        f">copy\n{reverse_complement(one)}\n>half\n{two[100:200]}{random_dna(100, 3)}\n>none\n{'N' * 50}\n"
    )
    (tmp_path / "test.fa").write_text(held_out)
    (tmp_path / "train.fa").write_text(f">a first\n{one.lower()}\n>b\n{two}\n")
    return tmp_path / "test.fa", tmp_path / "train.fa"


def test_the_nearest_record(run: Run, fasta: tuple[Path, Path], tmp_path: Path) -> None:
    result = run("evaluate nearest-fasta", *fasta, "-o", tmp_path / "n.tsv")
    assert (result.code, result.out) == (0, "")
    assert (
        "3 records of test.fa; similarity of the nearest training window: 1 below 0.3, 0 0.3 to 0.5,"
        in result.err
    )
    lines = (tmp_path / "n.tsv").read_text().splitlines()
    assert lines[0] == HEADER
    assert lines[1] == "copy\t1\ta\t-" and lines[3] == "none\t0\t\t"
    name, similarity, near, orientation = lines[2].split("\t")
    assert (name, near, orientation) == ("half", "b", "+") and 0.5 <= float(similarity) < 0.56
    before = (tmp_path / "n.tsv").read_bytes()
    assert run("evaluate nearest-fasta", *fasta, "-o", tmp_path / "n.tsv").code == 0
    assert (tmp_path / "n.tsv").read_bytes() == before


@pytest.mark.parametrize("kind", ["protein", "empty file", "duplicate name", "binary"])
def test_files_that_are_no_windows(run: Run, fasta: tuple[Path, Path], tmp_path: Path, kind: str) -> None:
    data, message = BROKEN_FASTA[kind]
    fasta[1].write_bytes(data)
    refused(run("evaluate nearest-fasta", *fasta, "-o", tmp_path / "n.tsv"), 1, fasta[1], message)
    assert not (tmp_path / "n.tsv").exists()


def test_outputs_that_will_not_do(run: Run, fasta: tuple[Path, Path], tmp_path: Path) -> None:
    refused(run("evaluate nearest-fasta", *fasta, "-o", fasta[0]), 2, fasta[0], "is the input")
    refused(run("evaluate nearest-fasta", *fasta, "-o", tmp_path), 2, "is a directory")
    refused(
        run("evaluate nearest-fasta", tmp_path / "no.fa", fasta[1], "-o", tmp_path / "n.tsv"),
        1,
        "no.fa: no such file",
    )
    fasta[1].write_text(f">long\n{'A' * 100_001}\n")
    refused(
        run("evaluate nearest-fasta", *fasta, "-o", tmp_path / "n.tsv"),
        1,
        "record 'long' has more than 100,000 bp",
    )


def test_nearest_promoters(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    words = ["evaluate nearest-promoters", tiny_config, "--negative-set"]
    files = ["-o", tmp_path / "n.tsv", "--predictions", tmp_path / "n.parquet"]
    result = run(*words, "permuted", *files)
    assert (result.code, result.out) == (0, "") and "test windows (permuted); similarity of" in result.err
    table, made = pd.read_csv(tmp_path / "n.tsv", sep="\t"), pd.read_parquet(tmp_path / "n.parquet")
    assert len(table) == len(made) and table["similarity"].between(0, 1).all()
    windows = Path(load_config(tiny_config).results) / "promoters"
    refused(run(*words, "user", *files), 1, windows / "windows.parquet", "has no negative set 'user'")
    refused(run(*words, "permuted", *files, "--windows", tmp_path), 1, "windows.parquet: no such file")
    refused(run(*words, "permuted", "-o", windows / "windows.parquet"), 2, "is the input")
    refused(run(*words, "permuted", "-o", tmp_path / "a", "--reference", tmp_path / "b"), 1, tmp_path / "b")
    assert not (tmp_path / "a").exists()


def test_bins_that_are_no_data_set(run: Run, tiny_config: Path, tmp_path: Path) -> None:
    reference = Path(load_config(tiny_config).results) / "genome/reference.fa.gz"
    message = "bins.parquet: no such file; is"
    words = ["evaluate nearest-bins", tiny_config, "--data", tmp_path, "-o", tmp_path.parent / "n.tsv"]
    refused(run(*words), 1, message)
    words = ["prepare filter-bins", tmp_path, "--reference", reference, "-o", tmp_path.parent / "kept"]
    refused(run(*words, "--similarity", 0.5), 1, message)
    refused(run(*words, "--similarity", 1.5), 2, "similarity 1.5: must be a fraction from 0 to 1")
    refused(run(*words, "--similarity", 0), 2, "similarity 0 would leave out all training bins")
