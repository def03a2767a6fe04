"""Token stores: the encoded documents of a split, memory-mapped, written in parallel.

A store is a directory:

* `tokens.bin`: the concatenated token ids of all sentences, without special tokens, little-endian uint16
  (uint32 for vocabularies above 65,536);
* `sentences.npy`: int64 (S + 1,), sentence s is `tokens[sentences[s]:sentences[s + 1]]`;
* `documents.npy`: int64 (D + 1,), document d has the sentences `documents[d]` to `documents[d + 1] - 1`;
* `store.json`: sources, counts, and checksums of the other files and of itself (`StoreInfo`).

Sentences of one document are adjacent on the genome. A sentence with more than `max_n` N is skipped and
counted, and a document is divided there, so that consecutive sentences are always adjacent.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, Self, TypedDict, cast, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import progress
from bigbird_dna.disk.atomic import checksum, write_json
from bigbird_dna.disk.directories import atomic_directory
from bigbird_dna.disk.json_files import read_json_within
from bigbird_dna.errors import DataError, shortened
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, fraction_n, reverse_complement
from bigbird_dna.genome.splits import name_parts
from bigbird_dna.tokens.corpus import MAX_N, Document, DocumentPlan, iter_documents, ordered_map
from bigbird_dna.tokens.interface import Tokenizer, require_dna

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
    first_documents: int  # documents of the first pass, or with both strands of the first pass of each
    sentences: int
    tokens: int
    bases: int  # bp in the sentences, including N
    skipped_sentences: int  # with more than max_n N
    skipped_bases: int
    max_n: float
    contigs: list[str]  # whole contigs, except those in `stretches`
    stretches: NotRequired[list[str]]  # regions that are read of divided contigs
    passes: int
    strands: str  # forward, or both: every second pass reads the reverse complement
    max_start_offset: int
    sentence_bases: list[int]
    sentences_per_document: list[int]
    seed: int
    sha256: str  # of all other keys, see `own_checksum`


def own_checksum(info: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all other keys in canonical form, independent of the file's formatting."""
    rest = {key: value for key, value in info.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_info(path: Path) -> StoreInfo:
    """Read the description at `path`; `DataError` if it is missing, damaged or has a wrong checksum."""
    if not path.is_file():
        raise DataError(f"{path.parent}: not a token store (no {path.name})")
    info = read_json_within(path, _MOST_BYTES, DataError, "not readable as JSON")
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise DataError(f"{path}: not the description of a token store of format {FORMAT}")
    _check_types(path, info)
    if info["sha256"] != own_checksum(info):
        raise DataError(f"{path}: the file is damaged: wrong sha256; tokenize again")
    return cast(StoreInfo, info)


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
            raise DataError(f"{path}: {key} must be a valid {name}{of}, not {shortened(repr(info[key]))}")
    if info["dtype"] not in ("uint16", "uint32"):
        raise DataError(f"{path}: dtype must be uint16 or uint32, not {shortened(repr(info['dtype']))}")


def _is_a(value: object, kind: Any) -> bool:
    """Return whether a JSON value has a type of `StoreInfo`; numbers must be from 0 to 2^63 - 1."""
    if parts := get_args(kind):
        return isinstance(value, list) and all(_is_a(one, parts[0]) for one in value)
    if kind is str:
        return isinstance(value, str)
    numbers = (int, float) if kind is float else int
    return isinstance(value, numbers) and not isinstance(value, bool) and 0 <= value < 1 << 63


def verify_files(directory: Path, info: Mapping[str, object]) -> None:
    """Raise `DataError` if a file does not have its checksum."""
    for name in ("tokens.bin", "sentences.npy", "documents.npy"):
        path = directory / name
        expected = info[f"{path.stem}_sha256"]
        try:
            found = checksum(path)
        except OSError as error:
            raise DataError(f"{path}: cannot read the file: {error.strerror}") from None
        if found != expected:
            raise DataError(
                f"{path}: damaged: sha256 {found[:12]}…, expected {shortened(str(expected), 12)}; "
                "tokenize again"
            )


class EncodedDocument(NamedTuple):
    """A document's tokens, and counts of its sentences."""

    tokens: bytes  # ids in the type of the store
    sentence_tokens: list[int]  # number of tokens of each kept sentence
    run_sentences: list[int]  # number of sentences of each run of adjacent kept sentences
    counts: Counter[str]  # bases, skipped_sentences, skipped_bases


class StoreWriter:
    """Appends encoded documents to the files of a directory; files are complete after `close`."""

    def __init__(self, directory: Path) -> None:
        self.stream = (directory / "tokens.bin").open("wb")
        self.sentences = _Offsets(directory / "sentences.npy")
        self.documents = _Offsets(directory / "documents.npy")
        self.digest = hashlib.sha256()
        self.counts: Counter[str] = Counter()

    def add(self, part: EncodedDocument) -> None:
        self.stream.write(part.tokens)
        self.digest.update(part.tokens)
        self.sentences.add(part.sentence_tokens)
        self.documents.add(part.run_sentences)
        self.counts.update(part.counts)

    def close(self) -> None:
        self.stream.close()
        self.sentences.close()
        self.documents.close()


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


# Header that NumPy writes for offsets; NumPy itself would evaluate much more general Python literals.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(..)(\{'descr': '<i8', 'fortran_order': False, 'shape': \((\d{1,18}),\), \} *\n)",
    re.DOTALL,
)


@dataclass(frozen=True)
class TokenStore:
    """An open store; arrays are read-only memory maps. Pickling stores the path, not the data."""

    directory: Path
    tokens: NDArray[np.unsignedinteger]  # (tokens,)
    sentences: NDArray[np.int64]  # (S + 1,) token offsets
    documents: NDArray[np.int64]  # (D + 1,) sentence indices
    info: StoreInfo

    @classmethod
    def open(cls, directory: Path, tokenizer: Tokenizer | None = None, *, verify: bool = False) -> Self:
        """Map a store's files; `DataError` if they are damaged or were made with another tokenizer.

        With `verify` all data is read, at about one second per gigabyte: files must match the checksums in
        `store.json`, tokens must be in the vocabulary, and offsets must increase. Otherwise only
        `store.json`, file sizes and the first and last offsets are checked.
        """
        directory = Path(directory)
        info = read_info(directory / "store.json")
        if tokenizer is not None and tokenizer.sha256 != info["tokenizer_sha256"]:
            raise DataError(
                f"{directory}: made with another tokenizer (sha256 "
                f"{shortened(info['tokenizer_sha256'], 12)}, not {tokenizer.sha256[:12]}…); tokenize again"
            )
        if tokenizer is not None and tokenizer.vocabulary != info["vocabulary"]:
            raise DataError(
                f"{directory / 'store.json'}: vocabulary is {info['vocabulary']}, but the tokenizer has "
                f"{tokenizer.vocabulary}; tokenize again"
            )
        path, dtype = directory / "tokens.bin", np.dtype(info["dtype"]).newbyteorder("<")
        if not path.is_file():
            raise DataError(f"{path}: no such file")
        size, expected = path.stat().st_size, info["tokens"] * dtype.itemsize
        if size != expected:
            raise DataError(f"{path}: the file is damaged: {size} bytes, expected {expected}")
        # A plain array, because slicing memory-map objects is several times slower.
        tokens = np.asarray(np.memmap(path, dtype, "r")) if size else np.empty(0, dtype)
        if verify:
            verify_files(directory, info)
            if (largest := int(tokens.max(initial=0))) >= info["vocabulary"]:
                raise DataError(
                    f"{path}: token {largest} is outside the vocabulary of {info['vocabulary']}; "
                    "tokenize again"
                )
        sentences = _map_offsets(directory / "sentences.npy", info["sentences"], info["tokens"], verify)
        documents = _map_offsets(directory / "documents.npy", info["documents"], info["sentences"], verify)
        return cls(directory, tokens, sentences, documents, info)

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return TokenStore.open, (self.directory,)


def build_store(
    directory: Path,
    reference: Reference,
    segments: Sequence[Interval],
    tokenizer: Tokenizer,
    plan: DocumentPlan,
    *,
    seed: int = 0,
    max_n: float = MAX_N,
    workers: int = 1,
    description: str = "tokenizing",
) -> StoreInfo:
    """Draw the documents of a split's contigs or segments, encode them, and write a store atomically.

    The bytes depend on the sequence, the tokenizer, the plan, `max_n` and the seed, but not on the number of
    processes. Sentences are encoded one by one; those with a larger fraction of N than `max_n` are skipped.
    `DataError` if none is left. Memory does not grow with the genome.
    """
    require_dna(tokenizer)
    encode = _Encoder(reference, tokenizer, max_n)
    expected = round(plan.passes * sum(map(len, segments)) / plan.mean_document_bases)
    documents = iter_documents(segments, plan, seed)
    first = sum(1 for _ in iter_documents(segments, plan.first, seed))  # before documents are divided
    with atomic_directory(Path(directory)) as temporary:
        with closing(StoreWriter(temporary)) as writer:
            parts = ordered_map(encode, documents, workers)
            first_documents = 0
            for number, part in enumerate(progress(parts, description, total=expected), start=1):
                writer.add(part)
                if number == first:
                    first_documents = writer.documents.values
        contigs = list(dict.fromkeys(segment.contig for segment in segments))
        if segments and not writer.sentences.values:
            raise DataError(
                f"{reference.path}: no sentence of {', '.join(contigs[:4])} has at most "
                f"{max_n:.0%} N, so there is nothing to tokenize"
            )
        info = _describe(writer, temporary, first_documents, tokenizer, contigs, plan, seed, max_n)
        if named := name_parts(segments, reference.contigs):
            info["stretches"] = named
        info["sha256"] = own_checksum(info)
        write_json(temporary / "store.json", info)
    return info


def _describe(
    writer: StoreWriter,
    directory: Path,
    first_documents: int,
    tokenizer: Tokenizer,
    contigs: list[str],
    plan: DocumentPlan,
    seed: int,
    max_n: float,
) -> StoreInfo:
    return StoreInfo(
        format=FORMAT,
        vocabulary=tokenizer.vocabulary,
        tokenizer_sha256=tokenizer.sha256,
        tokens_sha256=writer.digest.hexdigest(),
        sentences_sha256=checksum(directory / "sentences.npy"),
        documents_sha256=checksum(directory / "documents.npy"),
        dtype=_dtype(tokenizer).name,
        documents=writer.documents.values,
        first_documents=first_documents,
        sentences=writer.sentences.values,
        tokens=writer.sentences.last,
        bases=writer.counts["bases"],
        skipped_sentences=writer.counts["skipped_sentences"],
        skipped_bases=writer.counts["skipped_bases"],
        max_n=max_n,
        contigs=contigs,
        passes=plan.passes,
        strands=plan.strands,
        max_start_offset=plan.max_start_offset,
        sentence_bases=list(plan.sentence_bases),
        sentences_per_document=list(plan.sentences_per_document),
        seed=seed,
        sha256="",
    )


def _dtype(tokenizer: Tokenizer) -> np.dtype[Any]:
    return np.dtype("<u2" if tokenizer.vocabulary <= 1 << 16 else "<u4")


@dataclass(frozen=True)
class _Encoder:
    """Converts a document to tokens; picklable, for worker processes."""

    reference: Reference
    tokenizer: Tokenizer
    max_n: float

    def __call__(self, document: Document) -> EncodedDocument:
        sequence = self.reference.fetch(document.interval)
        if document.reverse_of is not None:
            sequence = reverse_complement(sequence)
        kept: list[str] = []
        runs = [0]
        counts: Counter[str] = Counter()
        first = document.start
        for start, end in pairwise((first, *document.sentence_ends)):
            sentence = sequence[start - first : end - first]
            if fraction_n(sentence) <= self.max_n:
                kept.append(sentence)
                runs[-1] += 1
                counts["bases"] += len(sentence)
            else:
                counts["skipped_sentences"] += 1
                counts["skipped_bases"] += len(sentence)
                runs.append(0)
        rows = self.tokenizer.encode_batch(kept)
        tokens = (np.concatenate(rows) if rows else np.empty(0)).astype(_dtype(self.tokenizer))
        lengths = [len(row) for row in rows]
        return EncodedDocument(tokens.tobytes(), lengths, [run for run in runs if run], counts)


def _map_offsets(path: Path, count: int, last: int, verify: bool) -> NDArray[np.int64]:
    """Map `count + 1` offsets from 0 to `last`; with `verify`, check that they increase."""
    try:
        with path.open("rb") as stream:
            head = _HEADER.match(stream.read(256))
        size = path.stat().st_size
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot read the file: {error.strerror}") from None
    if head is None or int.from_bytes(head[1], "little") != len(head[2]):
        raise DataError(f"{path}: the file is damaged: not a one-dimensional .npy file of whole numbers")
    if int(head[3]) != count + 1:
        raise DataError(f"{path}: the file is damaged: {int(head[3])} offsets, expected {count + 1}")
    if size != head.end() + 8 * (count + 1):
        raise DataError(f"{path}: the file is damaged: {size} bytes, expected {head.end() + 8 * (count + 1)}")
    offsets = np.asarray(np.memmap(path, "<i8", "r", head.end(), (count + 1,)))
    if offsets[0] != 0 or offsets[-1] != last:
        raise DataError(f"{path}: damaged: from {offsets[0]} to {offsets[-1]}, expected 0 to {last}")
    if verify and count:
        wrong = offsets[1:] <= offsets[:-1]
        if wrong.any():
            index = int(wrong.argmax())
            raise DataError(
                f"{path}: damaged: offset {index + 1} is {offsets[index + 1]}, after {offsets[index]}"
            )
    return offsets
