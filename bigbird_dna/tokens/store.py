"""Token stores: the encoded documents of a split, memory-mapped, written in parallel.

A store is a directory:

* `tokens.bin`: the token ids of all sentences, one after the other, without specials, little-endian uint16
  (uint32 for vocabularies above 65,536);
* `sentences.npy`: int64 (S + 1,), sentence s is `tokens[sentences[s]:sentences[s + 1]]`;
* `documents.npy`: int64 (D + 1,), document d has the sentences `documents[d]` to `documents[d + 1] - 1`;
* `store.json`: what it was made from, how much there is, and checksums of the other files and of itself
  (`StoreInfo`).

Sentences of one document are neighbors on the genome. A sentence with more than `max_n` N is left out and
counted, and a document is divided there, so that neighbors remain neighbors.
"""

import multiprocessing
import os
import re
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.console import progress
from bigbird_dna.disk.atomic import checksum, write_json
from bigbird_dna.disk.directories import atomic_directory
from bigbird_dna.errors import BigBirdDnaError, DataError, shortened
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.regions import name_parts
from bigbird_dna.genome.sequence import Interval, fraction_n, reverse_complement
from bigbird_dna.tokens.corpus import MAX_N, Document, DocumentPlan, iter_documents
from bigbird_dna.tokens.interface import Tokenizer, require_dna
from bigbird_dna.tokens.store_writer import (
    FORMAT,
    EncodedDocument,
    StoreInfo,
    StoreWriter,
    own_checksum,
    read_info,
    verify_files,
)

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 8  # items a process that are under way or waiting to be taken

_function: Callable[[Any], Any] | None = None  # of a worker process, set once when it starts


def ordered_map(function: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """Yield `function(item)` for every item, in order, by spawned processes, or in this one.

    `function` is pickled once a process and items once each. `items` is read only a few items ahead of what
    has been taken: memory is bounded.
    """
    if workers <= 1:
        yield from map(function, items)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_start, initargs=(function,))
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            with _interrupts_held_back():
                pending.append(pool.submit(_run, item))
            if len(pending) >= _AHEAD * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        raise BigBirdDnaError(
            "a worker process ended abruptly, perhaps for lack of memory: try fewer threads"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """For processes that are started meanwhile, until they answer for themselves."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(function: Callable[[Any], Any]) -> None:
    global _function
    # An interrupt from the keyboard reaches every process; the parent alone answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    _function = function


def _end_with_the_parent() -> None:
    """A parent that is killed tells nobody, and this process would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(item: Any) -> Any:
    assert _function is not None
    return _function(item)


# What NumPy writes in front of offsets. It would read much more, as Python.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(..)(\{'descr': '<i8', 'fortran_order': False, 'shape': \((\d{1,18}),\), \} *\n)",
    re.DOTALL,
)


@dataclass(frozen=True)
class TokenStore:
    """An open store; arrays are read-only memory maps. Pickling passes the path, not the data."""

    directory: Path
    tokens: NDArray[np.unsignedinteger]  # (tokens,)
    sentences: NDArray[np.int64]  # (S + 1,) token offsets
    documents: NDArray[np.int64]  # (D + 1,) sentence indices
    info: StoreInfo

    @classmethod
    def open(cls, directory: Path, tokenizer: Tokenizer | None = None, *, verify: bool = False) -> Self:
        """Map a store's files; `DataError` if they are damaged, or were made with another tokenizer.

        With `verify` everything is read, about a second a gigabyte: the files must have the checksums of
        `store.json`, tokens be of the vocabulary, offsets ascend. Without it only `store.json`, sizes and
        ends are looked at.
        """
        directory = Path(directory)
        info = read_info(directory / "store.json")
        if tokenizer is not None and tokenizer.sha256 != info["tokenizer_sha256"]:
            raise DataError(
                f"{directory}: made with another tokenizer (sha256 "
                f"{shortened(info['tokenizer_sha256'], 12)}, not {tokenizer.sha256[:12]}…): tokenize again"
            )
        if tokenizer is not None and tokenizer.vocabulary != info["vocabulary"]:
            raise DataError(
                f"{directory / 'store.json'}: vocabulary is {info['vocabulary']}, the tokenizer's is "
                f"{tokenizer.vocabulary}: tokenize again"
            )
        path, dtype = directory / "tokens.bin", np.dtype(info["dtype"]).newbyteorder("<")
        if not path.is_file():
            raise DataError(f"{path}: no such file")
        size, expected = path.stat().st_size, info["tokens"] * dtype.itemsize
        if size != expected:
            raise DataError(f"{path}: damaged: {size} bytes, {expected} expected")
        # As a plain array: slices of memory-map objects are several times slower to make.
        tokens = np.asarray(np.memmap(path, dtype, "r")) if size else np.empty(0, dtype)
        if verify:
            verify_files(directory, info)
            if (largest := int(tokens.max(initial=0))) >= info["vocabulary"]:
                raise DataError(
                    f"{path}: token {largest} is outside the vocabulary of {info['vocabulary']}: "
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
    """Draw the documents of a split's contigs, or segments of them, encode them, and write a store, whole or
    not at all.

    The bytes depend on the sequence, the tokenizer, the plan, `max_n` and the seed, not on how many processes
    work. Sentences are encoded one by one; those with a larger share of N than `max_n` are left out, and
    `DataError` says that none is left. Memory doesn't grow with the genome.
    """
    require_dna(tokenizer)
    encode = _Encoder(reference, tokenizer, max_n, _dtype(tokenizer))
    expected = round(plan.passes * sum(map(len, segments)) / plan.mean_document_bases)
    documents = iter_documents(segments, plan, seed)
    first = sum(1 for _ in iter_documents(segments, plan.first, seed))  # before some are divided
    with atomic_directory(Path(directory)) as temporary:
        with StoreWriter(temporary) as writer:
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
                f"{max_n:.0%} N: nothing to tokenize"
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
        bases=writer.bases,
        skipped_sentences=writer.skipped_sentences,
        skipped_bases=writer.skipped_bases,
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
    """Turns a document into tokens; picklable, so that worker processes have it."""

    reference: Reference
    tokenizer: Tokenizer
    max_n: float
    dtype: np.dtype[Any]

    def __call__(self, document: Document) -> EncodedDocument:
        sequence = self.reference.fetch(document.interval)
        if document.reverse_of is not None:
            sequence = reverse_complement(sequence)
        kept: list[str] = []
        runs = [0]
        skipped_sentences = skipped_bases = 0
        first = document.start
        for start, end in pairwise((first, *document.sentence_ends)):
            sentence = sequence[start - first : end - first]
            if fraction_n(sentence) <= self.max_n:
                kept.append(sentence)
                runs[-1] += 1
            else:
                skipped_sentences += 1
                skipped_bases += len(sentence)
                runs.append(0)
        rows = self.tokenizer.encode_batch(kept)
        tokens = np.concatenate(rows) if rows else np.empty(0)
        return EncodedDocument(
            tokens.astype(self.dtype).tobytes(),
            [len(row) for row in rows],
            [run for run in runs if run],
            sum(map(len, kept)),
            skipped_sentences,
            skipped_bases,
        )


def _map_offsets(path: Path, count: int, last: int, verify: bool) -> NDArray[np.int64]:
    """Map `count + 1` offsets that run from 0 to `last`, and ascend: that is looked at if `verify`."""
    try:
        with path.open("rb") as stream:
            head = _HEADER.match(stream.read(256))
        size = path.stat().st_size
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: can't be read: {error.strerror}") from None
    if head is None or int.from_bytes(head[1], "little") != len(head[2]):
        raise DataError(f"{path}: damaged: not an .npy file of whole numbers in one row")
    if int(head[3]) != count + 1:
        raise DataError(f"{path}: damaged: {int(head[3])} offsets, {count + 1} expected")
    if size != head.end() + 8 * (count + 1):
        raise DataError(f"{path}: damaged: {size} bytes, {head.end() + 8 * (count + 1)} expected")
    offsets = np.asarray(np.memmap(path, "<i8", "r", head.end(), (count + 1,)))
    if offsets[0] != 0 or offsets[-1] != last:
        raise DataError(f"{path}: damaged: runs from {offsets[0]} to {offsets[-1]}, 0 to {last} expected")
    if verify and count:
        wrong = offsets[1:] <= offsets[:-1]
        if wrong.any():
            index = int(wrong.argmax())
            raise DataError(
                f"{path}: damaged: offset {index + 1} is {offsets[index + 1]}, after {offsets[index]}"
            )
    return offsets
