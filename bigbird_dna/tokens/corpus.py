"""Divide contigs into documents of sentences (paper App. F.1), and sample a corpus.

Each contig, or segment of a contig that is divided among splits, is read in several passes. A pass starts at
a random base near the 5' end and runs to the end. A document is a random number of sentences; a sentence is a
random number of consecutive bases. No bases are skipped between sentences or documents. With both strands,
every second pass reads the reverse complement from its 5' end, because a model trained on one strand does not
learn that both strands are equivalent. The paper does not state that it reads both strands.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, fraction_n

Strands = Literal["both", "forward"]
MAX_N = 0.5  # maximum fraction of N of a sentence in corpus and stores


@dataclass(frozen=True)
class DocumentPlan:
    """Parameters for drawing documents; the defaults are the paper's. Ranges are inclusive and uniform."""

    passes: int = 10
    max_start_offset: int = 5000  # bp
    sentence_bases: tuple[int, int] = (500, 1000)
    sentences_per_document: tuple[int, int] = (50, 100)
    strands: Strands = "forward"


class Document(NamedTuple):
    """Consecutive sentences of a contig: each ends where the next starts."""

    interval: Interval  # all bases, in contig coordinates
    ends: tuple[int, ...]  # of the sentences, bp from the document's 5' end, ascending
    reverse: bool  # whether the document reads the reverse complement
    number: int  # of its pass


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
        reverse = plan.strands == "both" and number % 2 == 1
        for segment in segments:
            rng = generator(seed, segment, number)
            latest = max(0, len(segment) - plan.sentence_bases[1])
            start = int(rng.integers(0, min(plan.max_start_offset, latest) + 1))
            ends = sentence_ends(start, len(segment), plan.sentence_bases, rng)
            low, high = plan.sentences_per_document
            while len(ends):
                size = int(rng.integers(low, high + 1))
                document, ends = ends[:size], ends[size:]
                end = int(document[-1])
                # Positions of the reverse strand count from the segment's end.
                interval = Interval(
                    segment.contig, segment.start + start, segment.start + end
                )
                if reverse:
                    interval = Interval(
                        segment.contig, segment.end - end, segment.end - start
                    )

                sentences = tuple((document - start).tolist())
                yield Document(interval, sentences, reverse, number)
                start = end


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
    tiles = [np.empty((0, 3), np.int64)]  # segment, start and end of each sentence
    for index, segment in enumerate(segments):
        rng = generator(seed, segment, 0)
        ends = sentence_ends(0, len(segment), sentence_bases, rng) + segment.start
        starts = np.append(segment.start, ends)[:-1]
        tiles.append(np.stack([np.full_like(ends, index), starts, ends], axis=1))

    table = np.concatenate(tiles)
    order = np.random.default_rng([seed, len(table)]).permutation(len(table))
    missing = bases
    while missing > 0 and len(order):
        # As many as needed if none is skipped, read in file order, which is fast.
        totals = np.cumsum(table[order, 2] - table[order, 1])
        count = int(np.searchsorted(totals, missing)) + 1
        for index, start, end in table[np.sort(order[:count])].tolist():
            sentence = reference.fetch(Interval(segments[index].contig, start, end))
            if fraction_n(sentence) <= MAX_N and missing > 0:
                yield sentence[:missing]
                missing -= len(sentence)

        order = order[count:]
