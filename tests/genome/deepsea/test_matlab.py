"""Arrays of MATLAB files are read in pieces as SciPy and h5py read them whole."""

import random
import re
import struct
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io

from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin import matlab
from bigbird_dna.genome.chromatin.labels import LabelBuilder
from bigbird_dna.genome.chromatin.matlab import open_mat
from tests.golden.messages import fails

ROWS, TRACKS = 37, 11


def arrays(dtype: str = "u1") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        "xdata": (rng.random((ROWS, 4, 25)) < 0.25).astype(dtype),
        "data": (rng.random((ROWS, TRACKS)) < 0.3).astype(dtype),
    }


def write_hdf5(path: Path, content: dict[str, np.ndarray], chunks: object = None) -> Path:
    """As MATLAB 7.3 does: a user block, and the axes the other way round."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in content.items():
            turned = array.transpose()
            wanted = chunks.get(name) if isinstance(chunks, dict) else None
            compression = "gzip" if wanted else None
            file.create_dataset(name, data=turned, chunks=wanted, compression=compression)
    return path


def check(path: Path, content: dict[str, np.ndarray]) -> None:
    with open_mat(path) as found:
        assert {name: array.shape for name, array in found.items()} == {
            name: array.shape for name, array in content.items()
        }
        for rows in ([0], [ROWS - 1], [0, 1, 2, 17, 30, ROWS - 1], list(range(ROWS))):
            for name, array in content.items():
                picked = found[name].pick(np.array(rows))
                assert picked.dtype == np.uint8
                assert np.array_equal(picked, array[rows])
        for rows in (ROWS, ROWS // 2):
            builder = LabelBuilder(rows, TRACKS)
            for part in found["data"].parts(rows):
                builder.fill(*part)
            assert np.array_equal(builder.build().rows(), content["data"][:rows])


@pytest.mark.parametrize("budget", [1, 200, 1 << 26])
@pytest.mark.parametrize(
    "chunks",
    [
        None,
        {"xdata": (25, 4, 1), "data": (TRACKS, 1)},
        {"xdata": (7, 2, 10), "data": (3, 10)},
        {"xdata": (1, 1, ROWS), "data": (1, ROWS)},
    ],
)
def test_hdf5_whatever_the_chunks(tmp_path, monkeypatch, chunks, budget):
    monkeypatch.setattr(matlab, "BUDGET", budget)
    check(write_hdf5(tmp_path / "a.mat", arrays(), chunks), arrays())


@pytest.mark.parametrize("dtype", ["u1", "f8", "?", "i4"])
@pytest.mark.parametrize("compress", [False, True])
def test_version_5_whatever_the_type(tmp_path, compress, dtype):
    content = arrays(dtype)
    scipy.io.savemat(tmp_path / "a.mat", {"note": "text", **content}, do_compression=compress)
    check(tmp_path / "a.mat", content)


def test_version_5_in_the_other_byte_order(tmp_path):
    content = arrays()
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"data": content["data"].astype(">u2")})
    raw = bytearray(path.read_bytes())
    assert raw[126:128] == b"IM"
    # Swap every number of the header, the tags and the values by hand.
    swapped = bytes(raw[:124]) + b"\x01\x00MI"
    words = np.frombuffer(bytes(raw[128:]), "<u4")
    name = words.tobytes().index(b"data") // 4
    values = name + 3
    assert words[values - 1] == ROWS * TRACKS * 2
    numbers = np.frombuffer(words[values:].tobytes(), "<u2").astype(">u2").tobytes()
    words = np.concatenate([words[:name].astype(">u4").view("<u4"), words[name:]])
    tags = words[name + 1 : values].astype(">u4").tobytes()
    swapped += words[: name + 1].tobytes() + tags + numbers
    path.write_bytes(swapped)
    assert np.array_equal(scipy.io.loadmat(path)["data"], content["data"])
    with open_mat(path) as found:
        assert np.array_equal(found["data"].pick(np.arange(ROWS)), content["data"])


@pytest.mark.parametrize("kind", ["hdf5", "plain", "packed"])
def test_other_values_than_0_and_1_are_refused(tmp_path, kind):
    content = arrays("f8")
    content["data"][20, 3] = 0.5
    path = tmp_path / "a.mat"
    if kind == "hdf5":
        write_hdf5(path, content)
    else:
        scipy.io.savemat(path, content, do_compression=kind == "packed")
    with open_mat(path) as found, fails(DataError):
        found["data"].pick(np.arange(ROWS))


@pytest.mark.parametrize("kind", ["hdf5", "plain", "packed"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_truncated_files_are_refused(tmp_path, kind, share):
    path = tmp_path / "a.mat"
    if kind == "hdf5":
        write_hdf5(path, arrays())
    else:
        scipy.io.savemat(path, arrays(), do_compression=kind == "packed")
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])
    with fails(DataError, path), open_mat(path) as found:
        found["xdata"].pick(np.arange(ROWS))
        found["data"].pick(np.arange(ROWS))


@pytest.mark.parametrize("content", [b"", b"<html>not here</html>" * 20, b"MATLAB 5.0 MAT-file" * 9])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "a.mat"
    path.write_bytes(content)
    with fails(DataError), open_mat(path):
        pass


def test_a_missing_file_is_refused(tmp_path):
    with fails(DataError), open_mat(tmp_path / "none.mat"):
        pass


def test_a_damaged_stream_is_refused(tmp_path):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, arrays(), do_compression=True)
    raw = bytearray(path.read_bytes())
    raw[300:340] = zlib.compress(b"x" * 40)[:40].ljust(40, b"\xff")
    path.write_bytes(bytes(raw))
    with fails(DataError), open_mat(path) as found:
        for array in found.values():
            array.pick(np.arange(ROWS))


@pytest.mark.parametrize("kind", ["hdf5", "chunked", "plain", "packed"])
def test_flipped_bits_give_one_clear_line_or_whole_arrays(tmp_path, kind):
    path, content = tmp_path / "a.mat", arrays()
    if kind in ("hdf5", "chunked"):
        chunks = {"xdata": (7, 2, 10), "data": (3, 10)} if kind == "chunked" else None
        write_hdf5(path, content, chunks)
    else:
        scipy.io.savemat(path, {"note": "text", **content}, do_compression=kind == "packed")
    raw, rng = path.read_bytes(), random.Random(7)
    refused = 0
    for number in range(400):
        damaged = bytearray(raw)
        damaged[rng.randrange(len(raw) if number % 2 else min(len(raw), 700))] ^= 1 << number % 8
        path.write_bytes(damaged)
        try:
            with open_mat(path) as found:
                for array in found.values():
                    rows = min(ROWS, array.shape[0])
                    assert array.pick(np.arange(rows)).shape == (rows, *array.shape[1:])
        except DataError as error:
            assert re.fullmatch(rf"{path}: .+", str(error))
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("kind", [0, 8, 10, 14, 15, 18, 255])
@pytest.mark.parametrize("compress", [False, True])
def test_types_that_the_format_has_not_are_refused(tmp_path, kind, compress):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"data": arrays()["data"]})
    raw = bytearray(path.read_bytes())
    place = raw.index(b"data") + 4  # the type of the values follows the name
    assert raw[place : place + 4] == b"\x02\0\0\0"
    raw[place] = kind
    if compress:
        packed = zlib.compress(raw[128:])
        raw[128:] = struct.pack("<2I", 15, len(packed)) + packed
    path.write_bytes(raw)
    with fails(DataError, kind):
        open_mat(path).__enter__()


def test_complex_numbers_are_refused(tmp_path):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"data": arrays()["data"] * 1j})
    with fails(DataError), open_mat(path):
        pass


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(("place", "value"), [(28, 200), (32, 2**30), (32, 2**32 - 37), (44, 1 << 30)])
def test_sizes_that_the_file_cannot_hold_are_refused(tmp_path, place, value, compress):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"long_name": arrays()["data"]})
    raw = bytearray(path.read_bytes())
    struct.pack_into("<I", raw, 128 + place, value)
    if compress:
        packed = zlib.compress(raw[128:])
        raw[128:] = struct.pack("<2I", 15, len(packed)) + packed
    path.write_bytes(raw)
    with fails(DataError), open_mat(path):
        pass


def test_a_file_that_scipy_takes_for_version_4_is_refused(tmp_path):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, arrays())
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    with fails(DataError), open_mat(path):
        pass


def test_arrays_of_other_files_and_impossible_ones_are_not_read(tmp_path):
    path, other = tmp_path / "a.mat", tmp_path / "other.h5"
    write_hdf5(other, arrays())
    write_hdf5(path, arrays())
    with h5py.File(path, "a") as file:
        file["outside"] = h5py.ExternalLink(str(other), "/data")
        file.create_dataset("huge", (919, 10**9), "u1", chunks=(919, 64))
    with open_mat(path) as found:
        assert sorted(found) == ["data", "huge", "xdata"]
        with fails(DataError):
            next(found["huge"].parts(10**9))
        with fails(DataError):
            found["huge"].pick(np.arange(3))
