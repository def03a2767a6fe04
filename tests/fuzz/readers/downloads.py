"""Readers of what downloads bring and leave: sources, marks of a part, files without a checksum."""

import gzip
import io
import json
import tarfile
from pathlib import Path

from bigbird_dna.disk.outputs import open_text
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sources.inputs import read_sources
from bigbird_dna.genome.sources.transfer import find_fault, read_marks
from tests.fuzz.reader import Reader
from tests.fuzz.readers.arrays import file_bytes

SOURCES = Path(__file__).resolve().parents[3] / "resources" / "sources.yaml"
ENTRY = b"""a.b:
  file: a.gz
  assembly: demo
  from: other
  urls: [https://a/a.gz, "ftp://b:21/a.gz"]
  checksum: sha256:%s
  megabytes: 1.5
  licence: free
  citation: us
"""
MARKS = {"whole": "a None", "url": "http://a/b", "mark": '"v1"', "total": 7}


def _checked(path: Path) -> None:
    fault = find_fault(path, f"file{path.suffix}" if path.suffix != ".tgz" else "file.tar.gz", None)
    if fault is not None:
        raise DataError(f"{path}: {fault}")


def _bgzip(path: Path) -> None:
    with open_text(path) as stream:
        stream.write(">a\nACGT\n" * 50)


def _tar() -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as stream:
        stream.addfile(tarfile.TarInfo("a"), io.BytesIO())
    return gzip.compress(archive.getvalue(), mtime=0)


READERS = [
    Reader(
        "sources",
        ".yaml",
        read_sources,
        lambda: [SOURCES.read_bytes(), ENTRY % (b"0" * 64)],
        tokens=(
            *(b"null", b"-1", b"1e999", b"1" * 5000, b"http://[", b"md5:", b"&a [*a]", b"!!timestamp x"),
            b"../x",
        ),
    ),
    Reader(
        "download-marks",
        ".json",
        read_marks,
        lambda: [json.dumps(MARKS).encode(), json.dumps({**MARKS, "mark": None, "total": None}).encode()],
        tokens=(b"null", b"[]", b"1" * 5000, b"[" * 2000, b'"\\r\\n"', b'"\\ud800"'),
    ),
    Reader(
        "fetched-gzip",
        ".gz",
        _checked,
        lambda: [gzip.compress(b"chr1\t1\t2\n" * 90, mtime=0), *file_bytes(".gz", _bgzip)],
    ),
    Reader("fetched-archive", ".tgz", _checked, lambda: [_tar()]),
    Reader(
        "fetched-text",
        ".bed",
        _checked,
        lambda: [b"chr1\t1\t2\n" * 9],
        tokens=(b"<html>", b"<!DOCTYPE html>"),
    ),
]
