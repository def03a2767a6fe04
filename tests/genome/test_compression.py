"""Plain, gzip and bgzip read alike; what is cut or something else says so."""

import gzip

import pysam
import pytest

from bigbird_dna.disk.compression import compression, open_bytes, read_lines
from bigbird_dna.errors import DataError
from tests.golden.messages import fails
from tests.toys import written

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
    path = written(tmp_path / "x", gzip.compress(b"one\r\n") + gzip.compress(b"two"))
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
    path = write(tmp_path / "x.gz", "bgzip")
    content = path.read_bytes()
    path.write_bytes(content[: -int(left_out if left_out > 1 else len(content) * left_out)])
    with fails(DataError), open_bytes(path):
        pass


@pytest.mark.parametrize("name", ["absent", "."])
def test_a_missing_file_and_a_directory(tmp_path, name):
    with fails(DataError):
        compression(tmp_path / name)
