"""Arrays are read as NumPy wrote them; what claims more than it holds is refused before memory is taken."""

import io
import itertools
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.foreign import open_npz, read_header
from bigbird_dna.errors import DataError
from tests.golden.messages import fails

SHAPES = [(), (0,), (5,), (3, 4), (2, 0, 3), (2, 3, 4)]
DTYPES = ["u1", "<f4", ">f8", "i8", "?", "<U7", "S3"]


@pytest.mark.parametrize(("shape", "dtype", "order"), list(itertools.product(SHAPES, DTYPES, "CF")))
def test_arrays_come_back_as_they_were_written(
    tmp_path: Path, shape: tuple[int, ...], dtype: str, order: str
):
    path = tmp_path / "a.npz"
    values = np.asarray(np.random.default_rng(1).integers(0, 9, shape).astype(dtype), order=order)
    for save in (np.savez, np.savez_compressed):
        save(path, values=values, other=np.arange(3))
        with open_npz(path) as stored:
            assert stored.names == ["values", "other"]
            header, found = stored.header("values"), stored.read("values")
        assert header.shape == shape and header.dtype == values.dtype and header.nbytes == values.nbytes
        np.testing.assert_array_equal(found, values)
        assert found.flags.writeable or not found.size


def header_of(text: str | bytes, version: tuple[int, int] = (1, 0), size: int | None = None) -> io.BytesIO:
    body = text if isinstance(text, bytes) else text.encode("latin1")
    length = struct.pack("<H" if version == (1, 0) else "<I", len(body) if size is None else size)
    return io.BytesIO(b"\x93NUMPY" + bytes(version) + length + body)


GOOD = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }"


def test_a_header_is_read_in_both_versions() -> None:
    for version in ((1, 0), (2, 0)):
        for text in (GOOD, GOOD.replace("(3, 4)", "(3L, 4L)")):  # the latter is Python 2's
            assert read_header(header_of(text, version)) == ((3, 4), False, np.dtype("<f8"))


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("'<f8'", "'|O'"),
        GOOD.replace("'<f8'", "[('a', '|O')]"),
        GOOD.replace("'<f8'", "'rubbish'"),
        GOOD.replace("'<f8'", "__import__('os').abort()"),
        GOOD.replace("(3, 4)", "(-3, 4)"),
        GOOD.replace("(3, 4)", "(3.5, 4)"),
        GOOD.replace("(3, 4)", "(True, 4)"),
        GOOD.replace("(3, 4)", "5"),
        GOOD.replace("False", "0"),
        GOOD.replace("'shape'", "'form'"),
        GOOD.replace("}", "'more': 1}"),
        GOOD[:20],
        "[1]",
        "{'descr': " + "(" * 3000,
        "{'descr': " + "-" * 9000 + "1}",
        "{'descr': " + "9" * 9000 + "}",
        "",
    ],
)
def test_headers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_header(header_of(text))


def test_a_header_is_not_read_beyond_what_is_sensible() -> None:
    with fails(ValueError):
        read_header(header_of(GOOD, (2, 0), 4_000_000_000))
    with pytest.raises(EOFError):
        read_header(header_of(GOOD, (2, 0), 5000))
    with fails(ValueError):
        read_header(header_of(GOOD, (9, 0)))


def packed(path: Path, member: bytes, name: str = "a.npy", method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, member)
    return path


def refused(path: Path, text: str) -> None:
    named = f"a.npz: damaged: .*{text}" if text != "damaged" else "a.npz: damaged: "
    with fails(DataError), reading(path, "damaged", Exception), open_npz(path) as stored:
        stored.read("a")


def test_archives_that_lie_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    huge = header_of(GOOD.replace("(3, 4)", "(300000000, 4)")).getvalue()
    refused(packed(path, huge), "truncated: its header promises 9,600,0")
    refused(packed(path, huge + bytes(96)), "truncated")
    refused(packed(path, header_of(GOOD).getvalue() + bytes(96), method=zipfile.ZIP_LZMA), "packed in a way")
    refused(packed(path, header_of(GOOD).getvalue() + bytes(96), "b.npy"), "no array 'a'")
    refused(packed(path, b"nothing"), "magic string")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a.npy", b"")
    refused(path, "two of its arrays have one name")
    data = bytearray(packed(path, header_of(GOOD).getvalue() + bytes(96)).read_bytes())
    data[6] |= 1  # encrypted, in both places that say so
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    refused(path, "encrypted")
    data = bytearray(packed(path, header_of(GOOD).getvalue() + bytes(96)).read_bytes())
    place = data.index(b"PK\x01\x02") + 24
    data[place : place + 4] = (3 << 30).to_bytes(4, "little")
    path.write_bytes(data)
    refused(path, "truncated")
    whole = packed(path, header_of(GOOD).getvalue() + bytes(96)).read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        refused(path, "damaged")
