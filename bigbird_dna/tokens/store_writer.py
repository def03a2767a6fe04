"""Writes the files of a token store as a stream, so that memory doesn't grow with it."""

import hashlib
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from bigbird_dna.files import checksum


class EncodedDocument(NamedTuple):
    """A document's tokens, and what became of its sentences."""

    tokens: bytes  # ids in the type of the store
    sentence_tokens: list[int]  # tokens of each sentence that was kept
    run_sentences: list[int]  # sentences of each run of neighbours that were kept
    bases: int
    skipped_sentences: int
    skipped_bases: int


class StoreWriter:
    """Appends encoded documents to `tokens.bin`, `sentences.npy` and `documents.npy` of a directory.

    A context manager: the files are complete once it is left, and then have `checksums`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stream = (directory / "tokens.bin").open("wb")
        self.sentences = _Offsets(directory / "sentences.npy")
        self.documents = _Offsets(directory / "documents.npy")
        self.digest = hashlib.sha256()
        self.bases = self.skipped_sentences = self.skipped_bases = 0

    def add(self, part: EncodedDocument) -> None:
        self.stream.write(part.tokens)
        self.digest.update(part.tokens)
        self.sentences.add(part.sentence_tokens)
        self.documents.add(part.run_sentences)
        self.bases += part.bases
        self.skipped_sentences += part.skipped_sentences
        self.skipped_bases += part.skipped_bases

    def __enter__(self) -> Self:
        return self

    def checksums(self) -> dict[str, str]:
        """SHA-256 of each file by its name without the suffix."""
        offsets = {name: checksum(self.directory / f"{name}.npy") for name in ("sentences", "documents")}
        return {"tokens": self.digest.hexdigest(), **offsets}

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self.sentences.close()
        self.documents.close()


class _Offsets:
    """A growing .npy of cumulative counts. NumPy's header leaves room for the length to grow in place."""

    def __init__(self, path: Path) -> None:
        self.values = 0
        self.last = 0
        self.stream = path.open("wb")
        self._header()
        self.stream.write(bytes(8))

    def add(self, counts: list[int]) -> None:
        offsets = self.last + np.cumsum(counts, dtype="<i8")
        self.stream.write(offsets.tobytes())
        self.values += len(counts)
        self.last += sum(counts)

    def close(self) -> None:
        self.stream.seek(0)
        self._header()
        self.stream.close()

    def _header(self) -> None:
        header = {"descr": "<i8", "fortran_order": False, "shape": (self.values + 1,)}
        np.lib.format.write_array_header_1_0(self.stream, header)
