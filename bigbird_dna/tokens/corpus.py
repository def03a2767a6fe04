"""Contigs as documents of sentences (paper App. F.1), a sample to train the tokenizer on, and processes.

For each contig, or segment of one that is divided among splits, a number of passes: a pass starts at a random
base near its 5' end and runs to its end. A document is a random number of sentences; a sentence is a random
number of consecutive bases. Nothing lies between two sentences or two documents. With both strands every
second pass reads the reverse complement, from its own 5' end: a model that has seen one strand only doesn't
know that DNA means the same read from either side. The paper doesn't say that it read both.
"""

import hashlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, fraction_n

Strands = Literal["both", "forward"]


@dataclass(frozen=True)
class DocumentPlan:
    """How documents are drawn; the defaults are the paper's. Ranges are inclusive and uniform."""

    passes: int = 10
    max_start_offset: int = 5000  # bp
    sentence_bases: tuple[int, int] = (500, 1000)
    sentences_per_document: tuple[int, int] = (50, 100)
    strands: Strands = "forward"

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise ValueError(f"passes must be at least 1, not {self.passes}")
        if self.max_start_offset < 0:
            raise ValueError(f"max_start_offset must be at least 0, not {self.max_start_offset}")
        for name in ("sentence_bases", "sentences_per_document"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise ValueError(f"{name} must be (low, high) with 1 <= low <= high")

    @property
    def first(self) -> "DocumentPlan":
        """The first pass alone; with both strands the first of each."""
        return replace(self, passes=min(self.passes, 2 if self.strands == "both" else 1))

    @property
    def mean_document_bases(self) -> float:
        """Expected length of a document that no contig's end cuts, in bp."""
        return sum(self.sentence_bases) / 2 * sum(self.sentences_per_document) / 2


@dataclass(frozen=True, slots=True)
class Document:
    """Consecutive sentences of a contig: the first starts at `start`, each ends where the next starts.

    Positions are those in reading order: of one that reads the reverse complement they count from the end
    of its segment of the contig, `reverse_of`.
    """

    contig: str
    start: int
    sentence_ends: tuple[int, ...]  # ascending
    reverse_of: int | None = None  # position on the contig

    @property
    def end(self) -> int:
        """Position after the last base."""
        return self.sentence_ends[-1]

    @property
    def interval(self) -> Interval:
        """All bases of the document, where they are on the contig."""
        return self._on_contig(self.start, self.end)

    def sentences(self) -> list[Interval]:
        """The intervals of the sentences on the contig, in reading order."""
        return [self._on_contig(start, end) for start, end in pairwise((self.start, *self.sentence_ends))]

    def _on_contig(self, start: int, end: int) -> Interval:
        if self.reverse_of is not None:
            start, end = self.reverse_of - end, self.reverse_of - start
        return Interval(self.contig, start, end)


def iter_documents(segments: Sequence[Interval], plan: DocumentPlan, seed: int) -> Iterator[Document]:
    """Yield the documents of contigs, or segments of them, one pass over all of them after the other.

    Each pass depends on the seed, the segment's contig, start and length, and the pass's number alone. It
    starts 0 … `max_start_offset` bp into the segment, uniform, both included; in one too short for that, in
    the range that leaves room for one whole sentence. From there each base is in exactly one sentence; the
    last sentence and document take what is left.
    """
    for number in range(plan.passes):
        for segment in segments:
            rng, reverse = generator(seed, segment, number), plan.strands == "both" and number % 2 == 1
            latest = min(plan.max_start_offset, max(0, len(segment) - plan.sentence_bases[1]))
            start = int(rng.integers(0, latest + 1))
            # Positions of the other strand count from the segment's end, others on the contig.
            before = 0 if reverse else segment.start
            ends = before + sentence_ends(start, len(segment), plan.sentence_bases, rng)
            start += before
            low, high = plan.sentences_per_document
            taken = 0
            while taken < len(ends):
                size = int(rng.integers(low, high + 1))
                own = tuple(ends[taken : taken + size].tolist())
                yield Document(segment.contig, start, own, segment.end if reverse else None)
                start = own[-1]
                taken += size


def sentence_ends(
    start: int, length: int, bases: tuple[int, int], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Ends of consecutive sentences from `start` to `length`; the last one takes what is left."""
    if start >= length:
        return np.empty(0, np.int64)
    low, high = bases
    ends = start + np.cumsum(rng.integers(low, high + 1, -(-(length - start) // low)))
    last = int(np.searchsorted(ends, length))  # the first that reaches the end
    ends = ends[: last + 1]
    ends[-1] = length
    return ends


def generator(seed: int, segment: Interval, number: int) -> np.random.Generator:
    """Random numbers that depend on seed, contig, start (none of a contig's first base) and a number
    alone."""
    name = f"{segment.contig}:{segment.start + 1}-" if segment.start else segment.contig
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return np.random.default_rng([seed, int.from_bytes(digest, "little"), number])


MAX_N = 0.5  # sentences with a larger share of N are left out of corpus and stores


def sample_sentences(
    reference: Reference,
    segments: Sequence[Interval],
    bases: int,
    *,
    sentence_bases: tuple[int, int] = (500, 1000),
    seed: int = 0,
) -> Iterator[str]:
    """Yield random sentences of contigs, or segments of them, with `bases` bp in all, or fewer.

    Sentences of `sentence_bases` bp, shortest and longest, tile the segments without overlap, and a random
    subset is taken until `bases` is met exactly, since BPE training holds its corpus in memory. Those with a
    larger share of N than `MAX_N` are left out. Segments that follow don't change how one is tiled.
    """
    tiled = [
        one.start + sentence_ends(0, len(one), sentence_bases, generator(seed, one, 0)) for one in segments
    ]
    empty = np.empty(0, np.int64)
    ends = np.concatenate([empty, *tiled])
    pairs = zip(segments, tiled, strict=True)
    starts = np.concatenate([empty, *(np.append(one.start, own)[:-1] for one, own in pairs)])
    of = np.repeat(np.arange(len(tiled)), [len(own) for own in tiled])
    order = np.random.default_rng([seed, len(ends)]).permutation(len(ends))
    missing, used = bases, 0
    while missing > 0 and used < len(order):
        # As many as would do if none were left out, read in the order of the file, which is fast.
        enough = np.cumsum((ends - starts)[order[used:]])
        count = int(np.searchsorted(enough, missing)) + 1
        for index in np.sort(order[used : used + count]):
            interval = Interval(segments[of[index]].contig, int(starts[index]), int(ends[index]))
            sentence = reference.fetch(interval)
            if fraction_n(sentence) <= MAX_N and missing > 0:
                yield sentence[:missing]
                missing -= len(sentence)
        used += count


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
