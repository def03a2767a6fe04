"""FASTA reading against a naive oracle, for every way to lay out, compress and break a file."""

import gzip
import io
import sys
from pathlib import Path

import pytest
from Bio import SeqIO
from Bio.Seq import Seq
from Bio.SeqFeature import SeqFeature, SimpleLocation
from Bio.SeqRecord import SeqRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome.fasta import (
    flat_format,
    read_fasta,
    read_flat_file,
    read_records,
    readable,
    scan_fasta,
)
from bigbird_dna.genome.reference import Prepared, Reference, prepare_reference
from bigbird_dna.genome.sequence import clean
from tests.genome.formats import EMBL, GENBANK, PACKINGS
from tests.golden.messages import fails
from tests.toys import BROKEN_FASTA, written

sequences = st.text("ACGTNacgtnRYk", min_size=1, max_size=60)
genomes = st.lists(sequences, min_size=1, max_size=5)
same_file = settings(max_examples=60)


def lay_out(records, width, newline, final_newline, blank_lines):
    text = "\n" * blank_lines
    for number, sequence in enumerate(records):
        lines = [sequence[i : i + width] for i in range(0, len(sequence), width)]
        text += f">c{number} some description > here\n" + "\n".join(lines) + "\n"
        text += "\n" * blank_lines
    return (
        (text if final_newline else text.rstrip("\n")).replace("\n", newline).encode()
    )


@same_file
@given(
    records=genomes,
    width=st.integers(1, 70),
    newline=st.sampled_from(["\n", "\r\n"]),
    final_newline=st.booleans(),
    blank_lines=st.integers(0, 2),
    packed=st.booleans(),
)
def test_every_layout_gives_the_same_records(
    tmp_path, records, width, newline, final_newline, blank_lines, packed
):
    content = lay_out(records, width, newline, final_newline, blank_lines)
    path = written(tmp_path / "x.fa", content, packed)
    names = [f"c{number}" for number in range(len(records))]
    expected = [sequence.encode() for sequence in records]
    assert list(read_fasta(path)) == list(zip(names, expected, strict=True))
    cleaned = [clean(sequence, "test") for sequence in records]
    assert list(read_records(path)) == list(zip(names, cleaned, strict=True))
    assert scan_fasta(path) == dict(zip(names, map(len, records), strict=True))


@pytest.mark.parametrize(
    ("content", "message"), BROKEN_FASTA.values(), ids=BROKEN_FASTA.keys()
)
def test_a_broken_file_gives_one_clear_line(tmp_path, content, message):
    path = written(tmp_path / "broken.fa", content)
    with fails(DataError, message) as caught:
        scan_fasta(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = written(tmp_path / "x.fa", b"\xef\xbb\xbf>a\nACGT\n")
    assert scan_fasta(path) == {"a": 4}


def test_standard_input_can_be_read_twice_and_is_called_by_its_name(monkeypatch):
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b">a\nACGU\n")))
    )
    with fails(DataError), readable("-") as p:
        scan_fasta(p)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b">a\nACGT\n")))
    with readable("-") as path:
        assert scan_fasta(path) == {"a": 4}
        assert list(read_records(path)) == [("a", "ACGT")]
    assert not path.exists()


# A GenBank or EMBL file gives the same reference as FASTA with its sequences, or is refused.

SEQUENCES = {
    "NC_001133.9": "acgttgcaRYn" * 31,
    "CM000664.2": "GATTACA" * 60,
    "X5.1": "n",
}

START = "CCACACCACACCCACACACCCACACACCACACCACACACCACACCACACCCACACACACACATNCTAACACTACC"


def seq_records() -> list[SeqRecord]:
    records = []
    for name, sequence in SEQUENCES.items():
        record = SeqRecord(
            Seq(sequence), name, name.partition(".")[0], "made for a test"
        )
        record.annotations["molecule_type"] = "DNA"
        record.features = [SeqFeature(SimpleLocation(0, 1), type="gene")]
        records.append(record)
    return records


def prepared(source: Path, output: Path) -> tuple[Prepared, list[bytes]]:
    found = prepare_reference(source, output)
    return found, [
        output.with_name(output.name + end).read_bytes() for end in ("", ".fai", ".gzi")
    ]


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("name", ["x.gb", "x.embl", "x.txt"])
def test_the_reference_is_that_of_fasta(tmp_path, name, packing):
    fasta, source = tmp_path / "x.fa", tmp_path / name
    SeqIO.write(seq_records(), fasta, "fasta")
    SeqIO.write(seq_records(), source, "embl" if name == "x.embl" else "genbank")
    source.write_bytes(PACKINGS[packing](source.read_bytes()))
    expected = prepared(fasta, tmp_path / "1.fa.gz")
    assert prepared(source, tmp_path / "2.fa.gz") == expected
    assert expected[0].contigs == {name: len(text) for name, text in SEQUENCES.items()}
    assert expected[0].ambiguous == 62


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\n\n"])
@pytest.mark.parametrize(
    ("text", "flat", "names"),
    [
        (GENBANK, "GenBank", ["NC_001133.9", "AC1", "contig_3"]),
        (EMBL, "EMBL", ["BK006935.2", "AL031232.7"]),
    ],
)
def test_records_as_the_archives_write_them(
    tmp_path, text, flat, names, start, newline
):
    path = written(tmp_path / "x", (start + text).replace("\n", newline))
    assert flat_format(path) == flat
    records = list(read_flat_file(path, flat))
    assert [name for name, _ in records] == names
    sequences = [clean(letters.decode(), "test") for _, letters in records]
    assert sequences == [START, "ACGTACGTACGT", "ACGTA"][: len(names)]


def test_other_files_are_neither_and_random_access_asks_for_a_prepared_copy(tmp_path):
    for text in (">LOCUS       x\nACGT\n", "ID\tx\n", "LOCUS\tx\n", "\n\n"):
        assert flat_format(written(tmp_path / "x", text)) is None
    with fails(DataError):
        Reference(written(tmp_path / "x", EMBL))
