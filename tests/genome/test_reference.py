"""Random access agrees with slicing the sequence and other readers; files appear whole or not at all."""

import gzip
import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pysam
import pytest
from Bio import bgzf
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome import reference as references
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.fasta import scan_fasta
from bigbird_dna.genome.reference import (
    Reference,
    complement_windows,
    prepare_reference,
    window_texts,
    write_fasta,
)
from bigbird_dna.genome.sequence import Interval, reverse_complement
from tests.golden.messages import fails
from tests.toys import written

GENOME = {"c1": "ACGTTGCAGGATCCATTAGCN" * 17, "c2": "G" * 59 + "ATTA", "c3": "T"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "genome.fa.gz"
    write_fasta(path, GENOME.items())
    return path


@pytest.fixture(scope="module")
def opened(path):
    with Reference(path) as found:
        yield found


@given(
    contig=st.sampled_from(list(GENOME)),
    start=st.integers(-400, 800),
    length=st.integers(0, 500),
    strand=st.sampled_from("+-"),
)
def test_fetch_is_a_slice_of_the_contig_between_endless_n(
    opened, contig, start, length, strand
):
    padded = "N" * 1000 + GENOME[contig] + "N" * 2000
    expected = padded[1000 + start : 1000 + start + length]
    if strand == "-":
        expected = reverse_complement(expected)
    assert opened.fetch(Interval(contig, start, start + length, strand)) == expected


def test_every_base_of_full_blocks_is_found(tmp_path):
    # Biopython fills blocks with the 65,536 bytes that the format allows, others leave some room.
    path, sequence = tmp_path / "x.fa.gz", "ACGTTGCAGGA" * 18_000
    with bgzf.BgzfWriter(str(path)) as stream:
        stream.write(">a\n")
        for start in range(0, len(sequence), 50):
            stream.write(sequence[start : start + 50] + "\n")
    with Reference(path) as reference:
        for boundary in (65_536, 131_072, 196_608):
            middle = boundary * 50 // 51
            for start in range(middle - 60, middle + 60):
                assert (
                    reference.fetch(Interval("a", start, start + 9))
                    == sequence[start:][:9]
                )


@pytest.mark.parametrize("name", ["x.fa", "x", "x.gz", "x.bgz", "x.zip"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_content_says_how_a_file_is_compressed(tmp_path, name, packed):
    plain, path = tmp_path / "plain.fa", tmp_path / "home" / name
    plain.write_text(">a\nACGT\nTT\n")
    path.parent.mkdir()
    if packed:
        pysam.tabix_compress(str(plain), str(path))
    else:
        plain.rename(path)
    with Reference(path) as reference:
        assert reference.fetch(Interval("a", 2, 6)) == "GTTT"
    suffixes = ["", ".fai", ".gzi"] if packed else ["", ".fai"]
    assert sorted(path.parent.iterdir()) == [
        path.with_name(name + suffix) for suffix in suffixes
    ]


def test_a_copy_by_pickle_reads_on(path):
    with Reference(path) as reference:
        copy = pickle.loads(pickle.dumps(reference))
        assert copy.fetch(Interval("c2", 59, 63)) == "ATTA"


def test_an_index_of_a_read_only_directory_is_in_the_cache(tmp_path, monkeypatch):
    path = written(tmp_path / "x.fa", ">a\nACGT\n")
    write_index = references._write_index

    def refuse(path: Path, prefix: Path, bgzip: bool) -> None:
        if prefix == path:
            raise UsageError("read-only")
        write_index(path, prefix, bgzip)

    monkeypatch.setattr(references, "_write_index", refuse)
    for _ in range(2):
        with Reference(path) as reference:
            assert reference.fetch(Interval("a", 1, 3)) == "CG"
        monkeypatch.setattr(references, "scan_fasta", None)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".fa", ".fa.gz"])
def test_the_index_of_an_older_file_is_made_again(tmp_path, suffix):
    texts = {"old": "ACGT" * 90_000, "new": "TTGCA" * 50_001}
    paths = [tmp_path / f"{name}{suffix}" for name in texts]
    for path, (name, text) in zip(paths, texts.items(), strict=True):
        plain = written(tmp_path / "plain.fa", f">{name[:1]}\n{text}\n>z\nAC\n")
        if suffix == ".fa":
            plain.rename(path)
        else:
            pysam.tabix_compress(str(plain), str(path), force=True)
    with Reference(paths[0]):
        pass
    shutil.copyfile(paths[1], paths[0])
    for index in tmp_path.glob("old*i"):
        os.utime(index, (1e9, 1e9))
    with Reference(paths[0]) as reference:
        assert reference.contigs == {"n": len(texts["new"]), "z": 2}
        assert reference.fetch(Interval("n", 200_000, 200_005)) == "TTGCA"


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b">a\nACGT\n", mtime=0), b">a\nACGT\n>a\nAC\n", b">a\nACGU\n", b""],
)
def test_a_file_without_index_is_checked_before_it_gets_one(tmp_path, content):
    path = written(tmp_path / "x.fa", content)
    with fails(DataError):
        Reference(path)
    assert list(tmp_path.iterdir()) == [path]


def test_prepare_writes_clean_sequence_and_counts(tmp_path, path):
    source, output = tmp_path / "in.fa", tmp_path / "deep" / "out.fa.gz"
    output.parent.mkdir()
    source.write_bytes(b">a first\r\nacgtnN\r\nRYACGT\r\nK\r\n>b\r\nAC\r\n")
    prepared = prepare_reference(source, output)
    assert prepared.contigs == {"a": 13, "b": 2} == scan_fasta(output)
    assert (prepared.unknown, prepared.ambiguous) == (5, 3)
    names = {path.name for path in output.parent.iterdir()}
    assert names == {"out.fa.gz", "out.fa.gz.fai", "out.fa.gz.gzi"}
    assert gzip.decompress(output.read_bytes()) == b">a\nACGTNNNNACGTN\n>b\nAC\n"
    sequence = "ACGTTGCA" * 1_000_003  # a long record keeps lines of 60 letters
    prepare_reference(written(source, f">a\n{sequence}\n"), output)
    _, *lines = gzip.decompress(output.read_bytes()).decode().splitlines()
    assert {len(line) for line in lines[:-1]} == {60}
    assert "".join(lines) == sequence
    prepare_reference(path, tmp_path / "1.fa.gz")  # its own fixed point
    assert (tmp_path / "1.fa.gz").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("text", "assembly"), [(">a\nAC\n>b\nACGU\n", "demo"), (">a\nAC\n", "sacCer3")]
)
def test_a_failed_preparation_leaves_the_old_files_alone(tmp_path, text, assembly):
    source, output = tmp_path / "in.fa", tmp_path / "out" / "out.fa.gz"
    write_fasta(output, [("old", "ACGT")])
    before = {path: path.read_bytes() for path in output.parent.iterdir()}
    source.write_text(text)
    with pytest.raises(DataError):
        prepare_reference(source, output, load_assembly(assembly))
    assert {path: path.read_bytes() for path in output.parent.iterdir()} == before


# Bases in memory are those of the file


places = st.tuples(
    st.sampled_from(["a", "b", "c", "d"]),
    st.integers(-300, 9300),
    st.integers(0, 2500),
    st.sampled_from("+-"),
)


@given(place=places)
def test_any_interval_reads_as_from_the_file(
    reference: Reference, place: tuple
) -> None:
    contig, start, length, strand = place
    interval = Interval(contig, start, start + length, strand)
    letters = reference.windows([contig], [start], length)
    letters = complement_windows(letters) if strand == "-" else letters
    assert window_texts(letters) == [reference.fetch(interval)]


def test_the_file_is_read_once(
    reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Mock(side_effect=reference.fetch)
    monkeypatch.setattr(Reference, "fetch", reads)
    bases = Reference(reference.path)
    first = bases.windows(["a", "b"], [10, 1000], 3000)
    assert sorted(call.args[0] for call in reads.mock_calls) == [
        Interval("a", 0, 9000),
        Interval("b", 0, 6000),
    ]
    assert np.array_equal(bases.windows(["a", "b"], [10, 1000], 3000), first)
    assert reads.call_count == 2


def test_threads_share_it(reference: Reference) -> None:
    bases = Reference(reference.path)
    starts = range(0, 8000, 10)
    with ThreadPoolExecutor(4) as pool:
        windows = pool.map(lambda start: bases.windows(["a"], [start], 700), starts)
        assert [text for letters in windows for text in window_texts(letters)] == [
            reference.fetch(Interval("a", start, start + 700)) for start in starts
        ]


def test_another_contig_is_refused(reference: Reference) -> None:
    bases = Reference(reference.path)
    other = Interval("e", 0, 10)
    for read in (
        lambda: reference.fetch(other),
        lambda: bases.windows(["a", "e"], [0, 0], 10),
    ):
        with fails(DataError):
            read()
