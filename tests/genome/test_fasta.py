"""FASTA reading against a naive oracle, for every way to lay out, compress and break a file."""

import gzip
import io
import sys
import tracemalloc
from contextlib import nullcontext
from pathlib import Path

import pytest
from Bio import SeqIO
from Bio.Seq import Seq
from Bio.SeqFeature import SeqFeature, SimpleLocation
from Bio.SeqRecord import SeqRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome import fasta
from bigbird_dna.genome.assembly import load_assembly, open_assembly
from bigbird_dna.genome.contig_records import (
    ContigFragments,
    flat_format,
    parse_fragment,
    stream_flat_file,
)
from bigbird_dna.genome.fasta import LengthsAhead, scan_fasta, spool_stdin, stream_fasta
from bigbird_dna.genome.reference import Prepared, Reference, prepare_reference
from bigbird_dna.genome.sequence import Interval, clean
from tests.genome.formats import EMBL, GENBANK, PACKINGS
from tests.golden.messages import fails, message
from tests.toys import BROKEN_FASTA, random_dna, written

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
    chunk_bases=st.integers(1, 70),
    block=block_sizes,
)
def test_every_layout_gives_the_same_chunks(
    tmp_path,
    records,
    width,
    newline,
    final_newline,
    blank_lines,
    packed,
    chunk_bases,
    block,
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
    assert lengths == {
        f"c{number}": len(sequence) for number, sequence in enumerate(records)
    }


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
        tmp_path / "x.fa",
        ">a\nACGTA\nACG\n>b\n" + "".join("A" * width + "\n" for width in widths),
    )
    with (
        pytest.MonkeyPatch.context() as patch,
        nullcontext() if is_even(widths) else fails(DataError),
    ):
        patch.setattr(fasta, "BLOCK_BYTES", block)
        assert scan_fasta(path) == {"a": 8, "b": sum(widths)}


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("content", "message"), BROKEN_FASTA.values(), ids=BROKEN_FASTA.keys()
)
def test_a_broken_file_gives_one_clear_line(
    tmp_path, monkeypatch, content, message, block
):
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
    with fails(ValueError):
        next(stream_fasta(path, 0))


def test_standard_input_can_be_read_twice_and_is_called_by_its_name(monkeypatch):
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b">a\nACGU\n")))
    )
    with fails(DataError), spool_stdin() as p:
        scan_fasta(p)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b">a\nACGT\n")))
    with spool_stdin() as path:
        assert scan_fasta(path) == {"a": 4}
        assert [chunk.sequence for chunk in stream_fasta(path)] == ["ACGT"]
    assert not path.exists()
    terminal = io.TextIOWrapper(io.BytesIO())
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    with fails(UsageError), spool_stdin():
        pass


def traced(run):
    """What a function gives, and the bytes that it had at most."""
    tracemalloc.start()
    try:
        return run(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_a_record(tmp_path):
    path = tmp_path / "one-line.fa.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(b">a\n")
        for _ in range(40):
            stream.write(b"ACGTTGCA" * 125_000)
    bases, peak = traced(
        lambda: sum(len(chunk.sequence) for chunk in stream_fasta(path, 100_000))
    )
    assert bases == 40_000_000 and peak < 20_000_000


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
    chunks = list(stream_flat_file(path, flat, 10_000))
    assert [chunk.contig for chunk in chunks] == names
    assert [chunk.sequence for chunk in chunks] == [START, "ACGTACGTACGT", "ACGTA"][
        : len(names)
    ]
    assert [chunk.ambiguous for chunk in chunks] == [1, 0, 0][: len(names)]


@pytest.mark.parametrize("size", [1, 7, 75, 76])
def test_chunks_cut_the_sequence_anywhere(tmp_path, size):
    path = written(tmp_path / "x.gb", GENBANK)
    chunks = [
        c for c in stream_flat_file(path, "GenBank", size) if c.contig == "NC_001133.9"
    ]
    assert "".join(chunk.sequence for chunk in chunks) == START
    assert [chunk.start for chunk in chunks] == list(range(0, 75, size))
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_other_files_are_neither_and_random_access_asks_for_a_prepared_copy(tmp_path):
    for text in (">LOCUS       x\nACGT\n", "ID\tx\n", "LOCUS\tx\n", "\n\n"):
        assert flat_format(written(tmp_path / "x", text)) is None
    with fails(DataError):
        Reference(written(tmp_path / "x", EMBL))


def test_memory_is_that_of_a_record(tmp_path):
    path, letters = tmp_path / "x.gb", "acgttgcaat " * 6
    with path.open("w") as stream:
        for number in range(20):
            stream.write(
                f"LOCUS       c{number} 120000 bp DNA linear CON 01-JAN-2001\nORIGIN\n"
            )
            stream.writelines(f"{1 + 60 * line:9} {letters}\n" for line in range(2000))
            stream.write("//\n")
    next(stream_flat_file(path, "GenBank", 100))  # its imports
    chunks = stream_flat_file(path, "GenBank", 10_000)
    bases, peak = traced(lambda: sum(len(chunk.sequence) for chunk in chunks))
    assert bases == 2_400_000 and peak < 1_500_000


# Fragments of contigs: at their own place, whatever their chunks, in little memory; other names stay.

DEMO = load_assembly("demo")


def as_fasta(records):
    return "".join(f">{name} described\n{sequence}\n" for name, sequence in records)


def named(contig, start, sequence, commas=False):
    form = "," if commas else ""
    return f"{contig}:{start + 1:{form}}-{start + len(sequence):{form}}", sequence


fragments = st.lists(
    st.tuples(st.integers(0, 150), st.integers(1, 70), st.booleans()),
    min_size=1,
    max_size=4,
)


@given(
    contigs=st.lists(fragments, min_size=1, max_size=3),
    whole=st.integers(0, 3),
    size=st.integers(1, 90),
    seed=st.integers(0, 99),
)
def test_every_fragment_is_where_its_name_says(tmp_path, contigs, whole, size, seed):
    records, expected, ambiguous = [], {}, 0
    for number, gaps in enumerate(contigs):
        text = ""
        for gap, length, commas in gaps:
            text += "N" * gap
            sequence = random_dna(length, seed).replace("A", "R", 1)
            ambiguous += sequence.count("R")
            records.append(named(f"c{number}", len(text), sequence, commas))
            text += sequence.replace("R", "N")
        expected[f"c{number}"] = text
        if number == whole:
            records.append(("whole", "ACGT"))
            expected["whole"] = "ACGT"
    path = written(tmp_path / "x.fa", as_fasta(records))
    placed = ContigFragments("x.fa", DEMO)
    chunks = list(placed.place(stream_fasta(path, 17), size, lambda: scan_fasta(path)))
    found = {}
    for chunk in chunks:
        assert chunk.start == len(found.get(chunk.contig, ""))
        assert len(chunk.sequence) <= max(size, 17)
        assert chunk.contig == "whole" or chunk.last or len(chunk.sequence) == size
        found[chunk.contig] = found.get(chunk.contig, "") + chunk.sequence
    assert found == expected and list(found) == list(expected)
    assert [chunk.contig for chunk in chunks if chunk.last] == list(expected)
    assert sum(chunk.ambiguous for chunk in chunks) == ambiguous
    assert placed.contigs == {
        contig: sum(length for _, length, _ in gaps)
        for contig, gaps in zip(
            (name for name in expected if name != "whole"), contigs, strict=True
        )
    }


def test_the_forms_of_a_fragment_s_name():
    assert parse_fragment("chr20:1000001-2000000") == Interval(
        "chr20", 1_000_000, 2_000_000
    )
    assert parse_fragment("chr20:1,000,001-2,000,000") == Interval(
        "chr20", 1_000_000, 2_000_000
    )
    assert parse_fragment("HLA:A:1-5") == Interval("HLA:A", 0, 5)
    others = (
        "chr20",
        "c:0-5",
        "c:5-4",
        "c:1-",
        "c:-5",
        ":1-5",
        "c:1,00-2,000",
        "c:1-2/rc",
    )
    for name in (*others, "c:1-9999999999"):
        assert parse_fragment(name) is None


def test_a_name_that_the_length_or_the_assembly_contradicts_stays(tmp_path, capsys):
    source, output = tmp_path / "x.fa", tmp_path / "out.fa.gz"
    source.write_text(
        as_fasta([("c:3-9", "ACGT"), ("d:3-6", "ACGT"), ("e:3-6", "ACGT")])
    )
    aliases = written(tmp_path / "aliases.tsv", "e:3-6\tE\n")
    assembly = open_assembly("custom", aliases)
    assert prepare_reference(source, output, assembly).contigs == {
        "c:3-9": 4,
        "d": 6,
        "e:3-6": 4,
    }
    message(capsys.readouterr().err, "record 'c:3-9' has 4 bp", "contig 'd' has 4 bp")


def test_fragments_that_do_not_go_together_are_refused(tmp_path):
    source, output = tmp_path / "x.fa", tmp_path / "out" / "x.fa.gz"
    output.parent.mkdir()
    second = named("c", 2, "ACGT")
    for records in (
        *(
            [named("c", 5, "ACGT"), named("c", 7, "ACGT")],
            [named("c", 9, "ACGT"), second],
        ),
        *(
            [second, ("d", "A"), named("c", 9, "ACGT")],
            [second, ("c", "A")],
            [("c", "A"), second],
        ),
    ):
        source.write_text(as_fasta(records))
        with fails(DataError) as caught:
            prepare_reference(source, output)
        assert str(caught.value).startswith(str(source)) and not list(
            output.parent.iterdir()
        )


def test_a_fragment_has_to_lie_inside_its_contig_and_is_no_start_of_it(
    tmp_path, capsys
):
    source, output = tmp_path / "x.fa", tmp_path / "x.fa.gz"
    yeast = load_assembly("sacCer3")  # chromosome I has 230,218 bp
    source.write_text(as_fasta([named("chrI", 230_000, "ACGT" * 60)]))
    with fails(DataError):
        prepare_reference(source, output, yeast)
    source.write_text(as_fasta([named("chrI", 230_000, "ACGT" * 50)]))
    prepare_reference(source, output, yeast)
    assert "warning" not in capsys.readouterr().err


def test_n_before_a_fragment_takes_no_memory(tmp_path):
    source = written(tmp_path / "x.fa", f">c:100000001-100000060\n{'ACGT' * 15}\n")
    found, peak = traced(lambda: prepare_reference(source, tmp_path / "x.fa.gz"))
    assert found.contigs == {"c": 100_000_060} and peak < 60_000_000


def test_a_refused_name_closes_the_file(tmp_path: Path) -> None:
    """An error keeps what is suspended alive: the file must not wait for the garbage collector."""
    path = written(tmp_path / "genome.fa", f">a\n{random_dna(200_000, 1)}\n>b\nACGT\n")

    def check(name: str) -> None:
        raise UsageError(name)

    lengths = LengthsAhead(path, check)
    with pytest.raises(UsageError):
        lengths.all()
    assert lengths == {} and str(path) not in {
        str(file.resolve()) for file in Path("/proc/self/fd").iterdir()
    }
