"""Plain, gzip and bgzip read alike; what is cut or something else says so."""

import gzip

import pysam
import pytest

from bigbird_dna.disk.compression import compression, open_bytes, read_lines
from bigbird_dna.errors import DataError
from tests.golden.messages import fails

TEXT = "".join(f"line {number}\n" for number in range(20_000))


def write(path, kind, text=TEXT):
    if kind == "plain":
        path.write_text(text)
    elif kind == "gzip":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        with pysam.BGZFile(str(path), "wb") as stream:
            stream.write(text.encode())
    return path


@pytest.mark.parametrize("kind", ["plain", "gzip", "bgzip"])
def test_content_decides_not_the_name(tmp_path, kind):
    path = write(tmp_path / "file.txt", kind)
    assert compression(path) == kind
    with open_bytes(path) as stream:
        assert stream.read().decode() == TEXT


def test_several_gzip_members_are_one_file(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(b"one\r\n") + gzip.compress(b"two"))
    assert list(read_lines(path)) == [(1, "one"), (2, "two")]


@pytest.mark.parametrize("kind", ["gzip", "bgzip"])
@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_cut_file_is_truncated(tmp_path, kind, kept):
    path = write(tmp_path / "x.gz", kind)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    with fails(DataError), open_bytes(path) as stream:
        stream.read()


def test_bgzip_cut_between_two_blocks_is_truncated(tmp_path):
    path = write(tmp_path / "x.gz", "bgzip")
    path.write_bytes(path.read_bytes()[:-28])
    with fails(DataError), open_bytes(path):
        pass


def test_a_flipped_byte_is_damage(tmp_path):
    path = write(tmp_path / "x.gz", "gzip")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with fails(DataError), open_bytes(path) as stream:
        stream.read()


@pytest.mark.parametrize("content", [b"", b"BZh91AY&SY", b"PK\x03\x04rest"])
def test_other_content_is_named(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    with fails(DataError):
        compression(path)


def test_a_missing_file_and_a_directory(tmp_path):
    with fails(DataError):
        compression(tmp_path / "absent")
    with fails(DataError):
        compression(tmp_path)


def test_lines_have_to_be_text(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"fine\n\xff\xfe\n")
    with fails(DataError):
        list(read_lines(path))
