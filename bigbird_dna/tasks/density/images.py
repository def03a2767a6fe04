"""Images of the public sets as sequences of bytes: row after row, of each pixel red, green and blue.

`cifar10`: the *binary* version (`data_batch_1.bin` … `data_batch_5.bin`, `test_batch.bin`; Krizhevsky 2009),
records of a label and 32 × 32 reds, greens and blues. The version for Python is a pickle: it is not read, as
reading it could run anything.

`imagenet64`: the `.npz` batches of Chrabaszcz et al. 2017 (`train_data_batch_1.npz` …, `val_data.npz`), whose
array `data` (N, 12288) uint8 has 64 × 64 reds, greens and blues. Published densities are of another reduction
of the same photographs (van den Oord et al. 2016, folders of .png): bits per dim of the two don't compare.
"""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bigbird_dna.disk.atomic import reading
from bigbird_dna.disk.foreign import open_npz
from bigbird_dna.errors import DataError
from bigbird_dna.genome.compression import open_handle

# Axes: N images.

Bytes = npt.NDArray[np.uint8]

CIFAR_SIDE, IMAGENET_SIDE, COLOURS = 32, 64, 3
_CIFAR_CLASSES = 10
_CIFAR_RECORD = 1 + COLOURS * CIFAR_SIDE**2
_MOST_BYTES = 1 << 34


def read_cifar10(path: Path, most: int) -> Bytes:
    """The first `most` images of a file, (N, 3072).

    Raises
    ------
    DataError
        Names the file: it can't be read, isn't whole records, or a label isn't 0 to 9.
    """
    with reading(path, "can't be read"), os.fdopen(open_handle(path), "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        if not size or size % _CIFAR_RECORD:
            raise DataError(
                f"{path}: has {size:,} bytes, which are not records of {_CIFAR_RECORD:,}: "
                "the binary version of CIFAR-10 is read"
            )
        stream.seek(0)
        count = min(most, size // _CIFAR_RECORD)
        records = np.frombuffer(stream.read(count * _CIFAR_RECORD), np.uint8).reshape(count, _CIFAR_RECORD)
    wrong = np.flatnonzero(records[:, 0] >= _CIFAR_CLASSES)
    if len(wrong):
        raise DataError(f"{path}: image {wrong[0] + 1}: label {records[wrong[0], 0]} is not 0 to 9")
    return _by_pixel(records[:, 1:], CIFAR_SIDE)


def read_imagenet64(path: Path, most: int) -> Bytes:
    """The first `most` images of a batch, (N, 12288); `DataError` names the file and what is wrong."""
    width = COLOURS * IMAGENET_SIDE**2
    with reading(path, "not readable as .npz", Exception), open_npz(path) as arrays:
        if "data" not in arrays.names:
            raise DataError(f"{path}: has no array 'data'")
        header = arrays.header("data")
        whole = len(header.shape) == 2 and header.shape[0] > 0 and header.shape[1] == width
        if not whole or header.dtype != np.uint8 or header.fortran or header.nbytes > _MOST_BYTES:
            raise DataError(
                f"{path}: data of shape {header.shape} and type {header.dtype} are not images of "
                f"{width:,} bytes each"
            )
        with arrays.open("data") as stream:
            count = min(most, header.shape[0])
            read = stream.read(count * width)
    if len(read) < count * width:
        raise DataError(f"{path}: ends within its images")
    return _by_pixel(np.frombuffer(read, np.uint8).reshape(count, width), IMAGENET_SIDE)


def _by_pixel(planes: Bytes, side: int) -> Bytes:
    """Images of a plane a colour to images of a colour triple a pixel, both (N, 3 side²)."""
    turned = planes.reshape(len(planes), COLOURS, side * side).transpose(0, 2, 1)
    return np.ascontiguousarray(turned).reshape(len(planes), -1)
