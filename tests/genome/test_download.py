"""Downloads resume, try mirrors, are checked, and leave nothing incomplete under the output's name."""

import gzip
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome import download as downloads
from bigbird_dna.genome import sources
from bigbird_dna.genome.download import download, fetch, find_fault
from bigbird_dna.genome.sources import Source, load_sources
from tests.file_server import FileServer, running_server
from tests.genome.formats import PACKINGS, tar
from tests.golden.messages import fails
from tests.toys import written

CONTENT = os.urandom(200_000)
CHECKSUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
CHUNK = downloads._CHUNK
TEXT = "".join(f"chr1\t{start}\t{start + 200}\n" for start in range(0, 40_000, 200))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    with running_server() as server:
        server.files = {"file": CONTENT, "mirror": CONTENT}
        yield server


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_an_interrupted_download_resumes(server: FileServer, tmp_path: Path) -> None:
    server.cuts = [2 * CHUNK + 9, CHUNK]
    download([server.url("file")], tmp_path / "out", CHECKSUM)
    assert (tmp_path / "out").read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={2 * CHUNK}-", f"bytes={3 * CHUNK}-"]
    assert names(tmp_path) == ["out"]


def test_a_later_call_resumes(server: FileServer, tmp_path: Path) -> None:
    server.cuts = [CHUNK, *[0] * (downloads.ATTEMPTS - 1)]
    with fails(DataError, server.url("file"), "connection was lost", "out.part"):
        download([server.url("file")], tmp_path / "out", CHECKSUM)
    assert names(tmp_path) == ["out.part"]
    server.ranges = []
    download([server.url("file")], tmp_path / "out", CHECKSUM)
    assert (tmp_path / "out").read_bytes() == CONTENT
    assert server.ranges == [f"bytes={CHUNK}-"]


@pytest.mark.parametrize("left", [b"another version", CONTENT + b"more", CONTENT])
def test_other_bytes_are_downloaded_again(
    server: FileServer, tmp_path: Path, left: bytes
) -> None:
    (tmp_path / "out.part").write_bytes(left)
    download([server.url("file")], tmp_path / "out", CHECKSUM)
    assert (tmp_path / "out").read_bytes() == CONTENT


def test_a_server_without_ranges_sends_the_whole_file(
    server: FileServer, tmp_path: Path
) -> None:
    server.accept_ranges = False
    server.cuts = [CHUNK]
    download([server.url("file")], tmp_path / "out", CHECKSUM)
    assert (tmp_path / "out").read_bytes() == CONTENT


def test_text_without_a_checksum_is_never_pieced_together(
    server: FileServer, tmp_path: Path
) -> None:
    (tmp_path / "out.part").write_bytes(b"another version")
    download([server.url("file")], tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == CONTENT
    assert server.ranges == [None]


@pytest.mark.parametrize("status", [404, 503])
def test_a_mirror_is_tried(server: FileServer, tmp_path: Path, status: int) -> None:
    server.status = {"file": status}
    download([server.url("file"), server.url("mirror")], tmp_path / "out", CHECKSUM)
    assert (tmp_path / "out").read_bytes() == CONTENT
    assert len(server.ranges) == 1 + (1 if status == 404 else downloads.ATTEMPTS)


def test_a_mirror_resumes_the_first_server_s_bytes(
    server: FileServer, tmp_path: Path
) -> None:
    server.cuts = [CHUNK, *[0] * (downloads.ATTEMPTS - 1)]
    download([server.url("file"), server.url("mirror")], tmp_path / "out", CHECKSUM)
    assert (tmp_path / "out").read_bytes() == CONTENT
    assert server.ranges[-1] == f"bytes={CHUNK}-"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"wrong", "sha256"), (b"<html>Please log in", "web page")],
)
def test_a_wrong_file_is_named_and_removed(
    server: FileServer, tmp_path: Path, content: bytes, reason: str
) -> None:
    server.files["file"] = content
    (tmp_path / "out").write_bytes(b"old")
    with fails(DataError, tmp_path / "out", server.url("file"), reason):
        download([server.url("file")], tmp_path / "out", CHECKSUM)
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out").read_bytes() == b"old"


def test_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    with fails(DataError, "http://127.0.0.1:9/x", "no server"):
        download(["http://127.0.0.1:9/x"], tmp_path / "out", CHECKSUM)
    assert names(tmp_path) == []


def test_a_stopped_command_keeps_its_bytes_and_the_old_file(tmp_path: Path) -> None:
    script = """
import sys, time
from bigbird_dna.cli import main
from bigbird_dna.genome import sources, download
source = sources.Source("one", "file.gz", "demo", ("http://x/file.gz",), None, 1, "free", "us")
sources.load_sources = lambda: {"one": source}
def receive(url, part):
    part.write_bytes(b"some bytes")
    print("ready", flush=True)
    time.sleep(60)
download._receive = receive
sys.argv = ["bigbird-dna", "prepare", "fetch", "one", "-o", sys.argv[1]]
main.main()
"""
    output = written(tmp_path / "out", "old")
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert b"Traceback" not in errors
    assert output.read_text() == "old"
    assert (tmp_path / "out.part").read_bytes() == b"some bytes"


# Whether a copy is complete


@pytest.mark.parametrize("kind", ["gzip", "bgzip", "archive"])
def test_every_truncation_of_a_compressed_file_is_found(
    tmp_path: Path, kind: str
) -> None:
    whole = {**PACKINGS, "archive": tar}[kind](TEXT.encode())
    name = "a.tar.gz" if kind == "archive" else "a.gz"
    path = written(tmp_path / "copy", whole)
    assert find_fault(path, name, None) is None
    for size in [*range(0, len(whole), 97), *range(len(whole) - 40, len(whole))]:
        path.write_bytes(whole[:size])
        assert find_fault(path, name, None) is not None, size


PACKED = gzip.compress(TEXT.encode(), mtime=0)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"", "a.bed"),
        (b"\n<!doctype HTML><p>", "a.bed"),
        (b"<?xml version='1.0'?><Error/>", "a.gz"),
        (TEXT.encode(), "a.gz"),
        (PACKED[:-5] + bytes(5), "a.gz"),
        (PACKED + b"more", "a.gz"),
    ],
)
def test_another_file_is_found(tmp_path: Path, content: bytes, name: str) -> None:
    assert find_fault(written(tmp_path / "copy", content), name, None)


# Sources


@pytest.fixture
def source(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> Source:
    """The only source: a text with a checksum."""
    url = server.url("file")
    one = Source("one", "file.txt", "demo", (url,), CHECKSUM, 1, "free", "us")
    monkeypatch.setattr(sources, "load_sources", lambda: {"one": one})
    return one


def test_local_files_come_first_and_the_nearest_of_several(
    source: Source, server: FileServer, tmp_path: Path
) -> None:
    fetch("one", tmp_path / "out", tmp_path)
    assert len(server.ranges) == 1
    (tmp_path / "a/deep").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    (tmp_path / "a/deep/file.txt").write_bytes(b"other")
    (tmp_path / "b/file.txt").write_bytes(CONTENT)
    fetch("one", tmp_path / "near", tmp_path)
    assert (tmp_path / "near").read_bytes() == CONTENT
    # The gzip of a text, and the output itself.
    (tmp_path / "c/file.txt.gz").write_bytes(gzip.compress(CONTENT))
    fetch("one", tmp_path / "unpacked", tmp_path / "c")
    assert (tmp_path / "unpacked").read_bytes() == CONTENT
    output = tmp_path / "b/file.txt"
    fetch("one", output, output.parent)
    assert output.read_bytes() == CONTENT
    output.write_bytes(CONTENT[:-1])
    for damaged in (output, tmp_path / "new"):
        with fails(DataError, output, "sha256"):
            fetch("one", damaged, output.parent)
    assert not (tmp_path / "new").exists()
    assert len(server.ranges) == 1


def test_an_unknown_key_or_directory(source: Source, tmp_path: Path) -> None:
    with fails(UsageError):
        fetch("one", tmp_path / "out", tmp_path / "missing")
    with fails(UsageError, "hg99"):
        fetch("hg99", tmp_path / "out")


def test_a_failure_names_the_alternative(
    source: Source, server: FileServer, tmp_path: Path
) -> None:
    server.status = {"file": 404}
    with fails(DataError, "source one", "HTTP 404", "file.txt", "--local-data"):
        fetch("one", tmp_path / "out")


def test_real_files_are_as_published(shared_data: Path, tmp_path: Path) -> None:
    yeast = ("sacCer3.reference", "sacCer3.promoters", "sacCer3.annotation")
    for key in ("GRCh37.chain", "GRCh38.promoters", *yeast):
        fetch(key, tmp_path / key, shared_data)
        megabytes = (tmp_path / key).stat().st_size / 1e6
        assert megabytes == pytest.approx(load_sources()[key].megabytes, rel=0.15)
