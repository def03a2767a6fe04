"""Byte-pair encoding in C++, compiled where it runs: SentencePiece's own ids in a fraction of its time.

`bpe.cpp` says why its pieces are the same. It is compiled on first use and kept (`native_build`); what it
gives for a vocabulary is compared with SentencePiece before it serves. Without a compiler SentencePiece does
the work.

Environment: as of the attention's kernel (see `attention.native`).
"""

import ctypes
import os
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk import native as native_build
from bigbird_dna.tokens.interface import BASES

Ids = NDArray[np.int32]
Plain = Callable[[Sequence[str]], list[Ids]]
"""Encodes clean texts in the way that is compared with."""

_CHECKED = 2000  # random bases that are compared; and all pieces, up to as many letters

_lock = Lock()


class NativePieces:
    """The pieces of a vocabulary, ready to encode; may be used by several threads.

    Attributes
    ----------
    library : the loaded C++.
    """

    def __init__(self, library: ctypes.CDLL, handle: int) -> None:
        self.library, self._handle = library, handle
        weakref.finalize(self, library.close_pieces, ctypes.c_void_p(handle))

    @classmethod
    def open(cls, pieces: Sequence[str], scores: Sequence[float], plain: Plain) -> Self | None:
        """Make the pieces of a model of DNA ready, by id, "" for one that covers no letters.

        None where they can't be had: there is no compiler, a piece wasn't learnt after its halves, or what is
        found isn't what `plain` gives.
        """
        with _lock:
            library = _load()
        opened = None if library is None else cls._opened(library, pieces, scores)
        if opened is None:
            return None
        samples = _samples(pieces)
        found, expected = opened.encode(samples), plain(samples)
        agree = found is not None and all(map(np.array_equal, found, expected))
        return opened if agree else None

    @classmethod
    def _opened(cls, library: ctypes.CDLL, pieces: Sequence[str], scores: Sequence[float]) -> Self | None:
        runs = [i for i, piece in enumerate(pieces) if piece.startswith("N")]
        runs.sort(key=lambda i: -len(pieces[i]))
        learnt = [i for i, piece in enumerate(pieces) if len(piece) > 1 and piece[0] != "N"]
        learnt.sort(key=lambda i: -scores[i])
        if len({scores[i] for i in learnt}) < len(learnt):
            return None  # of equal pairs the leftmost would be merged first, whatever their piece
        letters, starts = _joined([pieces[i] for i in learnt])
        handle = library.open_pieces(
            ctypes.c_int64(len(learnt)),
            _pointer(letters),
            _pointer(starts),
            _pointer(np.array([*map(pieces.index, BASES), *learnt], np.int32)),
            ctypes.c_int64(len(runs)),
            _pointer(np.array([len(pieces[i]) for i in runs], np.int32)),
            _pointer(np.array(runs, np.int32)),
        )
        return None if handle is None else cls(library, handle)

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[Ids] | None:
        """Ids of each text, whatever the number of threads; None if a letter isn't one of A C G T N.

        Other threads of Python go on meanwhile.
        """
        try:
            letters, starts = _joined(texts)
        except UnicodeEncodeError:
            return None
        room, counts = np.empty(len(letters), np.int32), np.empty(len(texts), np.int64)
        failed = self.library.encode_pieces(
            ctypes.c_void_p(self._handle),
            _pointer(letters),
            _pointer(starts),
            ctypes.c_int64(len(texts)),
            ctypes.c_int64(threads),
            _pointer(room),
            _pointer(counts),
        )
        if failed:
            return None
        ends = np.cumsum(counts).tolist()
        ids = room[: ends[-1] if ends else 0].copy()  # the room is several times as large
        return [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _joined(texts: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The letters of some texts side by side, and where each begins; at the end where the last one ends."""
    starts = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=starts[1:])
    return np.frombuffer("".join(texts).encode("ascii"), np.uint8), starts


def _pointer(array: NDArray[Any]) -> Any:
    """What C gets of an array, which lives as long as the argument."""
    return array.ctypes.data_as(ctypes.c_void_p)


def _samples(pieces: Sequence[str]) -> list[str]:
    """Random bases, with and without N, and pieces side by side."""
    rng = np.random.default_rng(0)
    bases = "".join(rng.choice([*BASES], _CHECKED))
    known = [piece for piece in pieces if piece]
    some = "".join(known[i] for i in rng.permutation(len(known)))[:_CHECKED]
    gaps = "".join(bases[i : i + i % 9] + "N" * (i % 50) for i in range(0, 500, 7))
    return [bases, some, some[::-1], gaps, "A" * 70, ""]


@cache
def _load() -> ctypes.CDLL | None:
    """The library of this process, compiled, checked and loaded on the first call; None: there is none."""
    if os.environ.get("BIGBIRD_DNA_NATIVE") == "0":
        return None
    source = files("bigbird_dna.tokens").joinpath("bpe.cpp").read_bytes()
    try:
        with native_build.library(source, _check) as path:
            return _library(path)
    except (native_build.BuildError, OSError, AttributeError):
        return None


def _library(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.open_pieces.restype = ctypes.c_void_p
    library.encode_pieces.restype = ctypes.c_int64
    library.close_pieces.restype = None
    return library


def _check(path: Path) -> None:
    """Let a new library encode what one can do by hand; `BuildError` if it says something else."""
    pieces, scores = ["", "A", "C", "G", "T", "N", "NN", "AA", "CG", "ACG"], [0.0] * 7 + [-1.0, -2.0, -3.0]
    opened = NativePieces._opened(_library(path), pieces, scores)
    found = None if opened is None else opened.encode(["AAACGTNNNT", "", "ACG"], 2)
    if found is None or [row.tolist() for row in found] != [[7, 9, 4, 6, 5, 4], [], [9]]:
        raise native_build.BuildError("the compiled encoder doesn't find the pieces that it should")
