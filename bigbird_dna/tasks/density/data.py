"""Bytes of images or documents as inputs of a causal model, and what simple predictors make of them."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bigbird_dna.config.density import IMAGE_BYTES, DensityFormat
from bigbird_dna.errors import DataError
from bigbird_dna.tasks.density.images import COLOURS, read_cifar10, read_imagenet64
from bigbird_dna.tasks.density.text import read_c4, read_wiki40b

# Axes: N symbols, V kinds of symbols.

END = 256
"""The symbol behind a document; bytes stand for themselves."""
COUNTED = 1 << 24
"""Symbols that the simple predictors learn from, at most."""
_WEIGHT = 16.0  # of the frequencies of all symbols among those after one

Symbols = npt.NDArray[np.uint16]

_IMAGES: dict[str, Callable[[Path, int], npt.NDArray[np.uint8]]] = {
    "cifar10": read_cifar10,
    "imagenet64": read_imagenet64,
}
_DOCUMENTS: dict[str, Callable[[Path], Iterator[bytes]]] = {"wiki40b": read_wiki40b, "c4": read_c4}


class ByteStream(NamedTuple):
    """Symbols one after the other, cut into inputs of `length`.

    Inputs of images are whole images; of documents an input begins anywhere, and END stands behind each.
    """

    symbols: Symbols
    length: int
    of_images: bool

    @property
    def kinds(self) -> int:
        """V: bytes, and END of documents."""
        return 256 if self.of_images else 257

    @property
    def inputs(self) -> int:
        """How many inputs it has side by side, a last one that isn't whole included."""
        return -(-len(self.symbols) // self.length)

    @property
    def starts(self) -> int:
        """How many inputs there are to learn from, wherever they begin."""
        if self.of_images:
            return self.inputs
        return max(1, len(self.symbols) - self.length + 1)

    @property
    def lag(self) -> int:
        """How far before a byte the one like it stands: of images the colour of the pixel on the left."""
        return COLOURS if self.of_images else 1

    def input(self, number: int) -> Symbols:
        """One of the inputs side by side."""
        return self.symbols[number * self.length : (number + 1) * self.length]

    def at(self, start: int) -> Symbols:
        """One of the `starts`."""
        place = start * self.length if self.of_images else start
        return self.symbols[place : place + self.length]

    def digest(self) -> str:
        """SHA-256 of the symbols."""
        return hashlib.sha256(self.symbols.astype("<u2").tobytes()).hexdigest()


def read_stream(format: DensityFormat, files: Iterable[Path], length: int, most: int) -> ByteStream:
    """Read files in their order, up to `most` bytes; whole images, and a last document in part.

    `length` bytes are an input from documents. `DataError` as of the readers, or where nothing was read.
    """
    paths = list(files)
    if format in _IMAGES:
        size = IMAGE_BYTES[format]
        found: list[Symbols] = []
        left = max(1, most // size)
        for path in paths:
            if left > 0:
                found.append(_IMAGES[format](path, left).reshape(-1).astype(np.uint16))
                left -= len(found[-1]) // size
        return ByteStream(np.concatenate(found), size, True)
    parts: list[Symbols] = []
    left = most
    for document in (one for path in paths for one in _DOCUMENTS[format](path)):
        if not document:
            continue
        parts.append(np.frombuffer(document[:left], np.uint8).astype(np.uint16))
        left -= len(parts[-1])
        parts.append(np.array([END], np.uint16))
        if left <= 0:
            break
    if not parts:
        raise DataError(f"{paths[0]}: holds no text")
    return ByteStream(np.concatenate(parts), length, False)


class Simple(NamedTuple):
    """Bits of every symbol by frequencies alone, and by those after the byte `lag` before it."""

    order0: npt.NDArray[np.float32]  # (V,)
    order1: npt.NDArray[np.float32]  # (V, V), by the byte before

    @classmethod
    def fitted(cls, train: ByteStream) -> "Simple":
        """Counts of the first `COUNTED` symbols."""
        kinds, symbols = train.kinds, train.symbols[:COUNTED].astype(np.int64)
        share = np.bincount(symbols, minlength=kinds) + 1.0
        share /= share.sum()
        pairs = symbols[: -train.lag] * kinds + symbols[train.lag :]
        counts = np.bincount(pairs, minlength=kinds**2).reshape(kinds, kinds)
        after = (counts + _WEIGHT * share) / (counts.sum(1, keepdims=True) + _WEIGHT)
        return cls(*(-np.log2(values).astype(np.float32) for values in (share, after)))

    def bits(self, test: ByteStream) -> tuple[float, float]:
        """Bits per byte of a stream, by frequencies and by those after a byte; each input on its own."""
        totals = [0.0, 0.0]
        for number in range(test.inputs):
            one = test.input(number)
            totals[0] += float(self.order0[one].sum())
            first, rest = one[: test.lag], one[test.lag :]
            totals[1] += float(self.order0[first].sum() + self.order1[one[: -test.lag], rest].sum())
        count = int((test.symbols != END).sum())
        return totals[0] / count, totals[1] / count


def padded(inputs: Sequence[Symbols]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Inputs as rows, 0 behind shorter ones, and their lengths."""
    lengths = np.array([len(one) for one in inputs], np.int64)
    rows = np.zeros((len(inputs), int(lengths.max())), np.int64)
    for row, one in zip(rows, inputs, strict=True):
        row[: len(one)] = one
    return rows, lengths
