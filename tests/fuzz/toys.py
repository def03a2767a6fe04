"""Readers that do all that no reader may do, to see that the harness notices."""

import os
from pathlib import Path

import numpy as np

from bigbird_dna.errors import DataError
from tests.fuzz.reader import Reader


def _misread(path: Path) -> object:
    match path.read_bytes().strip(b" "):
        case b"crash":
            os.abort()
        case b"exit":
            os._exit(3)
        case b"hang":
            while True:
                pass
        case b"refused":
            raise DataError(f"{path}: no")
        case b"defect":
            raise KeyError("x")
        case b"panic":
            raise BaseException("of Rust")
        case b"swell":
            return bytearray(5 << 30)
        case b"swell, refused":
            try:
                return bytearray(5 << 30)
            except MemoryError as error:
                raise DataError(f"{path}: {error}") from None
        case b"swell, unused":
            return np.empty(2 << 30, np.uint8)  # its pages are there once they are written to
        case b"swell, used":
            return b"x" * (33 << 25)  # little above the bound: some machines take seconds for it
        case b"swell, slowly":
            return [b"x" * (1 << 20) for _ in range(300)]
        case b"lines":
            error = DataError("")
            error.args = ("one\ntwo",)
            raise error
    return None


READERS = {"toy": Reader("toy", ".txt", _misread, lambda: [b"seed"])}
