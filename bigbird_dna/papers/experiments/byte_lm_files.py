"""Readers of public image and text data sets as bytes; images are row-major, with red, green, blue per pixel.

`cifar10`: the *binary* version (`data_batch_1.bin` … `test_batch.bin`; Krizhevsky 2009), with records of a
label and 32 × 32 red, green and blue values. The Python version is a pickle, which can execute code when
read. `imagenet64`: the `.npz` batches of Chrabaszcz et al. 2017 (`train_data_batch_1.npz` …, `val_data.npz`),
whose array `data` (N, 12288) uint8 has 64 × 64 red, green and blue values. Published densities are for
another downsampling of the same photographs (van den Oord et al. 2016, folders of .png): their bits per dim
are not comparable. `wiki40b`: the shards written by TensorFlow Datasets (Guo et al. 2020), TFRecord files
with one message `Example` per record, whose feature `text` is an article. Structure marks
(`_START_PARAGRAPH_`, `_NEWLINE_` …) are kept. `c4`: gzip files of JSON lines
(`c4-train.00000-of-01024.json.gz`; Raffel et al. 2020), whose key `text` is a page.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.compression import LONGEST_LINE, open_bytes, open_handle
from bigbird_dna.disk.foreign import open_npz
from bigbird_dna.disk.json_files import parse_json
from bigbird_dna.errors import DataError, error_text
from bigbird_dna.tokens.piece_model import BYTES, read_fields

# Axes: N images.

Bytes = npt.NDArray[np.uint8]

CIFAR_SIDE, IMAGENET_SIDE, COLORS = 32, 64, 3
_CIFAR_CLASSES = 10
_CIFAR_RECORD = 1 + COLORS * CIFAR_SIDE**2
_MOST_BYTES = 1 << 34


def read_cifar10(path: Path, most: int) -> Bytes:
    """Read the first `most` images of a file, (N, 3072).

    `DataError` names the file if it cannot be read, has partial records, or a label is not 0 to 9.
    """
    with reading(path, "not readable"), os.fdopen(open_handle(path), "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        if not size or size % _CIFAR_RECORD:
            raise DataError(
                f"{path}: {size:,} bytes, expected a multiple of {_CIFAR_RECORD:,}; "
                "use the binary version of CIFAR-10"
            )
        stream.seek(0)
        count = min(most, size // _CIFAR_RECORD)
        records = np.frombuffer(stream.read(count * _CIFAR_RECORD), np.uint8).reshape(
            count, _CIFAR_RECORD
        )
    wrong = np.flatnonzero(records[:, 0] >= _CIFAR_CLASSES)
    if len(wrong):
        raise DataError(
            f"{path}: image {wrong[0] + 1}: label {records[wrong[0], 0]}: must be from 0 to 9"
        )
    return _by_pixel(records[:, 1:], CIFAR_SIDE)


def read_imagenet64(path: Path, most: int) -> Bytes:
    """Read the first `most` images of a batch, (N, 12288); `DataError` names the file and the fault."""
    width = COLORS * IMAGENET_SIDE**2
    with reading(path, "not readable as .npz", Exception), open_npz(path) as arrays:
        if "data" not in arrays.names:
            raise DataError(f"{path}: no array 'data'")
        header = arrays.header("data")
        whole = (
            len(header.shape) == 2 and header.shape[0] > 0 and header.shape[1] == width
        )
        if (
            not whole
            or header.dtype != np.uint8
            or header.fortran
            or header.nbytes > _MOST_BYTES
        ):
            raise DataError(
                f"{path}: data of shape {header.shape} and type {header.dtype}: expected images of "
                f"{width:,} bytes each"
            )
        with arrays.open("data") as (_, stream):
            count = min(most, header.shape[0])
            read = stream.read(count * width)
    if len(read) < count * width:
        raise DataError(f"{path}: truncated within the images")
    return _by_pixel(np.frombuffer(read, np.uint8).reshape(count, width), IMAGENET_SIDE)


def _by_pixel(planes: Bytes, side: int) -> Bytes:
    """Convert images of separate color planes to images of color triples per pixel, both (N, 3 side²)."""
    turned = planes.reshape(len(planes), COLORS, side * side).transpose(0, 2, 1)
    return np.ascontiguousarray(turned).reshape(len(planes), -1)


LONGEST_RECORD = 1 << 26
"""Bytes; a hundred times the longest article."""

_MASK = 0xA282EAD8  # TFRecord stores checksums rotated by 15 bits, plus this constant
_POLYNOMIAL = 0x82F63B78  # CRC-32C, bits reversed
_FEATURES, _FEATURE, _KEY, _VALUE, _BYTES_LIST, _ITEM = (
    1,
    1,
    1,
    2,
    1,
    1,
)  # field numbers in `Example`


def read_wiki40b(path: Path) -> Iterator[bytes]:
    """Yield the articles of a shard, in order.

    `DataError` names file and record: the file is not TFRecord, a checksum differs, or a record is not an
    article.
    """
    for number, record in enumerate(read_records(path), start=1):
        try:
            text = _text_of(record)
            text.decode()
        except ValueError as error:
            raise DataError(
                f"{path}: record {number}: not an article: {error_text(error)}"
            ) from None
        yield text


def read_c4(path: Path) -> Iterator[bytes]:
    """Yield the pages of a file, plain or gzip, in order; `DataError` names file and line.

    Only JSON determines the allowed characters of a line: web pages contain control characters and Unicode
    line separators, which the package's own table format does not allow.
    """
    with open_bytes(path) as stream:
        lines = iter(lambda: stream.readline(LONGEST_LINE + 2), b"")
        for number, ended in enumerate(lines, start=1):
            line = ended.removesuffix(b"\n").removesuffix(b"\r")
            if len(line) > LONGEST_LINE:
                raise DataError(
                    f"{path}: line {number}: longer than {LONGEST_LINE:,} bytes"
                )
            try:
                # The first line may start with a byte order mark.
                values = parse_json(
                    line.decode("utf-8-sig" if number == 1 else "utf-8")
                )
            except UnicodeDecodeError:
                raise DataError(f"{path}: line {number}: not UTF-8 text") from None
            except ValueError as error:
                raise DataError(
                    f"{path}: line {number}: not JSON: {error_text(error)}"
                ) from None
            text = values.get("text") if isinstance(values, dict) else None
            if not isinstance(text, str):
                raise DataError(f"{path}: line {number}: key 'text' must be a string")
            try:
                found = text.encode()
            except UnicodeEncodeError:  # an unpaired surrogate, which JSON can encode
                raise DataError(
                    f"{path}: line {number}: text is not valid Unicode"
                ) from None
            yield found


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a TFRecord file; `DataError` names file and record."""
    with reading(path, "not readable"), os.fdopen(open_handle(path), "rb") as stream:
        number = 0
        for number, head in enumerate(iter(lambda: stream.read(12), b""), start=1):
            where = f"{path}: record {number}"
            (size,) = struct.unpack("<Q", _checked(head, 8, where))
            if size > LONGEST_RECORD:
                raise DataError(
                    f"{where}: {size:,} bytes, expected at most {LONGEST_RECORD:,}"
                )
            yield _checked(stream.read(size + 4), size, where)
        if not number:
            raise DataError(f"{path}: the file is empty")


def _checked(data: bytes, size: int, where: str) -> bytes:
    """Return the first `size` bytes after verifying the checksum that follows them."""
    if len(data) < size + 4:
        raise DataError(f"{where}: truncated")
    (stored,) = struct.unpack("<I", data[size:])
    if stored != masked_checksum(data[:size]):
        raise DataError(f"{where}: wrong checksum: damaged, or not TFRecord")
    return data[:size]


def masked_checksum(data: bytes) -> int:
    """Return the CRC-32C of bytes as stored in TFRecord."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def _of_byte(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc


_TABLE = [_of_byte(byte) for byte in range(256)]


def _text_of(example: bytes) -> bytes:
    """Return the feature `text` of a message `Example`; `ValueError` unless there is exactly one."""
    found = [
        item
        for features in _inner(example, _FEATURES)
        for feature in _inner(features, _FEATURE)
        if _inner(feature, _KEY) == [b"text"]
        for value in _inner(feature, _VALUE)
        for items in _inner(value, _BYTES_LIST)
        for item in _inner(items, _ITEM)
    ]
    if len(found) != 1:
        raise ValueError(f"needs exactly one text, found {len(found)}")
    return found[0]


def _inner(message: bytes, number: int) -> list[bytes]:
    return [
        field.value
        for field in read_fields(message)
        if field.number == number
        and field.wire == BYTES
        and isinstance(field.value, bytes)
    ]
