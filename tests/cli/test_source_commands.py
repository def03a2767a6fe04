"""`fetch` and `extract` on the command line."""

import sys
from pathlib import Path

import pytest

from bigbird_dna.cli.main import main
from bigbird_dna.genome.fasta import read_fasta
from bigbird_dna.genome.reference import write_fasta


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """Exit code of the command."""
    monkeypatch.setattr(sys, "argv", ["bigbird-dna", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    path = tmp_path / "reference.fa.gz"
    write_fasta(path, [("chrI", "ACGTN" * 50), ("chrII", "GATTACA" * 30)])
    return path


def records(path: Path) -> list[tuple[str, str]]:
    return [(record.name, record.sequence) for record in read_fasta(path)]


def test_extract_a_contig(reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "extract", reference, "chrII", "-o", tmp_path / "out.fa.gz") == 0
    assert records(tmp_path / "out.fa.gz") == [("chrII", "GATTACA" * 30)]


@pytest.mark.parametrize(("megabases", "bases"), [("0.00001", 10), ("5", 250)])
def test_extract_a_start(
    reference: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    megabases: str,
    bases: int,
) -> None:
    output = tmp_path / "out.fa.gz"
    assert (
        run(monkeypatch, "extract", reference, "chrI", "-o", output, "--megabases", megabases) == 0
    )
    assert records(output) == [("chrI", ("ACGTN" * 50)[:bases])]


def test_extract_by_another_name(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.fa.gz"
    arguments = ("extract", reference, "NC_001134.8", "-o", output, "--assembly", "sacCer3")
    assert run(monkeypatch, *arguments) == 0
    assert records(output)[0][0] == "chrII"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("chr9",), 1, "no contig 'chr9' in the reference"),
        (("chrI", "--megabases", "0"), 2, "--megabases 0: must be above 0"),
        (("chrI", "--assembly", "hg99"), 2, "unknown assembly 'hg99'"),
    ],
)
def test_extract_faults(
    reference: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    output = tmp_path / "out.fa.gz"
    assert run(monkeypatch, "extract", reference, *arguments, "-o", output) == code
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not output.exists()


def test_fetch_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    assert run(monkeypatch, "fetch", "hg99", "-o", output) == 2
    assert "no source 'hg99'" in capsys.readouterr().err
    missing = tmp_path / "missing"
    arguments = ("fetch", "GRCh37.chain", "-o", output, "--local-data", missing)
    assert run(monkeypatch, *arguments) == 2
    assert f"{missing} is no directory" in capsys.readouterr().err
    assert not output.exists()
