"""NumPy, HDF5 and Parquet are read as they were written; what claims more than it holds is refused."""

import ast
import io
import itertools
import json
import struct
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigbird_dna.disk import foreign
from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.foreign import (
    check_array,
    check_cells,
    open_hdf5,
    open_npz,
    own_arrays,
    read_frame,
    read_header,
    read_text,
)
from bigbird_dna.errors import DataError
from tests.golden.messages import fails

SHAPES = [(), (0,), (5,), (3, 4), (2, 0, 3), (2, 3, 4)]
DTYPES = ["u1", "<f4", ">f8", "i8", "?", "<U7", "S3"]


@pytest.mark.parametrize(
    ("shape", "dtype", "order"), list(itertools.product(SHAPES, DTYPES, "CF"))
)
def test_arrays_come_back_as_they_were_written(
    tmp_path: Path, shape: tuple[int, ...], dtype: str, order: str
):
    path = tmp_path / "a.npz"
    values = np.asarray(
        np.random.default_rng(1).integers(0, 9, shape).astype(dtype), order=order
    )
    for save in (np.savez, np.savez_compressed):
        save(path, values=values, other=np.arange(3))
        with open_npz(path) as stored:
            assert stored.names == ["values", "other"]
            header, found = stored.header("values"), stored.read("values")
        assert (
            header.shape == shape
            and header.dtype == values.dtype
            and header.nbytes == values.nbytes
        )
        np.testing.assert_array_equal(found, values)
        assert found.flags.writeable or not found.size


def header_of(
    text: str | bytes, version: tuple[int, int] = (1, 0), size: int | None = None
) -> io.BytesIO:
    body = text if isinstance(text, bytes) else text.encode("latin1")
    length = struct.pack(
        "<H" if version == (1, 0) else "<I", len(body) if size is None else size
    )
    return io.BytesIO(b"\x93NUMPY" + bytes(version) + length + body)


GOOD = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }"


def test_a_header_is_read_in_both_versions() -> None:
    for version in ((1, 0), (2, 0)):
        for text in (
            GOOD,
            GOOD.replace("(3, 4)", "(3L, 4L)"),
        ):  # the latter is Python 2's
            assert read_header(header_of(text, version)) == (
                (3, 4),
                False,
                np.dtype("<f8"),
            )


TYPES = ("'|O'", "[('a', '|O')]", "'rubbish'", "__import__('os').abort()")
SHAPES_OF_NONE = ("(-3, 4)", "(3.5, 4)", "(True, 4)", "5")
DEEP = ("(" * 3000, "-" * 9000 + "1}", "9" * 9000 + "}")


@pytest.mark.parametrize(
    "stream",
    [
        *(header_of(GOOD.replace("'<f8'", text)) for text in TYPES),
        *(header_of(GOOD.replace("(3, 4)", text)) for text in SHAPES_OF_NONE),
        *(
            header_of(GOOD.replace(*pair))
            for pair in (("False", "0"), ("'shape'", "'form'"), ("}", "'more': 1}"))
        ),
        *(header_of("{'descr': " + text) for text in DEEP),
        *map(header_of, (GOOD[:20], "[1]", "")),
        header_of(GOOD, (2, 0), 4_000_000_000),
        header_of(GOOD, (2, 0), 5000),  # ends within it
        header_of(GOOD, (9, 0)),
    ],
)
def test_headers_that_are_none_are_refused(stream: io.BytesIO) -> None:
    with pytest.raises((ValueError, EOFError)):
        read_header(stream)


def packed(
    path: Path, member: bytes, name: str = "a.npy", method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, member)
    return path.read_bytes()


def refused(path: Path, *named: object) -> None:
    caught = fails(DataError, "a.npz: damaged: ", *named)
    with caught, reading(path, "damaged", Exception), open_npz(path) as stored:
        stored.read("a")


def test_archives_that_lie_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    whole = header_of(GOOD).getvalue() + bytes(96)
    huge = header_of(GOOD.replace("(3, 4)", "(300000000, 4)")).getvalue()
    for named, member, *other in (
        ("9,600,0", huge),
        ("9,600,0", huge + bytes(96)),
        ("'a'", whole, "a.npy", zipfile.ZIP_LZMA),
        ("'a'", whole, "b.npy"),
        ("", b"nothing"),
    ):
        packed(path, member, *other)
        refused(path, named)
    with (
        zipfile.ZipFile(path, "a") as archive,
        pytest.warns(UserWarning, match="Duplicate"),
    ):
        archive.writestr("a.npy", b"")
    refused(path)
    data = packed(path, whole)
    central = data.index(b"PK\x01\x02")
    encrypted, large = bytearray(data), bytearray(data)
    encrypted[6] |= 1  # in both places where it is stored
    encrypted[central + 8] |= 1
    large[central + 24 : central + 28] = (3 << 30).to_bytes(4, "little")
    for damaged in (
        encrypted,
        large,
        *(data[:size] for size in range(0, len(data), 7)),
    ):
        path.write_bytes(damaged)
        refused(path)


def hdf5_refused(path: Path, *named: object) -> None:
    with fails(DataError, path, *named), open_hdf5(path) as stored:
        for name, data in own_arrays(stored):
            check_array(path, name, data)
            read_text(path, data, "tracks")


def test_links_are_not_followed(tmp_path: Path) -> None:
    path, other = tmp_path / "a.h5", tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["secret"] = np.arange(4)
    with h5py.File(path, "w") as file:
        file["group/inner/values"] = np.arange(6)
        file["group/inner/back"] = file["group"]  # a ring of groups
        file["soft"] = h5py.SoftLink("/group/inner/values")
        file["outside"] = h5py.ExternalLink(str(other), "/secret")
        file["gone"] = h5py.ExternalLink("/etc/passwd", "/x")
    with open_hdf5(path) as stored:
        assert [name for name, _ in own_arrays(stored)] == ["group/inner/values"]


def test_values_in_other_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    (tmp_path / "raw").write_bytes(bytes(64))
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (8,), "f8", external=[(str(tmp_path / "raw"), 0, 64)])
    hdf5_refused(path, "a:")
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "b", (4,))
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("a", layout)
    hdf5_refused(path, "a:")


def test_arrays_that_claim_too_much_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (10**9, 919), "f4", chunks=(64, 919))
    hdf5_refused(path, "(1000000000, 919)")
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "a", (100, 9), "f4", maxshape=(None, None), chunks=(50_000, 900)
        )
    hdf5_refused(path, "(50000, 900)")


def test_texts_without_an_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["a"] = np.arange(4)
        file["a"].attrs["tracks"] = ["one", "two", "three", "ü"]
        file["tracks"] = ["x", "yy"]
        file["b"] = np.frombuffer(b"GCOL\x01\x00\x00\x00\x20\x00 is a value", np.uint8)
    with open_hdf5(path) as stored:
        assert read_text(path, stored["a"], "tracks").tolist() == [
            "one",
            "two",
            "three",
            "ü",
        ]
        assert read_text(path, stored["tracks"]).tolist() == [b"x", b"yy"]
        assert read_text(path, stored["a"], "none") is None
    data = bytearray(path.read_bytes())
    place = data.index(b"GCOL") + 16
    index, size = struct.unpack("<H6xQ", data[place : place + 16])
    while index:
        place += 16 + -(-size // 8) * 8
        index, size = struct.unpack("<H6xQ", data[place : place + 16])
    data[place + 8 : place + 16] = bytes(
        8
    )  # the free space: the library would look at it for ever
    path.write_bytes(data)
    hdf5_refused(path, "byte ")


def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "contig": pd.Categorical(["chr1", "chr2", "chr1"]),
            "name": ["a", "b", "ü"],
            "start": np.array([0, 200, 2**31 - 1]),
            "value": np.array([0.5, np.nan, -1], np.float32),
        }
    )


def test_tables_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table().to_parquet(path, index=False)
    pd.testing.assert_frame_equal(read_frame(path), table())
    pd.testing.assert_frame_equal(
        read_frame(path, ["start", "name"]), table()[["start", "name"]]
    )
    check_cells(path, read_frame(path), ["contig", "name"], ["start"])


def test_what_pandas_says_in_a_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    stored = pa.Table.from_pandas(table())
    for stated in (
        b"\xff",
        b"{",
        json.dumps({"index_columns": ["x"], "columns": [{}]}).encode(),
    ):
        pq.write_table(stored.replace_schema_metadata({b"pandas": stated}), path)
        assert len(read_frame(path)) == 3


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("name", [b"a", b"b", b"c"]),
        ("name", ["a", None, "b"]),
        ("name", [1, 2, 3]),
        ("contig", pd.Categorical(["a", None, "b"])),
        ("contig", pd.Categorical([1, 2, 1])),
        ("start", [0.0, 1.0, 2.0]),
        ("start", ["0", "1", "2"]),
        ("start", [0, -1, 5]),
        ("start", [0, 2**31, 5]),
    ],
)
def test_cells_that_will_not_do_are_named(
    tmp_path: Path, name: str, values: object
) -> None:
    path = tmp_path / "a.parquet"
    table().assign(**{name: values}).to_parquet(path, index=False)
    with fails(DataError, name):
        check_cells(path, read_frame(path), ["contig", "name"], ["start"])


def test_more_rows_than_a_file_can_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": pa.array(np.zeros(5_000_000, np.int8))}), path)
    monkeypatch.setattr(foreign, "LARGEST_RATIO", 100)
    assert path.stat().st_size < 50_000
    with fails(DataError):
        read_frame(path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table().to_parquet(path, index=False)
    whole = path.read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        with fails(DataError):
            read_frame(path)
    with fails(DataError):
        read_frame(tmp_path / "b.parquet")


def test_headers_are_parsed_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's parser is not safe in threads before version 3.11.8: it then rejects what is valid."""
    parse, within = ast.literal_eval, []

    def parse_slowly(text: str) -> object:
        within.append(1)
        time.sleep(0.01)
        assert len(within) == 1
        within.pop()
        return parse(text)

    monkeypatch.setattr(ast, "literal_eval", parse_slowly)
    stream = io.BytesIO()
    np.save(stream, np.zeros((3, 4)))
    with ThreadPoolExecutor(8) as pool:
        found = [
            *pool.map(
                lambda _: read_header(io.BytesIO(stream.getvalue())).shape, range(8)
            )
        ]
    assert found == [(3, 4)] * 8
