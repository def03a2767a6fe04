"""A file without a published checksum is read to its end before it is taken for whole."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.genome.sources.http_response import find_fault

TEXT = "".join(f"chr1\t{start}\t{start + 200}\n" for start in range(0, 40_000, 200)).encode()


def archive() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        member = tarfile.TarInfo("a.bed")
        member.size = len(TEXT)
        tar.addfile(member, io.BytesIO(TEXT))
    return stream.getvalue()


def bgzip(directory: Path) -> bytes:
    write_fasta(directory / "made.fa.gz", [("a", "ACGTTGCA" * 20_000)])
    return (directory / "made.fa.gz").read_bytes()


@pytest.mark.parametrize("kind", ["gzip", "bgzip", "archive"])
def test_every_start_of_a_compressed_file_is_too_short(tmp_path: Path, kind: str) -> None:
    whole = {"gzip": lambda: gzip.compress(TEXT), "archive": archive, "bgzip": lambda: bgzip(tmp_path)}[
        kind
    ]()
    file = "a.tar.gz" if kind == "archive" else "a.gz"
    path = tmp_path / "copy"
    path.write_bytes(whole)
    assert find_fault(path, file, None) is None
    for size in {*range(0, len(whole), max(1, len(whole) // 50)), *range(len(whole) - 40, len(whole))}:
        path.write_bytes(whole[:size])
        fault = find_fault(path, file, None)
        assert fault is not None and fault.isprintable() and str(path) not in fault, size


@pytest.mark.parametrize(
    ("content", "file", "fault"),
    [
        (b"", "a.bed", "it is empty"),
        (b"\n<!doctype HTML><p>", "a.bed", "it is a web page"),
        (b"<?xml version='1.0'?><Error/>", "a.gz", "it is a web page"),
        (TEXT, "a.gz", "it is not a gzip file"),
        (gzip.compress(TEXT), "a.bed", "it is a gzip file"),
        (gzip.compress(gzip.compress(TEXT)), "a.gz", "it is compressed twice"),
        (gzip.compress(TEXT)[:-5] + bytes(5), "a.gz", "CRC check failed"),
        (gzip.compress(TEXT) + b"more", "a.gz", "Not a gzipped file"),
        (gzip.compress(TEXT), "a.tgz", "truncated: the tar archive's end is missing"),
    ],
)
def test_files_that_are_not_what_they_should_be(
    tmp_path: Path, content: bytes, file: str, fault: str
) -> None:
    path = tmp_path / "copy"
    path.write_bytes(content)
    assert fault in (find_fault(path, file, None) or "")


def test_a_text_shows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "copy"
    path.write_bytes(TEXT[:-9])
    assert find_fault(path, "a.bed", None) is None
