"""Shards of token stores: their files, written in one pass and read in slices.

A shard is a directory with the encoded documents of a part of a store:

* `tokens.bin`: the concatenated token ids of all sentences, without special tokens, little-endian uint16
  (uint32 for vocabularies above 65,536);
* `sentences.npy`: int64 (S + 1,), sentence s is `tokens[sentences[s]:sentences[s + 1]]`;
* `documents.npy`: int64 (D + 1,), document d has the sentences `documents[d]` to `documents[d + 1] - 1`;
* `shard.json`: split, counts, and sizes and checksums of the other files (`TokenShardInfo`).

Sentences of one document are adjacent on the genome. A sentence with too many N is skipped and counted, and a
document is divided there, so that consecutive sentences are always adjacent.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, cast, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.disk.atomic import checksum, write_json
from bigbird_dna.disk.json_files import read_json_of
from bigbird_dna.errors import DataError, shortened
from bigbird_dna.tokens.arrays import ArrayFile

FILES = ("tokens.bin", "sentences.npy", "documents.npy")
MANIFEST = "shard.json"
_AT_ONCE = 1 << 22  # tokens that are verified at a time


class TokenShardInfo(TypedDict):
    """The content of `shard.json`, which `store.json` repeats for each shard."""

    number: int  # in the store, from 1
    split: str
    documents: int
    first_documents: int  # documents of the first pass, or with both strands of the first pass of each
    longer_documents: int  # documents of more than one token
    longest_document: int  # tokens
    sentences: int
    tokens: int
    bases: int  # bp in the sentences, including N
    skipped_sentences: int  # with too many N
    skipped_bases: int
    tokens_bytes: int
    sentences_bytes: int
    documents_bytes: int
    tokens_sha256: str
    sentences_sha256: str
    documents_sha256: str


def shard_name(number: int) -> str:
    """Return the name of the directory of a store's shard, counted from 1."""
    return f"shard-{number:05}"


def own_checksum(info: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all other keys in canonical form, independent of the file's formatting."""
    rest = {key: value for key, value in info.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def check_types(path: Path, info: Mapping[str, Any], kind: Any) -> None:
    """Raise `DataError` if an object of the JSON file `path` does not have the keys of a typed dictionary."""
    types = _types(kind)
    for key in info:
        if key not in types:
            raise DataError(f"{path}: unknown key {shortened(repr(key))}")
    for key, expected in types.items():
        if key not in info and key in kind.__required_keys__:
            raise DataError(f"{path}: key {key!r} is missing")
        if key in info and not _is_a(info[key], expected):
            name = getattr(expected, "__origin__", expected).__name__
            of = "".join(f" of {part.__name__}" for part in get_args(expected))
            raise DataError(
                f"{path}: {key} must be a valid {name}{of}, not {shortened(repr(info[key]))}"
            )


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _is_a(value: object, kind: Any) -> bool:
    """Return whether a JSON value has a type; numbers must be from 0 to 2^63 - 1."""
    if parts := get_args(kind):
        return isinstance(value, list) and all(_is_a(one, parts[0]) for one in value)
    if kind is str:
        return isinstance(value, str)
    if kind not in (int, float):
        return isinstance(value, dict)
    numbers = (int, float) if kind is float else int
    return (
        isinstance(value, numbers)
        and not isinstance(value, bool)
        and 0 <= value < 1 << 63
    )


class DocumentLengths(NamedTuple):
    """What is needed of all documents' lengths to draw pairs of sentences."""

    longer: int  # number of documents of more than one token
    longest: int  # tokens

    @classmethod
    def of(cls, lengths: NDArray[np.integer]) -> "DocumentLengths":
        """From the tokens of each document (D,)."""
        return cls(int((lengths > 1).sum()), int(lengths.max(initial=0)))


class EncodedDocument(NamedTuple):
    """A document's tokens, and counts of its sentences."""

    tokens: bytes  # ids in the type of the store
    sentence_tokens: list[int]  # number of tokens of each kept sentence
    run_sentences: list[
        int
    ]  # number of sentences of each run of adjacent kept sentences
    counts: Counter[str]  # bases, skipped_sentences, skipped_bases


class TokenShardWriter:
    """Writes the encoded documents of a shard into a new directory, completed by `close` and `describe`."""

    def __init__(self, directory: Path, number: int, split: str) -> None:
        directory.mkdir()
        self.directory, self.number, self.split = directory, number, split
        self.stream = (directory / "tokens.bin").open("wb")
        self.sentences = _Offsets(directory / "sentences.npy")
        self.documents = _Offsets(directory / "documents.npy")
        self.digest = hashlib.sha256()
        self.counts: Counter[str] = Counter()
        self.longest = 0
        self.first_documents = 0

    def add(self, part: EncodedDocument, *, first_pass: bool) -> None:
        """Append the documents into which a document was divided."""
        self.stream.write(part.tokens)
        self.digest.update(part.tokens)
        self.sentences.add(part.sentence_tokens)
        self.documents.add(part.run_sentences)
        self.counts.update(part.counts)
        taken = 0
        for sentences in part.run_sentences:
            tokens = sum(part.sentence_tokens[taken : taken + sentences])
            self.counts["longer"] += tokens > 1
            self.longest = max(self.longest, tokens)
            taken += sentences
        if first_pass:
            self.first_documents = self.documents.values

    def close(self) -> None:
        self.stream.close()
        self.sentences.close()
        self.documents.close()

    def describe(self) -> TokenShardInfo:
        """Write the manifest of the closed files, and return it."""
        sizes = {name: (self.directory / name).stat().st_size for name in FILES}
        info = TokenShardInfo(
            number=self.number,
            split=self.split,
            documents=self.documents.values,
            first_documents=self.first_documents,
            longer_documents=self.counts["longer"],
            longest_document=self.longest,
            sentences=self.sentences.values,
            tokens=self.sentences.last,
            bases=self.counts["bases"],
            skipped_sentences=self.counts["skipped_sentences"],
            skipped_bases=self.counts["skipped_bases"],
            tokens_bytes=sizes["tokens.bin"],
            sentences_bytes=sizes["sentences.npy"],
            documents_bytes=sizes["documents.npy"],
            tokens_sha256=self.digest.hexdigest(),
            sentences_sha256=checksum(self.directory / "sentences.npy"),
            documents_sha256=checksum(self.directory / "documents.npy"),
        )
        write_json(self.directory / MANIFEST, info)
        return info


class _Offsets:
    """A growing .npy file of cumulative counts; NumPy's header has room to update the length in place."""

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


class TokenShard:
    """An open shard, whose files are read from when they are first needed."""

    def __init__(
        self,
        directory: Path,
        info: TokenShardInfo,
        dtype: np.dtype[Any],
        vocabulary: int,
    ) -> None:
        self.directory, self.info, self.dtype, self.vocabulary = (
            directory,
            info,
            dtype,
            vocabulary,
        )
        self.verify_first = False
        """Whether to verify all data before the first value is read, unless that was done."""
        self._verified = False

    @cached_property
    def tokens(self) -> ArrayFile:
        """Token ids (T,)."""
        self._verify_if_first()
        return ArrayFile(
            self.directory / "tokens.bin", self.dtype, 0, self.info["tokens"]
        )

    @cached_property
    def sentences(self) -> ArrayFile:
        """Offsets of the sentences in `tokens`, (S + 1,)."""
        self._verify_if_first()
        return self._offsets(
            "sentences.npy", self.info["sentences"], self.info["tokens"]
        )

    @cached_property
    def documents(self) -> ArrayFile:
        """Offsets of the documents in `sentences`, (D + 1,)."""
        self._verify_if_first()
        return self._offsets(
            "documents.npy", self.info["documents"], self.info["sentences"]
        )

    def check_sizes(self) -> None:
        """Raise `DataError` if a file is missing or does not have its size; reads nothing."""
        tokens, expected = (
            self.info["tokens_bytes"],
            self.info["tokens"] * self.dtype.itemsize,
        )
        if tokens != expected:
            raise DataError(
                f"{self.directory}: damaged: {tokens} bytes of tokens, expected {expected}"
            )
        for name in FILES:
            path = self.directory / name
            expected = cast(int, self.info[f"{path.stem}_bytes"])  # type: ignore[literal-required]
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                raise DataError(f"{path}: no such file") from None
            except OSError as error:
                raise DataError(
                    f"{path}: cannot read the file: {error.strerror}"
                ) from None
            if size != expected:
                raise DataError(
                    f"{path}: the file is damaged: {size} bytes, expected {expected}"
                )

    def verify(self) -> None:
        """Read all data. Raise `DataError` if a file does not have its checksum, a token is outside the
        vocabulary, offsets do not increase, or counts or manifest differ from those in `store.json`."""
        path = self.directory / MANIFEST
        if not path.is_file() or read_json_of(path, DataError) != self.info:
            raise DataError(f"{path}: damaged: differs from store.json; tokenize again")
        self.check_sizes()
        tokens = ArrayFile(
            self.directory / "tokens.bin", self.dtype, 0, self.info["tokens"]
        )
        digest, largest = hashlib.sha256(), 0
        for start in range(0, len(tokens), _AT_ONCE):
            block = tokens.read(start, min(start + _AT_ONCE, len(tokens)))
            digest.update(block.tobytes())
            largest = max(largest, int(block.max()))
        self._compare("tokens.bin", digest.hexdigest())
        if largest >= self.vocabulary:
            raise DataError(
                f"{tokens.path}: token {largest} is outside the vocabulary of {self.vocabulary}; "
                "tokenize again"
            )
        found = {}
        for name, count, last in (
            ("sentences.npy", self.info["sentences"], self.info["tokens"]),
            ("documents.npy", self.info["documents"], self.info["sentences"]),
        ):
            path = self.directory / name
            self._compare(name, checksum(path))
            found[name] = _ascending(
                path, self._offsets(name, count, last).read(0, count + 1)
            )
        lengths = DocumentLengths.of(
            np.diff(found["sentences.npy"][found["documents.npy"]])
        )
        if lengths != (self.info["longer_documents"], self.info["longest_document"]):
            raise DataError(
                f"{self.directory}: damaged: wrong lengths of documents; tokenize again"
            )
        self._verified = True

    def _verify_if_first(self) -> None:
        if self.verify_first and not self._verified:
            self.verify()

    def _compare(self, name: str, found: str) -> None:
        path = self.directory / name
        expected = str(self.info[f"{path.stem}_sha256"])  # type: ignore[literal-required]
        if found != expected:
            raise DataError(
                f"{path}: damaged: sha256 {found[:12]}…, expected {shortened(expected, 12)}; tokenize again"
            )

    def _offsets(self, name: str, count: int, last: int) -> ArrayFile:
        """Open `count` + 1 offsets from 0 to `last`."""
        path = self.directory / name
        try:
            with path.open("rb") as stream:
                head = _HEADER.match(stream.read(256))
            size = path.stat().st_size
        except FileNotFoundError:
            raise DataError(f"{path}: no such file") from None
        except OSError as error:
            raise DataError(f"{path}: cannot read the file: {error.strerror}") from None
        if head is None or int.from_bytes(head[1], "little") != len(head[2]):
            raise DataError(
                f"{path}: the file is damaged: not a one-dimensional .npy file of whole numbers"
            )
        if int(head[3]) != count + 1:
            raise DataError(
                f"{path}: the file is damaged: {int(head[3])} offsets, expected {count + 1}"
            )
        if size != head.end() + 8 * (count + 1):
            expected = head.end() + 8 * (count + 1)
            raise DataError(
                f"{path}: the file is damaged: {size} bytes, expected {expected}"
            )
        offsets = ArrayFile(path, np.dtype("<i8"), head.end(), count + 1)
        ends = int(offsets.read(0, 1)[0]), int(offsets.read(count, count + 1)[0])
        if ends != (0, last):
            raise DataError(
                f"{path}: damaged: from {ends[0]} to {ends[1]}, expected 0 to {last}"
            )
        return offsets


# Header that NumPy writes for offsets; NumPy itself would evaluate much more general Python literals.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(..)(\{'descr': '<i8', 'fortran_order': False, 'shape': \((\d{1,18}),\), \} *\n)",
    re.DOTALL,
)


def _ascending(path: Path, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return offsets; `DataError` if they do not increase."""
    wrong = offsets[1:] <= offsets[:-1]
    if wrong.any():
        index = int(wrong.argmax())
        raise DataError(
            f"{path}: damaged: offset {index + 1} is {offsets[index + 1]}, after {offsets[index]}"
        )
    return offsets
