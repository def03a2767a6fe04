"""Arrays of HDF5 files that aren't in the file, or can't be, are refused; so is text without an end."""

import struct
from pathlib import Path

import h5py
import numpy as np

from bigbird_dna.disk.foreign import check_array, open_hdf5, own_arrays, read_text
from bigbird_dna.errors import DataError
from tests.golden.messages import fails


def names(path: Path) -> list[str]:
    with open_hdf5(path) as stored:
        return sorted(name for name, _ in own_arrays(stored))


def refused(path: Path, text: str) -> None:
    with fails(DataError), open_hdf5(path) as stored:
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
    assert names(path) == ["group/inner/values"]


def test_values_in_other_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    (tmp_path / "raw").write_bytes(bytes(64))
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (8,), "f8", external=[(str(tmp_path / "raw"), 0, 64)])
    refused(path, "a: its values lie in other files")
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "b", (4,))
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("a", layout)
    refused(path, "a: its values lie in other files")


def test_arrays_that_claim_too_much_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (10**9, 919), "f4", chunks=(64, 919))
    refused(path, "more than a file of .* bytes can hold")
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (100, 9), "f4", maxshape=(None, None), chunks=(50_000, 900))
    refused(path, "chunks of .* are too large")


def test_texts_without_an_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["a"] = np.arange(4)
        file["a"].attrs["tracks"] = ["one", "two", "three", "ü"]
        file["tracks"] = ["x", "yy"]
        file["b"] = np.frombuffer(b"GCOL\x01\x00\x00\x00\x20\x00 is a value", np.uint8)
    with open_hdf5(path) as stored:
        assert read_text(path, stored["a"], "tracks").tolist() == ["one", "two", "three", "ü"]
        assert read_text(path, stored["tracks"]).tolist() == [b"x", b"yy"]
        assert read_text(path, stored["a"], "none") is None
    data = bytearray(path.read_bytes())
    place = data.index(b"GCOL") + 16
    index, size = struct.unpack("<H6xQ", data[place : place + 16])
    while index:
        place += 16 + -(-size // 8) * 8
        index, size = struct.unpack("<H6xQ", data[place : place + 16])
    data[place + 8 : place + 16] = bytes(8)  # the free space: the library would look at it for ever
    path.write_bytes(data)
    refused(path, "a collection of texts at byte .* has no end")
