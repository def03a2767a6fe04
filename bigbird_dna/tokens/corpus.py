"""Divide contigs into documents of sentences (paper App. F.1), sample a corpus, and use worker processes.

Each contig, or segment of a contig that is divided among splits, is read in several passes. A pass starts at
a random base near the 5' end and runs to the end. A document is a random number of sentences; a sentence is a
random number of consecutive bases. No bases are skipped between sentences or documents. With both strands,
every second pass reads the reverse complement from its 5' end, because a model trained on one strand does not
learn that both strands are equivalent. The paper does not state that it reads both strands.
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
    """Parameters for drawing documents; the defaults are the paper's. Ranges are inclusive and uniform."""

    passes: int = 10
    max_start_offset: int = 5000  # bp
    sentence_bases: tuple[int, int] = (500, 1000)
    sentences_per_document: tuple[int, int] = (50, 100)
    strands: Strands = "forward"

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise ValueError(f"passes must be at least 1, not {self.passes}")
        if self.max_start_offset < 0:
            raise ValueError(
                f"max_start_offset must be at least 0, not {self.max_start_offset}"
            )
        for name in ("sentence_bases", "sentences_per_document"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise ValueError(f"{name} must be (low, high) with 1 <= low <= high")

    @property
    def first(self) -> "DocumentPlan":
        """The plan with only the first pass; with both strands, the first pass of each strand."""
        return replace(
            self, passes=min(self.passes, 2 if self.strands == "both" else 1)
        )

    @property
    def mean_document_bases(self) -> float:
        """Expected length in bp of a document that is not truncated at a contig's end."""
        return sum(self.sentence_bases) / 2 * sum(self.sentences_per_document) / 2


@dataclass(frozen=True, slots=True)
class Document:
    """Consecutive sentences of a contig: the first starts at `start`, each ends where the next starts.

    Positions are in reading order. If the document reads the reverse complement, they are counted from the
    end of its segment of the contig, `reverse_of`.
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
        """All bases of the document, in contig coordinates."""
        return self._on_contig(self.start, self.end)

    def sentences(self) -> list[Interval]:
        """Return the intervals of the sentences on the contig, in reading order."""
        return [
            self._on_contig(start, end)
            for start, end in pairwise((self.start, *self.sentence_ends))
        ]

    def _on_contig(self, start: int, end: int) -> Interval:
        if self.reverse_of is not None:
            start, end = self.reverse_of - end, self.reverse_of - start
        return Interval(self.contig, start, end)


def iter_documents(
    segments: Sequence[Interval], plan: DocumentPlan, seed: int
) -> Iterator[Document]:
    """Yield the documents of contigs or segments, one pass over all of them after the other.

    A pass depends only on the seed, the segment's contig, start and length, and the number of the pass. It
    starts 0 … `max_start_offset` bp into the segment, uniform and inclusive; in a shorter segment, in the
    range that leaves one whole sentence. From there each base is in exactly one sentence; the last sentence
    and document may be shorter.
    """
    for number in range(plan.passes):
        for segment in segments:
            rng, reverse = (
                generator(seed, segment, number),
                plan.strands == "both" and number % 2 == 1,
            )
            latest = min(
                plan.max_start_offset, max(0, len(segment) - plan.sentence_bases[1])
            )
            start = int(rng.integers(0, latest + 1))
            # Positions of the reverse strand count from the segment's end, others from the contig's start.
            before = 0 if reverse else segment.start
            ends = before + sentence_ends(start, len(segment), plan.sentence_bases, rng)
            start += before
            low, high = plan.sentences_per_document
            taken = 0
            while taken < len(ends):
                size = int(rng.integers(low, high + 1))
                own = tuple(ends[taken : taken + size].tolist())
                yield Document(
                    segment.contig, start, own, segment.end if reverse else None
                )
                start = own[-1]
                taken += size


def sentence_ends(
    start: int, length: int, bases: tuple[int, int], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the ends of consecutive sentences from `start` to `length`; the last one may be shorter."""
    if start >= length:
        return np.empty(0, np.int64)
    low, high = bases
    ends = start + np.cumsum(rng.integers(low, high + 1, -(-(length - start) // low)))
    last = int(np.searchsorted(ends, length))  # the first sentence that reaches the end
    ends = ends[: last + 1]
    ends[-1] = length
    return ends


def generator(seed: int, segment: Interval, number: int) -> np.random.Generator:
    """Return a generator that depends only on seed, contig, start (omitted for 0) and a number."""
    name = f"{segment.contig}:{segment.start + 1}-" if segment.start else segment.contig
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return np.random.default_rng([seed, int.from_bytes(digest, "little"), number])


MAX_N = 0.5  # maximum fraction of N of a sentence in corpus and stores


def sample_sentences(
    reference: Reference,
    segments: Sequence[Interval],
    bases: int,
    *,
    sentence_bases: tuple[int, int] = (500, 1000),
    seed: int = 0,
) -> Iterator[str]:
    """Yield random sentences of contigs or segments, with `bases` bp in total, or fewer.

    Sentences of `sentence_bases` bp (minimum and maximum) tile the segments without overlap. A random subset
    is used until `bases` is met exactly, since BPE training keeps its corpus in memory. Sentences with a
    larger fraction of N than `MAX_N` are skipped. The tiling of a segment does not depend on later segments.
    """
    tiled = [
        one.start + sentence_ends(0, len(one), sentence_bases, generator(seed, one, 0))
        for one in segments
    ]
    empty = np.empty(0, np.int64)
    ends = np.concatenate([empty, *tiled])
    pairs = zip(segments, tiled, strict=True)
    starts = np.concatenate(
        [empty, *(np.append(one.start, own)[:-1] for one, own in pairs)]
    )
    of = np.repeat(np.arange(len(tiled)), [len(own) for own in tiled])
    order = np.random.default_rng([seed, len(ends)]).permutation(len(ends))
    missing, used = bases, 0
    while missing > 0 and used < len(order):
        # As many as needed if none is skipped, read in file order, which is fast.
        enough = np.cumsum((ends - starts)[order[used:]])
        count = int(np.searchsorted(enough, missing)) + 1
        for index in np.sort(order[used : used + count]):
            interval = Interval(
                segments[of[index]].contig, int(starts[index]), int(ends[index])
            )
            sentence = reference.fetch(interval)
            if fraction_n(sentence) <= MAX_N and missing > 0:
                yield sentence[:missing]
                missing -= len(sentence)
        used += count


T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 8  # items per process that are in progress or wait for the consumer

_function: Callable[[Any], Any] | None = (
    None  # function of a worker process, set when it starts
)


def ordered_map(
    function: Callable[[T], R], items: Iterable[T], workers: int
) -> Iterator[R]:
    """Yield `function(item)` for each item, in order, from spawned processes or (one worker) this process.

    `function` is pickled once per process and each item once. `items` is read only a few items ahead of the
    consumer, so memory is bounded.
    """
    if workers <= 1:
        yield from map(function, items)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        workers, context, initializer=_start, initargs=(function,)
    )
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
            "a worker process ended unexpectedly, possibly for lack of memory; use fewer threads"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Block interrupts while processes are started, until they handle signals themselves."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(function: Callable[[Any], Any]) -> None:
    global _function
    # A keyboard interrupt reaches all processes; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    _function = function


def _end_with_the_parent() -> None:
    """End this process if its parent is killed; it would otherwise wait for work forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(item: Any) -> Any:
    assert _function is not None
    return _function(item)
