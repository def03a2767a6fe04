"""Token stores: the encoded documents of one split of a genome (paper App. F.1).

A store is a directory:

* `tokens.bin`: the token ids of all sentences, without special tokens, little-endian uint16 (uint32 for
  vocabularies above 65,536);
* `sentences.npy`: int64 (S + 1,), sentence s is `tokens[sentences[s]:sentences[s + 1]]`;
* `documents.npy`: int64 (D + 1,), document d has the sentences `documents[d]` to `documents[d + 1] - 1`;
* `store.json`: sources, settings, counts, and the SHA-256 of the other files.

Sentences of one document are adjacent on the genome. A sentence with too many N is skipped and counted, and a
document is divided there, so that consecutive sentences are always adjacent. All arrays are memory-mapped.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import progress
from bigbird_dna.disk.atomic import checksum, write_json
from bigbird_dna.disk.directories import atomic_directory
from bigbird_dna.disk.json_files import read_json_of
from bigbird_dna.errors import DataError, shortened
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, fraction_n, reverse_complement
from bigbird_dna.genome.splits import name_parts
from bigbird_dna.tokens.corpus import (
    MAX_N,
    Document,
    DocumentPlan,
    iter_documents,
    ordered_map,
)
from bigbird_dna.tokens.interface import Tokenizer, require_dna

FORMAT = 3
DESCRIPTION = "store.json"
TOKENS, SENTENCES, DOCUMENTS = "tokens.bin", "sentences.npy", "documents.npy"


class _EncodedDocument(NamedTuple):
    tokens: bytes  # ids in the type of the store
    sentence_tokens: list[int]  # number of tokens of each sentence
    run_sentences: list[int]  # number of sentences of each run of adjacent sentences
    counts: Counter[str]  # bases, skipped_sentences, skipped_bases


@dataclass(frozen=True)
class _Encoder:
    """Converts a document to tokens; picklable, for worker processes."""

    reference: Reference
    tokenizer: Tokenizer
    max_n: float
    dtype: str

    def __call__(self, document: Document) -> _EncodedDocument:
        sequence = self.reference.fetch(document.interval)
        if document.reverse_of is not None:
            sequence = reverse_complement(sequence)
        sentences: list[str] = []
        run_sentences = [0]
        counts: Counter[str] = Counter()
        first = document.start
        for start, end in pairwise((first, *document.sentence_ends)):
            sentence = sequence[start - first : end - first]
            if fraction_n(sentence) <= self.max_n:
                sentences.append(sentence)
                run_sentences[-1] += 1
                counts["bases"] += len(sentence)
            else:
                counts["skipped_sentences"] += 1
                counts["skipped_bases"] += len(sentence)
                run_sentences.append(0)
        rows = self.tokenizer.encode_batch(sentences)
        tokens = np.concatenate([np.empty(0, np.int32), *rows]).astype(self.dtype)
        lengths = [len(row) for row in rows]
        runs = [count for count in run_sentences if count]
        return _EncodedDocument(tokens.tobytes(), lengths, runs, counts)


def build_store(
    directory: Path,
    reference: Reference,
    segments: Sequence[Interval],
    tokenizer: Tokenizer,
    plan: DocumentPlan,
    *,
    split: str = "train",
    seed: int = 0,
    max_n: float = MAX_N,
    workers: int = 1,
    description: str = "tokenizing",
) -> dict[str, Any]:
    """Draw the documents of a split's contigs or segments, encode them, and write a store atomically.

    The bytes depend on the sequence, the tokenizer, the plan, `max_n` and the seed, but not on the number of
    processes. Sentences are encoded one by one; those with a larger fraction of N than `max_n` are skipped.
    Returns the content of `store.json`. Memory has 8 bytes per sentence. `DataError` if no sentence is left.
    """
    require_dna(tokenizer)
    dtype = "uint16" if tokenizer.vocabulary <= 1 << 16 else "uint32"
    num_documents = sum(1 for _ in iter_documents(segments, plan, seed))
    num_first_pass = sum(1 for _ in iter_documents(segments, plan.first, seed))
    encoder = _Encoder(
        reference, tokenizer, max_n, np.dtype(dtype).newbyteorder("<").str
    )
    sentences, documents = array("q", [0]), array("q", [0])
    first_documents = 0
    counts: Counter[str] = Counter()
    with atomic_directory(Path(directory)) as temporary:
        with (temporary / TOKENS).open("wb") as stream:
            encoded = ordered_map(
                encoder, iter_documents(segments, plan, seed), workers
            )
            encoded = progress(encoded, description, total=num_documents)
            for number, document in enumerate(encoded):
                stream.write(document.tokens)
                counts.update(document.counts)
                for count in document.sentence_tokens:
                    sentences.append(sentences[-1] + count)
                for count in document.run_sentences:
                    documents.append(documents[-1] + count)
                if number < num_first_pass:
                    first_documents = len(documents) - 1
        np.save(temporary / SENTENCES, np.array(sentences, "<i8"))
        np.save(temporary / DOCUMENTS, np.array(documents, "<i8"))
        contigs = list(dict.fromkeys(segment.contig for segment in segments))
        if contigs and len(sentences) == 1:
            raise DataError(
                f"{reference.path}: no sentence of {shortened(', '.join(contigs[:4]), 200)} has at most "
                f"{max_n:.0%} N, so there is nothing to tokenize"
            )
        info = {
            "format": FORMAT,
            "split": split,
            "vocabulary": tokenizer.vocabulary,
            "tokenizer_sha256": tokenizer.sha256,
            "reference_sha256": checksum(reference.path),
            "dtype": dtype,
            "documents": len(documents) - 1,
            # Documents of the first pass, or with both strands of the first pass of each.
            "first_documents": first_documents,
            "sentences": len(sentences) - 1,
            "tokens": sentences[-1],
            "bases": counts["bases"],
            "skipped_sentences": counts["skipped_sentences"],
            "skipped_bases": counts["skipped_bases"],
            "max_n": max_n,
            "contigs": contigs,
            "passes": plan.passes,
            "strands": plan.strands,
            "max_start_offset": plan.max_start_offset,
            "sentence_bases": list(plan.sentence_bases),
            "sentences_per_document": list(plan.sentences_per_document),
            "seed": seed,
            "files": {
                name: checksum(temporary / name)
                for name in (TOKENS, SENTENCES, DOCUMENTS)
            },
        }
        if regions := name_parts(segments, reference.contigs):
            info["stretches"] = regions  # regions that are read of divided contigs
        write_json(temporary / DESCRIPTION, info)
    return info


class TokenStore:
    """An open store; pickling stores the path, not the data.

    `tokens` (T,), `sentences` (S + 1,) and `documents` (D + 1,) are described above; `info` is the content of
    `store.json`.
    """

    def __init__(self, directory: Path, tokenizer: Tokenizer | None = None) -> None:
        """Open a store; `DataError` if it is damaged or was made with another tokenizer.

        Reads only `store.json` and the sizes of the other files; see `verify`.
        """
        self.directory = Path(directory)
        path = self.directory / DESCRIPTION
        if not path.is_file():
            raise DataError(f"{self.directory}: not a token store (no {path.name})")
        self.info: dict[str, Any] = read_json_of(
            path, DataError, "not readable as JSON"
        )
        if not isinstance(self.info, dict) or self.info.get("format") != FORMAT:
            raise DataError(
                f"{path}: not the description of a token store of format {FORMAT}; tokenize again"
            )
        try:
            counts = [self.info[key] for key in ("tokens", "sentences", "documents")]
            dtype = np.dtype(self.info["dtype"]).newbyteorder("<")
            made_with = str(self.info["tokenizer_sha256"])
            missing = {"strands", "first_documents", "files"} - self.info.keys()
            if missing:
                raise KeyError(missing.pop())
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}: damaged: {error}; tokenize again") from None
        if tokenizer is not None and tokenizer.sha256 != made_with:
            raise DataError(
                f"{self.directory}: made with another tokenizer (sha256 {shortened(made_with, 12)}, "
                f"not {tokenizer.sha256[:12]}…); tokenize again"
            )
        self.tokens = _map_array(self.directory / TOKENS, dtype)
        self.sentences = _map_array(self.directory / SENTENCES)
        self.documents = _map_array(self.directory / DOCUMENTS)
        sizes = [
            len(self.tokens),
            len(self.sentences) - 1,
            len(self.documents) - 1,
        ]
        ends = [self.sentences[-1], self.documents[-1]]
        if sizes != counts or ends != counts[:2]:
            raise DataError(
                f"{self.directory}: damaged: its files do not have the numbers of tokens, sentences and "
                f"documents in {DESCRIPTION}; tokenize again"
            )

    def verify(self) -> None:
        """Read all files, some seconds per gigabyte; `DataError` if one does not have its checksum."""
        for name, expected in self.info["files"].items():
            found = checksum(self.directory / name)
            if found != expected:
                raise DataError(
                    f"{self.directory / name}: damaged: sha256 {found[:12]}…, expected "
                    f"{shortened(str(expected), 12)}; tokenize again"
                )

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return TokenStore, (self.directory,)


def _map_array(path: Path, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
    """Map a .npy file, or with `dtype` the values of a file without header; `DataError` if it is damaged."""
    try:
        if dtype is None:
            return np.load(path, mmap_mode="r").view(np.ndarray)  # type: ignore[no-any-return]
        if path.stat().st_size == 0:
            return np.empty(0, dtype)
        return np.memmap(path, dtype, "r").view(np.ndarray)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot read the file: {error.strerror}") from None
    except (ValueError, EOFError) as error:
        raise DataError(f"{path}: damaged: {error}; tokenize again") from None


class JoinedStores:
    """Token stores of several genomes, read as one; offsets are in memory."""

    def __init__(self, stores: Sequence[TokenStore]) -> None:
        self.stores = tuple(stores)
        self.directory = stores[0].directory
        self.tokens = _JoinedTokens([store.tokens for store in stores])
        self.sentences = _join_offsets([store.sentences for store in stores])
        self.documents = _join_offsets([store.documents for store in stores])

    def verify(self) -> None:
        """Read all files of all stores; see `TokenStore.verify`."""
        for store in self.stores:
            store.verify()


class _JoinedTokens:
    """Arrays of token ids, of which slices are read as if they were concatenated."""

    def __init__(self, arrays: Sequence[NDArray[np.integer]]) -> None:
        self._arrays = arrays
        self._starts = np.cumsum([0, *map(len, arrays)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, key: Any) -> NDArray[np.integer]:
        """Return the ids of a slice of consecutive ones."""
        start, stop, _ = key.indices(len(self))
        parts = [
            tokens[max(start - first, 0) : max(stop - first, 0)]
            for tokens, first in zip(self._arrays, self._starts[:-1], strict=True)
        ]
        return np.concatenate(parts)


def _join_offsets(offsets: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    starts = np.cumsum([0, *(each[-1] for each in offsets)])
    joined = [
        each[1:] + start for each, start in zip(offsets, starts[:-1], strict=True)
    ]
    return np.concatenate([starts[:1], *joined])
