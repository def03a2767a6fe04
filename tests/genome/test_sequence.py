"""Letters, intervals and windows of a sequence."""

import gzip
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.config.data import GenomeConfig
from bigbird_dna.disk import compression
from bigbird_dna.disk.compression import open_bytes, read_lines
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.fasta import scan_fasta
from bigbird_dna.genome.fields import check_name, quoted, whole_number
from bigbird_dna.genome.intervals import read_peaks
from bigbird_dna.genome.promoters import read_loci, read_promoters
from bigbird_dna.genome.sequence import (
    Interval,
    Locus,
    centered_tiles,
    clean,
    count_ambiguous_bytes,
    fraction_n,
    inside,
    reverse_complement,
    window_around,
)
from bigbird_dna.genome.splits import find_named
from tests.genome.formats import PACKINGS
from tests.golden.messages import fails
from tests.toys import written

IUPAC = set("RYSWKMBDHV")

dna = st.text("ACGTN")
any_case = st.text("ACGTNRYSWKMBDHVacgtnryswkmbdhv")


def slow_clean(text):
    return "".join(
        "N" if letter.upper() in IUPAC else letter.upper() for letter in text
    )


@given(any_case)
def test_clean_agrees_with_the_letter_by_letter_rule(text):
    assert clean(text, "x") == slow_clean(text)
    ambiguous = sum(letter.upper() in IUPAC for letter in text)
    assert count_ambiguous_bytes(text.encode()) == ambiguous


@given(
    st.text("ACGTn"),
    st.characters().filter(lambda c: c.upper() not in "ACGTNRYSWKMBDHV"),
)
def test_any_other_character_is_an_error_with_its_place(before, bad):
    with fails(DataError, len(before) + 1):
        clean(before + bad + "ACGT-U", "here")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("ACGU", 4),
        ("MKVLA", 4),
        ("AC-GT", 3),
        ("AC GT", 3),
        ("ACÄGT", 3),
        ("AC\x00", 3),
    ],
)
def test_errors_say_what_the_letter_hints_at(text, place):
    with fails(DataError, f"record 'a': position {place}: "):
        clean(text, "record 'a'")


@given(dna)
def test_reverse_complement_pairs_the_bases_in_reverse(sequence):
    pairs = {"A": "T", "C": "G", "G": "C", "T": "A", "N": "N"}
    assert reverse_complement(sequence) == "".join(
        pairs[base] for base in reversed(sequence)
    )
    assert reverse_complement(reverse_complement(sequence)) == sequence


def test_an_interval_has_its_half_open_length_and_may_reach_beyond_the_contig():
    assert (len(Interval("1", -3, 4)), len(Interval("1", 5, 5))) == (7, 0)
    assert bool(Interval("1", 5, 5))
    for start, end, within in ((0, 10, True), (-1, 9, False), (1, 11, False)):
        assert inside(Interval("1", start, end), {"1": 10}) is within
    assert not inside(Interval("2", 0, 1), {"1": 10})
    for sequence, share in (("", 0.0), ("ACGT", 0.0), ("NNAC", 0.5), ("N", 1)):
        assert fraction_n(sequence) == share


@pytest.mark.parametrize(
    ("start", "end", "strand"), [(0, 1, ""), (0, 1, "."), (0, 1, "plus"), (5, 4, "+")]
)
def test_an_interval_that_cannot_be_is_refused(start, end, strand):
    with fails(ValueError):
        Interval("1", start, end, strand)
    if strand != "+":
        with fails(ValueError):
            Locus("1", 0, strand, "x")


CONTIG = "ACGTTGCAGGATCCATTAGC" * 5


@given(
    st.integers(20, 79), st.sampled_from("+-"), st.integers(0, 20), st.integers(1, 20)
)
def test_the_locus_is_base_number_upstream_of_its_window(
    position, strand, upstream, downstream
):
    window = window_around(Locus("1", position, strand, "x"), upstream, downstream)
    sequence = CONTIG[window.start : window.end]
    base = CONTIG[position]
    if strand == "-":
        sequence, base = reverse_complement(sequence), reverse_complement(base)
    assert len(window) == upstream + downstream
    assert window.strand == strand
    assert sequence[upstream] == base


@given(st.integers(1, 2000), st.integers(1, 300), st.integers(1, 400))
def test_tiles_mirror_themselves_and_leave_no_gap_above_a_stride(length, size, stride):
    starts = list(centered_tiles(length, size, stride))
    span = length - size
    assert starts == sorted(set(starts))
    if span <= 0:
        (start,) = starts
        left_margin, right_margin = -start, start + size - length
        assert 0 <= left_margin - right_margin <= 1
        return
    assert starts[0] == 0
    assert starts[-1] == span
    assert [span - start for start in reversed(starts)] == starts
    assert all(0 < b - a <= stride for a, b in pairwise(starts))
    assert all(0 in (start % stride, (span - start) % stride) for start in starts)
    left = [start for start in starts if start <= (span - stride) / 2]
    assert left == list(range(0, len(left) * stride, stride))


@pytest.mark.parametrize("arguments", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_tiles_want_positive_sizes(arguments):
    with fails(ValueError):
        list(centered_tiles(*arguments))


# Names and numbers that tables can hold, and lines of any length, in every reader of text


NO_NUMBERS = [
    *(
        "",
        "-5",
        "1,000",
        "²",
        "0x5",
        "5.0",
        "1e3",
        "9" * 5000,
        "nan",
    )
]
VCF = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n{}\t{}\t{}\tA\tC\t.\t.\t.\n"


@given(st.integers(0, 2**31 - 1), st.integers(0, 5))
def test_a_number_is_its_digits(number, zeros):
    assert whole_number("0" * zeros + str(number)) == number
    for text in (*NO_NUMBERS, str(2**31), str(2**63), str(2**64)):
        assert whole_number(text) is None


@given(st.text())
def test_a_name_that_passes_keeps_a_table_together(name):
    try:
        check_name(name, "track", "here")
    except DataError as error:
        assert str(error).isprintable() and len(str(error)) < 300
        return
    assert len(quoted(name * 100)) < 1000 and quoted(name).isprintable()
    line = f"{name}\t1\n"
    assert not line.startswith("#")
    assert line.splitlines() == [line[:-1]]
    assert line[:-1].split("\t") == [name, "1"]


# A reader, the name of its file, and its file with places for a contig, a position and a name.
READERS = [
    (read_peaks, "x.bed", "{}\t{}\t90\t{}\n"),
    (read_promoters, "x.bed", "{}\t{}\t6\t{}\t0\t+\n"),
    (read_promoters, "x.sga", "{}\tTSS\t{}\t+\t1\t{}\n"),
    (read_loci, "x.tsv", "contig\tposition\tstrand\tname\n{}\t{}\t+\t{}\n"),
]


@pytest.mark.parametrize(("read", "name", "text"), READERS)
@pytest.mark.parametrize("packed", [False, True])
def test_every_reader_of_lines_refuses_what_would_break_a_table(
    tmp_path, read, name, text, packed
):
    def table(*fields: str) -> Path:
        return written(
            tmp_path / (f"{name}.gz" if packed else name), text.format(*fields), packed
        )

    read(table("c", "5", "n"))
    for wrong in NO_NUMBERS:
        with fails(DataError) as caught:
            read(table("c", wrong, "n"))
        assert len(str(caught.value)) < 400
    for mark in (
        "\0",
        "\x0b",
        "\x0c",
        "\r",
        "\x1c",
        "\x1e",
        "\x85",
        "\x7f",
        "\u2028",
        "\u2029",
    ):
        with fails(DataError):
            read(table(f"c{mark}", "5", "n"))
        if read is read_peaks:  # the names of peaks are not used
            continue
        with fails(DataError):
            read(table("c", "5", f"n{mark}n"))


def test_a_contig_that_would_be_a_comment_is_refused(tmp_path):
    fasta = written(tmp_path / "x.fa", ">#c\nACGT\n")
    with fails(DataError):
        scan_fasta(fasta)
    for mark in ("\0", "\x0b", "\x85", "\u2028"):
        fasta.write_text(f">c{mark}x\nACGT\n")
        try:
            assert list(scan_fasta(fasta)) == ["c"]  # some of them are blanks
        except DataError as error:
            assert "control character" in str(error)


@pytest.mark.parametrize(
    "text", ["c:٣-5", "c:1_0-20", f"c:{'9' * 5000}", f"c:1-{'9' * 5000}"]
)
def test_a_named_region_has_plain_numbers(text):
    with fails(ConfigError):
        find_named(GenomeConfig(test=(text,)), {"c": 100}, load_assembly("demo"))


lines = st.lists(st.text("ab\t é", max_size=9), max_size=12)


@settings(max_examples=100)
@given(lines, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_lines_are_those_of_the_text(tmp_path, wanted, newline, ends, mark):
    text = newline.join(wanted) + newline * ends
    path = written(tmp_path / "x", ("\ufeff" * mark + text).encode() or b"\n")
    expected = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    assert list(read_lines(path)) == list(enumerate(expected, start=1))


# Plain, gzip and bgzip read alike; what is cut or something else says so.

TEXT = "".join(f"line {number}\n" for number in range(20_000))


@pytest.mark.parametrize("kind", PACKINGS)
def test_content_decides_not_the_name(tmp_path, kind):
    path = written(tmp_path / "file.txt", PACKINGS[kind](TEXT.encode()))
    assert compression.compression(path) == kind
    with open_bytes(path) as stream:
        assert stream.read().decode() == TEXT
    path.write_bytes(
        gzip.compress(b"one\r\n") + gzip.compress(b"two")
    )  # several members are one file
    assert list(read_lines(path)) == [(1, "one"), (2, "two")]


PACKED = gzip.compress(TEXT.encode(), mtime=0)
FLIPPED = PACKED[:5000] + bytes([PACKED[5000] ^ 0xFF]) + PACKED[5001:]


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"BZh91AY&SY", b"PK\x03\x04rest", b"fine\n\xff\xfe\n"),
        *(PACKED[: len(PACKED) // 2], PACKED[:-9], FLIPPED),
    ],
)
def test_other_content_and_damage_are_named(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with fails(DataError, tmp_path / "x"):
        list(read_lines(tmp_path / "x"))


@pytest.mark.parametrize("left_out", [0.5, 28])
def test_a_bgzip_file_without_its_last_block_is_truncated(tmp_path, left_out):
    content = PACKINGS["bgzip"](TEXT.encode())
    cut = content[: -int(left_out if left_out > 1 else len(content) * left_out)]
    with fails(DataError), open_bytes(written(tmp_path / "x.gz", cut)):
        pass


@pytest.mark.parametrize("name", ["absent", ".", "pipe"])
def test_a_missing_file_a_directory_and_a_pipe(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    for read in (compression.compression, lambda path: next(read_lines(path))):
        with fails(DataError):
            read(tmp_path / name)
