"""Our readers against those of Biopython and pyfaidx, on a file that all three can read."""

from pathlib import Path

import pyfaidx
import pytest
from Bio import SeqIO
from Bio.Seq import Seq
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.genome.fasta import stream_fasta
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, reverse_complement


@given(st.text("ACGTN"))
def test_reverse_complement_is_biopythons(sequence: str) -> None:
    assert reverse_complement(sequence) == str(Seq(sequence).reverse_complement())


@pytest.fixture(scope="module")
def fasta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fasta") / "genome.fa"
    sequences = {"one": "acgtNNgtacGATTACA" * 30, "two": "TTAGGG" * 41, "three": "C"}
    lines = []
    for name, sequence in sequences.items():
        lines += [f">{name} described", *(sequence[i : i + 50] for i in range(0, len(sequence), 50))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_records_are_biopythons(fasta: Path) -> None:
    ours = [(chunk.contig, chunk.sequence) for chunk in stream_fasta(fasta)]
    with fasta.open() as stream:
        theirs = [(record.id, str(record.seq).upper()) for record in SeqIO.parse(stream, "fasta")]
    assert ours == theirs


@pytest.mark.parametrize("strand", ["+", "-"])
def test_intervals_are_pyfaidxs(fasta: Path, strand: str) -> None:
    reference = Reference(fasta)
    with pyfaidx.Fasta(str(fasta), sequence_always_upper=True) as other:
        for contig, start, end in (("one", 0, 510), ("one", 45, 103), ("two", 7, 8), ("three", 0, 1)):
            expected = other[contig][start:end]
            expected = -expected if strand == "-" else expected
            assert reference.fetch(Interval(contig, start, end, strand)) == str(expected)  # type: ignore[arg-type]
