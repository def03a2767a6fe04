"""A GenBank or EMBL file gives the same reference as FASTA with its sequences, or is refused."""

import gzip
import tracemalloc
from pathlib import Path

import pysam
import pytest
from Bio import SeqIO
from Bio.Seq import Seq
from Bio.SeqFeature import SeqFeature, SimpleLocation
from Bio.SeqRecord import SeqRecord

from bigbird_dna.errors import DataError
from bigbird_dna.genome.flat_files import flat_format, stream_flat_file
from bigbird_dna.genome.reference import Prepared, Reference, prepare_reference
from tests.genome.formats import EMBL, GENBANK
from tests.golden.messages import fails
from tests.toys import written

SEQUENCES = {"NC_001133.9": "acgttgcaRYn" * 31, "CM000664.2": "GATTACA" * 60, "X5.1": "n"}

START = "CCACACCACACCCACACACCCACACACCACACCACACACCACACCACACCCACACACACACATNCTAACACTACC"


def seq_records() -> list[SeqRecord]:
    records = []
    for name, sequence in SEQUENCES.items():
        record = SeqRecord(Seq(sequence), name, name.partition(".")[0], "made for a test")
        record.annotations["molecule_type"] = "DNA"
        record.features = [SeqFeature(SimpleLocation(0, 1), type="gene")]
        records.append(record)
    return records


def prepared(source: Path, output: Path) -> tuple[Prepared, list[bytes]]:
    found = prepare_reference(source, output)
    return found, [output.with_name(output.name + end).read_bytes() for end in ("", ".fai", ".gzi")]


@pytest.mark.parametrize("compressed", ["plain", "gzip", "bgzip"])
@pytest.mark.parametrize("name", ["x.gb", "x.embl", "x.txt"])
def test_the_reference_is_that_of_fasta(tmp_path, name, compressed):
    fasta, source = tmp_path / "x.fa", tmp_path / name
    SeqIO.write(seq_records(), fasta, "fasta")
    SeqIO.write(seq_records(), source, "embl" if name == "x.embl" else "genbank")
    if compressed == "gzip":
        source.write_bytes(gzip.compress(source.read_bytes()))
    elif compressed == "bgzip":
        pysam.tabix_compress(str(source), str(tmp_path / "packed"))
        source = tmp_path / "packed"
    expected = prepared(fasta, tmp_path / "1.fa.gz")
    assert prepared(source, tmp_path / "2.fa.gz") == expected
    assert expected[0].contigs == {name: len(text) for name, text in SEQUENCES.items()}
    assert expected[0].ambiguous == 62


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\n\n"])
@pytest.mark.parametrize(
    ("text", "flat", "names"),
    [(GENBANK, "GenBank", ["NC_001133.9", "AC1", "contig_3"]), (EMBL, "EMBL", ["BK006935.2", "AL031232.7"])],
)
def test_records_as_the_archives_write_them(tmp_path, text, flat, names, start, newline):
    path = written(tmp_path / "x", (start + text).replace("\n", newline))
    assert flat_format(path) == flat
    chunks = list(stream_flat_file(path, flat, 10_000))
    assert [chunk.contig for chunk in chunks] == names
    assert [chunk.sequence for chunk in chunks] == [START, "ACGTACGTACGT", "ACGTA"][: len(names)]
    assert [chunk.ambiguous for chunk in chunks] == [1, 0, 0][: len(names)]


@pytest.mark.parametrize("size", [1, 7, 75, 76])
def test_chunks_cut_the_sequence_anywhere(tmp_path, size):
    path = written(tmp_path / "x.gb", GENBANK)
    chunks = [c for c in stream_flat_file(path, "GenBank", size) if c.contig == "NC_001133.9"]
    assert "".join(chunk.sequence for chunk in chunks) == START
    assert [chunk.start for chunk in chunks] == list(range(0, 75, size))
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


@pytest.mark.parametrize("text", [">LOCUS       x\nACGT\n", "ID\tx\n", "LOCUS\tx\n", "\n\n"])
def test_other_files_are_neither(tmp_path, text):
    path = written(tmp_path / "x.gb", text)
    assert flat_format(path) is None


def test_random_access_asks_for_a_prepared_copy(tmp_path):
    path = written(tmp_path / "x.embl", EMBL)
    with fails(DataError):
        Reference(path)


def test_memory_is_that_of_a_record(tmp_path):
    path, letters = tmp_path / "x.gb", "acgttgcaat " * 6
    with path.open("w") as stream:
        for number in range(20):
            stream.write(f"LOCUS       c{number} 120000 bp DNA linear CON 01-JAN-2001\nORIGIN\n")
            stream.writelines(f"{1 + 60 * line:9} {letters}\n" for line in range(2000))
            stream.write("//\n")
    next(stream_flat_file(path, "GenBank", 100))  # its imports
    tracemalloc.start()
    bases = sum(len(chunk.sequence) for chunk in stream_flat_file(path, "GenBank", 10_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert bases == 2_400_000
    assert peak < 1_500_000
