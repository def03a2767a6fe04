"""FASTA reading against a naive oracle, for every way to lay out, compress and break a file."""

import gzip
import io
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome.fasta import (
    read_fasta,
    read_records,
    readable,
    scan_fasta,
)
from bigbird_dna.genome.sequence import clean
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
