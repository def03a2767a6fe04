"""FASTA reading against a naive oracle, for every way to lay out, compress and break a file."""

import gzip
import io
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome import fasta
from bigbird_dna.genome.fasta import scan_fasta, spool_stdin, stream_fasta
from bigbird_dna.genome.sequence import clean
from tests.golden.messages import fails
from tests.toys import BROKEN_FASTA, written

sequences = st.text("ACGTNacgtnRYk", min_size=1, max_size=60)
genomes = st.lists(sequences, min_size=1, max_size=5)
block_sizes = st.integers(1, 40)
same_file = settings(max_examples=150)


def lay_out(records, width, newline, final_newline, blank_lines):
    text = "\n" * blank_lines
    for number, sequence in enumerate(records):
        lines = [sequence[i : i + width] for i in range(0, len(sequence), width)]
        text += f">c{number} some description > here\n" + "\n".join(lines) + "\n"
        text += "\n" * blank_lines
    return (text if final_newline else text.rstrip("\n")).replace("\n", newline).encode()


@same_file
@given(
    records=genomes,
    width=st.integers(1, 70),
    newline=st.sampled_from(["\n", "\r\n"]),
    final_newline=st.booleans(),
    blank_lines=st.integers(0, 2),
    packed=st.booleans(),
    chunk_bases=st.integers(1, 70),
    block=block_sizes,
)
def test_every_layout_gives_the_same_chunks(
    tmp_path, records, width, newline, final_newline, blank_lines, packed, chunk_bases, block
):
    content = lay_out(records, width, newline, final_newline, blank_lines)
    path = written(tmp_path / "x.fa", content, packed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fasta, "BLOCK_BYTES", block)
        chunks = list(stream_fasta(path, chunk_bases))
        lengths = scan_fasta(path)
    expected = []
    for number, sequence in enumerate(records):
        for start in range(0, len(sequence), chunk_bases):
            part = sequence[start : start + chunk_bases]
            last = start + chunk_bases >= len(sequence)
            expected.append((f"c{number}", start, clean(part, "test"), last))
    assert [chunk[:4] for chunk in chunks] == expected
    assert sum(chunk.ambiguous for chunk in chunks) == sum(
        letter in "RYk" for one in records for letter in one
    )
    assert lengths == {f"c{number}": len(sequence) for number, sequence in enumerate(records)}


def is_even(widths):
    """All lines but the last are equal, the last is no longer; blank lines only at the end."""
    while widths and widths[-1] == 0:
        widths = widths[:-1]
    return bool(widths) and set(widths[:-1]) <= {widths[0]} and widths[-1] <= widths[0]


@same_file
@given(widths=st.lists(st.integers(0, 5), min_size=1, max_size=6), block=block_sizes)
def test_lines_are_even_or_refused(tmp_path, widths, block):
    if not any(widths):
        return
    path = written(
        tmp_path / "x.fa", ">a\nACGTA\nACG\n>b\n" + "".join("A" * width + "\n" for width in widths)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fasta, "BLOCK_BYTES", block)
        if is_even(widths):
            assert scan_fasta(path) == {"a": 8, "b": sum(widths)}
        else:
            with fails(DataError):
                scan_fasta(path)


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize(("content", "message"), BROKEN_FASTA.values(), ids=BROKEN_FASTA.keys())
def test_a_broken_file_gives_one_clear_line(tmp_path, monkeypatch, content, message, block):
    monkeypatch.setattr(fasta, "BLOCK_BYTES", block)
    path = written(tmp_path / "broken.fa", content)
    for read in (scan_fasta, lambda path: list(stream_fasta(path))):
        with fails(DataError, message) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = written(tmp_path / "x.fa", b"\xef\xbb\xbf>a\nACGT\n")
    assert scan_fasta(path) == {"a": 4}


def test_a_chunk_size_is_positive(tmp_path):
    with fails(ValueError):
        next(stream_fasta(tmp_path / "x.fa", 0))


def test_standard_input_can_be_read_twice_and_is_called_by_its_name(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b">a\nACGU\n"))))
    with fails(DataError), spool_stdin() as p:
        scan_fasta(p)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b">a\nACGT\n")))
    with spool_stdin() as path:
        assert scan_fasta(path) == {"a": 4}
        assert [chunk.sequence for chunk in stream_fasta(path)] == ["ACGT"]
    assert not path.exists()


def test_a_terminal_is_no_input(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO())
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    with fails(UsageError), spool_stdin():
        pass


def test_memory_does_not_grow_with_a_record(tmp_path):
    import tracemalloc

    path = tmp_path / "one-line.fa.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(b">a\n")
        for _ in range(40):
            stream.write(b"ACGTTGCA" * 125_000)
    tracemalloc.start()
    bases = sum(len(chunk.sequence) for chunk in stream_fasta(path, 100_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert bases == 40_000_000
    assert peak < 20_000_000
