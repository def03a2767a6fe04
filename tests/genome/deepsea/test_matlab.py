"""Arrays of MATLAB files are read in parts as SciPy and h5py read them whole."""

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
from bigbird_dna.genome.chromatin.matlab import open_mat
from tests.golden.messages import fails

ROWS, TRACKS = 37, 11


def arrays(dtype: str = "u1") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        "xdata": (rng.random((ROWS, 4, 25)) < 0.25).astype(dtype),
        "data": (rng.random((ROWS, TRACKS)) < 0.3).astype(dtype),
    }


CHUNKS = {"xdata": (7, 2, 10), "data": (3, 10)}


def save(path: Path, content: dict[str, np.ndarray], kind: str, chunks: object = None) -> Path:
    """A file of version 7.3 (hdf5, or chunked) or 5 (plain, or packed)."""
    if kind in ("plain", "packed"):
        scipy.io.savemat(path, content, do_compression=kind == "packed")
        return path
    # As MATLAB does: a user block, and the axes the other way round.
    chunks = CHUNKS if kind == "chunked" else chunks or {}
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in content.items():
            given = {"chunks": chunks[name], "compression": "gzip"} if name in chunks else {}
            file.create_dataset(name, data=array.transpose(), **given)
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
            read = np.full((TRACKS, rows), 2)
            for track, row, values in found["data"].parts(rows):
                height, width = values.shape
                assert (read[track : track + height, row : row + width] == 2).all()  # none twice
                read[track : track + height, row : row + width] = values
            assert np.array_equal(read.T, content["data"][:rows])


@pytest.mark.parametrize("budget", [1, 200, 1 << 26])
@pytest.mark.parametrize(
    "chunks",
    [None, {"xdata": (25, 4, 1), "data": (TRACKS, 1)}, CHUNKS, {"xdata": (1, 1, ROWS), "data": (1, ROWS)}],
)
def test_hdf5_whatever_the_chunks(tmp_path, monkeypatch, chunks, budget):
    monkeypatch.setattr(matlab, "BUDGET", budget)
    check(save(tmp_path / "a.mat", arrays(), "hdf5", chunks), arrays())


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


def pick_all(path: Path) -> None:
    with open_mat(path) as found:
        for array in found.values():
            rows = min(ROWS, array.shape[0])
            assert array.pick(np.arange(rows)).shape == (rows, *array.shape[1:])


@pytest.mark.parametrize("kind", ["hdf5", "plain", "packed"])
def test_other_values_than_0_and_1_are_refused(tmp_path, kind):
    content = arrays("f8")
    content["data"][20, 3] = 0.5
    with fails(DataError):
        pick_all(save(tmp_path / "a.mat", content, kind))


@pytest.mark.parametrize("kind", ["hdf5", "plain", "packed"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_truncated_files_are_refused(tmp_path, kind, share):
    path = save(tmp_path / "a.mat", arrays(), kind)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])
    with fails(DataError, path):
        pick_all(path)


@pytest.mark.parametrize("content", [None, b"", b"<html>not here</html>" * 20, b"MATLAB 5.0 MAT-file" * 9])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "a.mat"
    if content is not None:
        path.write_bytes(content)
    with fails(DataError):
        pick_all(path)


@pytest.mark.parametrize("kind", ["hdf5", "chunked", "plain", "packed"])
def test_flipped_bits_give_one_clear_line_or_whole_arrays(tmp_path, kind):
    path = save(tmp_path / "a.mat", arrays(), kind)
    raw, rng = path.read_bytes(), random.Random(7)
    refused = 0
    for number in range(400):
        damaged = bytearray(raw)
        damaged[rng.randrange(len(raw) if number % 2 else min(len(raw), 700))] ^= 1 << number % 8
        path.write_bytes(damaged)
        try:
            pick_all(path)
        except DataError as error:
            assert re.fullmatch(rf"{path}: .+", str(error))
            refused += 1
    assert refused > 50


SIZES = [(28, 200), (32, 2**30), (32, 2**32 - 37), (44, 1 << 30)]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    ("name", "place", "format", "value"),
    [
        *(("data", 48, "B", kind) for kind in (0, 8, 10, 14, 15, 18, 255)),
        *(("long_name", place, "<I", size) for place, size in SIZES),
    ],
)
def test_types_and_sizes_that_cannot_be_are_refused(tmp_path, name, place, format, value, compress):
    path = save(tmp_path / "a.mat", {name: arrays()["data"]}, "plain")
    raw = bytearray(path.read_bytes())
    assert place != 48 or raw[176] == 2
    struct.pack_into(format, raw, 128 + place, value)
    if compress:
        packed = zlib.compress(raw[128:])
        raw[128:] = struct.pack("<2I", 15, len(packed)) + packed
    path.write_bytes(raw)
    with fails(DataError):
        pick_all(path)


@pytest.mark.parametrize("what", ["damaged", "version 4", "complex"])
def test_other_content_is_refused(tmp_path, what):
    path = save(tmp_path / "a.mat", arrays(), "packed")
    raw = bytearray(path.read_bytes())
    match what:
        case "damaged":
            raw[300:340] = zlib.compress(b"x" * 40)[:40].ljust(40, b"\xff")
        case "version 4":  # as SciPy takes it
            raw[:1] = b"\0"
        case "complex":
            raw = bytearray(save(path, {"data": arrays()["data"] * 1j}, "plain").read_bytes())
    path.write_bytes(raw)
    with fails(DataError):
        pick_all(path)


def test_arrays_of_other_files_and_impossible_ones_are_not_read(tmp_path):
    path, other = tmp_path / "a.mat", tmp_path / "other.h5"
    for file in (path, other):
        save(file, arrays(), "hdf5")
    with h5py.File(path, "a") as file:
        file["outside"] = h5py.ExternalLink(str(other), "/data")
        file.create_dataset("huge", (919, 10**9), "u1", chunks=(919, 64))
    with open_mat(path) as found:
        assert sorted(found) == ["data", "huge", "xdata"]
        with fails(DataError):
            next(found["huge"].parts(10**9))
        with fails(DataError):
            found["huge"].pick(np.arange(3))
