"""`fetch` and `extract` on the command line."""

from pathlib import Path

import pytest

from bigbird_dna.genome.fasta import stream_fasta
from bigbird_dna.genome.reference import write_fasta
from tests.cli.command import Run, refused


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    path = tmp_path / "reference.fa.gz"
    write_fasta(path, [("chrI", "ACGTN" * 50), ("chrII", "GATTACA" * 30)])
    return path


def records(path: Path) -> list[tuple[str, str]]:
    return [(chunk.contig, chunk.sequence) for chunk in stream_fasta(path)]


def test_extract_a_contig(run: Run, reference: Path, tmp_path: Path) -> None:
    assert run("prepare contig", reference, "chrII", "-o", tmp_path / "out.fa.gz").code == 0
    assert records(tmp_path / "out.fa.gz") == [("chrII", "GATTACA" * 30)]


@pytest.mark.parametrize(("megabases", "bases"), [("0.00001", 10), ("5", 250)])
def test_extract_a_start(run: Run, reference: Path, tmp_path: Path, megabases: str, bases: int) -> None:
    output = tmp_path / "out.fa.gz"
    assert run("prepare contig", reference, "chrI", "-o", output, "--megabases", megabases).code == 0
    assert records(output) == [("chrI", ("ACGTN" * 50)[:bases])]


@pytest.mark.parametrize(("before", "bases"), [(7, 20), (1_000_000, 20), (1_500_003, 50), (9, 0)])
def test_a_start_is_counted_from_the_first_base(run: Run, tmp_path: Path, before: int, bases: int) -> None:
    """So that of a piece at its place there is something."""
    path, output = tmp_path / "x.fa.gz", tmp_path / "out.fa.gz"
    write_fasta(path, [("c", "N" * before + "ACGTN" * (bases // 5))])
    assert run("prepare contig", path, "c", "-o", output, "--megabases", "0.00002").code == 0
    written = "".join(sequence for _, sequence in records(output))
    assert written == ("N" * before + "ACGTN" * 4 if bases else "N" * 9)


def test_extract_by_another_name(run: Run, reference: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.fa.gz"
    arguments = ("prepare contig", reference, "NC_001134.8", "-o", output, "--assembly", "sacCer3")
    assert run(*arguments).code == 0
    assert records(output)[0][0] == "chrII"


def test_extract_by_an_alias_and_by_a_pattern(run: Run, reference: Path, tmp_path: Path) -> None:
    output, aliases = tmp_path / "out.fa.gz", tmp_path / "aliases.tsv"
    aliases.write_text("chrI\tone\nchrII\ttwo\n")
    for words, name in {
        ("two", "--aliases", aliases): "chrII",
        ("t?o", "--assembly", "custom", "--aliases", aliases): "chrII",
        ("chr*",): "chrI",
        ("chr*", "--exclude=chrI", "--exclude=gone"): "chrII",
        ("chr*", "--exclude", "one", "--aliases", aliases): "chrII",
    }.items():
        assert run("prepare contig", reference, *words, "-o", output).code == 0
        assert records(output)[0][0] == name
    words = ("prepare contig", reference, "chr*", "--exclude=chr?", "--exclude=*II", "-o", output)
    refused(run(*words), 1)


@pytest.mark.parametrize(
    ("region", "megabases", "start", "end"),
    [
        ("chrI:11-20", None, 10, 20),
        ("NC_001133.9:241-", None, 240, 250),
        ("chrI:11-30", "0.00001", 10, 20),
        ("chrI:15-30", "0.00001", 14, 25),  # of which the first is N
    ],
)
def test_extract_a_region(
    run: Run, reference: Path, tmp_path: Path, region: str, megabases: str | None, start: int, end: int
) -> None:
    """At its own coordinates, and nothing of what lies before it."""
    output = tmp_path / "out.fa.gz"
    words = ("--megabases", megabases) if megabases else ()
    result = run("prepare contig", reference, region, "--assembly", "sacCer3", "-o", output, *words)
    assert result.code == 0
    assert records(output) == [("chrI", "N" * start + ("ACGTN" * 50)[start:end])]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("chrI:200-251",), 2),
        (("chr9",), 1),
        (("I",), 1),
        (("chrI", "--megabases", "0"), 2),
        (("chrI", "--megabases", "nan"), 2),
        (("chrI", "--megabases", "inf"), 2),
        (("chrI", "--assembly", "hg99"), 2),
    ],
)
def test_extract_faults(
    run: Run, reference: Path, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    output = tmp_path / "out.fa.gz"
    refused(run("prepare contig", reference, *arguments, "-o", output), code)
    assert not output.exists()


def test_extract_onto_the_reference(run: Run, reference: Path) -> None:
    before = reference.read_bytes()
    refused(run("prepare contig", reference, "chrI", "-o", reference), 2, reference)
    assert reference.read_bytes() == before


def test_fetch_faults(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "out"
    refused(run("prepare fetch", "hg99", "-o", output), 2)
    missing = tmp_path / "missing"
    arguments = ("prepare fetch", "GRCh37.chain", "-o", output, "--local-data", missing)
    refused(run(*arguments), 2, missing)
    assert not output.exists()
    refused(run("prepare fetch", "GRCh37.sizes", "-o", "/dev/null"), 2)
    refused(run("prepare fetch", "GRCh37.sizes", "-o", tmp_path), 2, tmp_path)
    (tmp_path / "file").touch()
    refused(run("prepare fetch", "GRCh37.sizes", "-o", tmp_path / "file/out"), 2)
