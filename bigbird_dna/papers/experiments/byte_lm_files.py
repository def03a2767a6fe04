"""Readers of public image and text data sets as bytes; images are row-major, with red, green, blue per pixel.

`cifar10`: the *binary* version (`data_batch_1.bin` … `test_batch.bin`; Krizhevsky 2009), with records of a
label and 32 × 32 red, green and blue values; the Python version is a pickle, which can execute code when
read. `imagenet64`: the `.npz` batches of Chrabaszcz et al. 2017 (`train_data_batch_1.npz` …), whose array
`data` (N, 12288) uint8 has 64 × 64 red, green and blue values. Published densities are for another
downsampling of the same photographs (van den Oord et al. 2016): their bits per dim are not comparable.
`wiki40b`: Parquet files of the data set google/wiki40b (Guo et al. 2020), with an article in each row of the
column `text`; structure marks (`_START_PARAGRAPH_` …) are kept. `c4`: gzip files of JSON lines
(`c4-train.00000-of-01024.json.gz`; Raffel et al. 2020), whose key `text` is a page.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bigbird_dna.errors import DataError
from bigbird_dna.papers.experiments.arms import read_arrays

Bytes = npt.NDArray[np.uint8]


def read_cifar10(path: Path, most: int) -> Bytes:
    """Read the first `most` images of a file, (N, 3072); `DataError` for a file of another form."""
    width = 1 + 3 * 32**2
    try:
        size = path.stat().st_size
        records = np.fromfile(path, np.uint8, min(most * width, size))
    except OSError as error:
        raise DataError(f"{path}: not readable: {error.strerror}") from None
    if not size or size % width:
        raise DataError(
            f"{path}: {size:,} bytes, expected a multiple of {width:,}; use the binary version of CIFAR-10"
        )
    records = records.reshape(-1, width)
    if records[:, 0].max() > 9:
        wrong = int((records[:, 0] > 9).argmax())
        raise DataError(
            f"{path}: image {wrong + 1}: label {records[wrong, 0]}: must be from 0 to 9"
        )
    return _by_pixel(records[:, 1:])


def read_imagenet64(path: Path, most: int) -> Bytes:
    """Read the first `most` images of a batch, (N, 12288); `DataError` for a file of another form."""
    (images,) = read_arrays(path, "data")
    if images.ndim != 2 or images.shape[1] != 3 * 64**2 or images.dtype != np.uint8:
        raise DataError(
            f"{path}: data of shape {images.shape} and type {images.dtype}: expected images of "
            f"{3 * 64**2:,} bytes each"
        )
    return _by_pixel(images[:most])


def _by_pixel(planes: Bytes) -> Bytes:
    """Convert images of separate color planes to images of color triples per pixel, both (N, 3 S²)."""
    count = len(planes)
    return planes.reshape(count, 3, -1).transpose(0, 2, 1).reshape(count, -1)


def read_wiki40b(path: Path) -> Iterator[bytes]:
    """Yield the articles of a Parquet file, in order; `DataError` for a file of another form."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["text"]):
                for text in batch.column(0).to_pylist():
                    yield text.encode() if isinstance(text, str) else text
    except (OSError, ArrowException, IndexError, AttributeError) as error:
        raise DataError(f"{path}: not a Parquet file of articles: {error}") from None


def read_c4(path: Path) -> Iterator[bytes]:
    """Yield the pages of a file, in order; `DataError` names file and line."""
    line = 0
    try:
        with gzip.open(path, "rb") as stream:
            for text in stream:
                line += 1
                yield json.loads(text)["text"].encode()
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: line {line + 1}: not readable: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(
            f"{path}: line {line}: expected a JSON object with a string 'text'"
        ) from None
