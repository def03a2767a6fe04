"""A sample of a genome to train the tokenizer on.

BPE training holds its whole corpus in memory, so a genome is sampled: sentences of the lengths of App. F.1
tile the contigs, or stretches of them, without overlap, and a random subset of the sentences is taken until
the wanted number of bases is reached. Each part of the genome has the same chance, and a genome below the
bound is taken whole.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.genome.intervals import Interval
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import fraction_n
from bigbird_dna.tokens.documents import generator, sentence_ends

MAX_N = 0.5  # sentences with a larger share of N are left out of corpus and stores


class _Tiles(NamedTuple):
    """Sentences that tile stretches of contigs: parallel arrays."""

    stretches: NDArray[np.int64]  # index of the stretch
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def draw(cls, stretches: Sequence[Interval], bases: tuple[int, int], seed: int) -> Self:
        ends = [
            stretch.start + sentence_ends(0, len(stretch), bases, generator(seed, stretch, 0))
            for stretch in stretches
        ]
        starts = [
            np.concatenate(([stretch.start], own))[:-1] for stretch, own in zip(stretches, ends, strict=True)
        ]
        index = np.repeat(np.arange(len(ends)), [len(own) for own in ends])
        empty = np.empty(0, np.int64)
        return cls(index, np.concatenate([empty, *starts]), np.concatenate([empty, *ends]))


def sample_sentences(
    reference: Reference,
    stretches: Sequence[Interval],
    bases: int,
    *,
    sentence_bases: tuple[int, int] = (500, 1000),
    seed: int = 0,
) -> Iterator[str]:
    """Yield random sentences of a genome with `bases` bp in all, or fewer if there aren't as many.

    Sentences with a larger share of N than `MAX_N` are left out, and others taken in their place.
    Deterministic by seed; stretches that follow don't change how one is tiled. Memory is about 25 bytes a
    sentence of the genome (100 MB for a human one).

    Parameters
    ----------
    stretches : what to sample from: whole contigs (`whole_contigs`), or parts of some.
    bases : bp; the last sentence is cut so that this is met exactly.
    sentence_bases : shortest and longest sentence, bp.
    """
    tiles = _Tiles.draw(stretches, sentence_bases, seed)
    order = np.random.default_rng([seed, len(tiles.ends)]).permutation(len(tiles.ends))
    missing, used = bases, 0
    while missing > 0 and used < len(order):
        # As many as would do if none were left out, read in the order of the file, which is fast.
        enough = np.cumsum((tiles.ends - tiles.starts)[order[used:]])
        count = int(np.searchsorted(enough, missing)) + 1
        for index in np.sort(order[used : used + count]):
            contig = stretches[tiles.stretches[index]].contig
            interval = Interval(contig, int(tiles.starts[index]), int(tiles.ends[index]))
            sentence = reference.fetch(interval)
            if fraction_n(sentence) <= MAX_N and missing > 0:
                yield sentence[:missing]
                missing -= len(sentence)
        used += count
