"""How a token store is described and written, as a stream, so that memory doesn't grow with it."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, Self, TypedDict, get_args, get_type_hints

import numpy as np

from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.json_files import read_json_within
from bigbird_dna.errors import DataError, shortened

FORMAT = 1
_MOST_BYTES = 1 << 25


class StoreInfo(TypedDict):
    """The content of `store.json`, with checksums of the other files and of itself."""

    format: int
    vocabulary: int
    tokenizer_sha256: str
    tokens_sha256: str
    sentences_sha256: str
    documents_sha256: str
    dtype: str
    documents: int
    first_documents: int  # of them in the first pass, with both strands in the first of each
    sentences: int
    tokens: int
    bases: int  # bp in the sentences, N included
    skipped_sentences: int  # more than max_n of them N
    skipped_bases: int
    max_n: float
    contigs: list[str]  # whole, but for those that `stretches` names
    stretches: NotRequired[list[str]]  # named regions: all that is read of the contigs that are divided
    passes: int
    strands: str  # forward, or both: every second pass reads the reverse complement
    max_start_offset: int
    sentence_bases: list[int]
    sentences_per_document: list[int]
    seed: int
    sha256: str  # of all that stands above, see `own_checksum`


def own_checksum(info: Mapping[str, Any]) -> str:
    """SHA-256 of all other keys, in an order and a spelling that don't depend on the file's."""
    rest = {key: value for key, value in info.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_info(path: Path) -> StoreInfo:
    """The description at `path`; `DataError` if it is missing, damaged or contradicts its own checksum."""
    if not path.is_file():
        raise DataError(f"{path.parent}: not a token store (no {path.name})")
    info = read_json_within(path, _MOST_BYTES, DataError, "not readable as JSON")
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise DataError(f"{path}: not the description of a token store of format {FORMAT}")
    _check_types(path, info)
    if info["sha256"] != own_checksum(info):
        raise DataError(f"{path}: damaged: it doesn't have its own sha256: tokenize again")
    found: StoreInfo = info  # type: ignore[assignment]
    return found


def _check_types(path: Path, info: dict[str, Any]) -> None:
    types = get_type_hints(StoreInfo)
    for key in info:
        if key not in types:
            raise DataError(f"{path}: unknown key {shortened(repr(key))}")
    for key, kind in types.items():
        if key not in info and key in StoreInfo.__required_keys__:
            raise DataError(f"{path}: key {key!r} is missing")
        if key in info and not _is_a(info[key], kind):
            name = getattr(kind, "__origin__", kind).__name__
            of = "".join(f" of {part.__name__}" for part in get_args(kind))
            raise DataError(
                f"{path}: {key} is {shortened(repr(info[key]))}, not a {name}{of}, or out of range"
            )
    if info["dtype"] not in ("uint16", "uint32"):
        raise DataError(f"{path}: dtype is {shortened(repr(info['dtype']))}, not uint16 or uint32")


def _is_a(value: object, kind: Any) -> bool:
    """Whether a value of JSON is of a type of `StoreInfo`, a number from 0 to what 64 bits hold."""
    if parts := get_args(kind):
        return isinstance(value, list) and all(_is_a(one, parts[0]) for one in value)
    if kind is str:
        return isinstance(value, str)
    numbers = (int, float) if kind is float else int
    return isinstance(value, numbers) and not isinstance(value, bool) and 0 <= value < 1 << 63


def verify_files(directory: Path, info: StoreInfo) -> None:
    """`DataError` if a file doesn't have its checksum."""
    recorded: Mapping[str, Any] = info
    for name in ("tokens.bin", "sentences.npy", "documents.npy"):
        path = directory / name
        expected = recorded[f"{path.stem}_sha256"]
        try:
            found = checksum(path)
        except OSError as error:
            raise DataError(f"{path}: can't be read: {error.strerror}") from None
        if found != expected:
            raise DataError(
                f"{path}: damaged: its sha256 is {found[:12]}…, not {shortened(str(expected), 12)}: "
                "tokenize again"
            )


class EncodedDocument(NamedTuple):
    """A document's tokens, and what became of its sentences."""

    tokens: bytes  # ids in the type of the store
    sentence_tokens: list[int]  # tokens of each sentence that was kept
    run_sentences: list[int]  # sentences of each run of neighbours that were kept
    bases: int
    skipped_sentences: int
    skipped_bases: int


class StoreWriter:
    """Appends encoded documents to the files of a directory, which are complete once the context is left."""

    def __init__(self, directory: Path) -> None:
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
