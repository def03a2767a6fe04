"""Formats that pack others: taken apart and put together again with checksums and sizes that fit."""

import gzip
import io
import struct
import zipfile
import zlib

from tests.fuzz.reader import Container


def _unzip(data: bytes) -> list[bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [archive.read(member) for member in archive.infolist()]


def _zip(data: bytes, members: list[bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(packed, "w") as out:
        for member, content in zip(archive.infolist(), members, strict=True):
            out.writestr(member, content)
    return packed.getvalue()


def _ungzip(data: bytes) -> list[bytes]:
    return [gzip.decompress(data)]


def _gzip(data: bytes, members: list[bytes]) -> bytes:
    return gzip.compress(members[0], 1, mtime=0)


def _header_and_rest(data: bytes) -> list[bytes]:
    size = struct.unpack("<Q", data[:8])[0]
    return [data[8 : 8 + size], data[8 + size :]]


def _safetensors(data: bytes, members: list[bytes]) -> bytes:
    return struct.pack("<Q", len(members[0])) + b"".join(members)


def _npy_parts(data: bytes) -> list[bytes]:
    size = struct.unpack("<H", data[8:10])[0]
    return [data[10 : 10 + size], data[10 + size :]]


def _npy(data: bytes, members: list[bytes]) -> bytes:
    return data[:8] + struct.pack("<H", len(members[0]) % (1 << 16)) + b"".join(members)


def _mat5_elements(data: bytes) -> list[tuple[int, bytes]]:
    found, place = [], 128
    while place < len(data):
        kind, size = struct.unpack("<2I", data[place : place + 8])
        found.append((kind, data[place + 8 : place + 8 + size]))
        place += 8 + size
    return found


def _mat5_parts(data: bytes) -> list[bytes]:
    return [zlib.decompress(body) if kind == 15 else body for kind, body in _mat5_elements(data)]


def _mat5(data: bytes, members: list[bytes]) -> bytes:
    out = [data[:128]]
    for (kind, _), member in zip(_mat5_elements(data), members, strict=True):
        body = zlib.compress(member, 1) if kind == 15 else member
        out += [struct.pack("<2I", kind, len(body)), body]
    return b"".join(out)


def _npz_parts(data: bytes) -> list[bytes]:
    return [part for member in _unzip(data) for part in _npy_parts(member)]


def _npz(data: bytes, members: list[bytes]) -> bytes:
    whole = [_npy(old, members[2 * place : 2 * place + 2]) for place, old in enumerate(_unzip(data))]
    return _zip(data, whole)


ZIP = Container(_unzip, _zip)
GZIP = Container(_ungzip, _gzip)
SAFETENSORS = Container(_header_and_rest, _safetensors)
NPY = Container(_npy_parts, _npy)
NPZ = Container(_npz_parts, _npz)
MATLAB5 = Container(_mat5_parts, _mat5)
