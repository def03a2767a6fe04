"""Similar sequences, by common k-mers.

Two sequences are similar if at least a fraction `threshold` of the distinct k-mers of each, on either strand,
also occurs in the other: `shared ≥ threshold · max(n_1, n_2)`. Sequences that are linked by similar pairs,
directly or through other sequences, form one group. k is 16 (8 if a sequence has less than 64 bp). A
threshold of 0.2 means about 90 % identity, or windows that overlap by a fifth. Above 32 million k-mers in
total, a subset is used to limit memory; it is chosen by hash and thus the same in every sequence.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from bigbird_dna.genome.sequence import (
    base_codes,
    known_before,
    reverse_complement,
    turned_word,
    words_ending,
)

SIMILAR = 0.2
"""Usual minimum fraction of common k-mers of similar sequences."""
LONG_K, SHORT_K, SHORT = 16, 8, 64  # k, and k if a sequence has less than 64 bp
MOST_KMERS = 1 << 25
BATCH = 10_000_000  # common k-mers that are counted at a time
AT_ONCE = 256  # sequences whose k-mers are found at a time
PAIRS = 4096  # pairs whose common k-mers are counted exactly at a time

Ints = npt.NDArray[np.int64]


def distinct_kmers(
    sequences: Sequence[str], k: int, fraction: int = 1
) -> tuple[Ints, npt.NDArray[np.uint32]]:
    """Return the distinct k-mers (M,) of each sequence without N: the sequence's number, and the k-mer.

    A k-mer and its reverse complement are the same. Of all k-mers, one in `fraction` is used.
    """
    keys = [np.empty(0, np.uint64)]  # number · 2^32 + k-mer
    for first in range(0, len(sequences), AT_ONCE):
        some = sequences[first : first + AT_ONCE]
        codes = base_codes("N".join(some))
        known = known_before(codes) >= k
        words = words_ending(codes, k)[known]
        kmers = np.minimum(words, turned_word(words, k)).astype(np.uint32)
        lengths = [len(sequence) + 1 for sequence in some]
        numbers = np.repeat(np.arange(first, first + len(some)), lengths)[:-1][known]
        if fraction > 1:
            mixed = (kmers ^ (kmers >> np.uint32(15))) * np.uint32(0x9E3779B1)
            chosen = (mixed >> np.uint32(1)) % np.uint32(fraction) == 0
            kmers, numbers = kmers[chosen], numbers[chosen]

        keys.append(np.unique((numbers.astype(np.uint64) << np.uint64(32)) | kmers))

    joined = np.concatenate(keys)
    return (joined >> np.uint64(32)).astype(np.int64), joined.astype(np.uint32)


def similar_groups(
    sequences: Sequence[str], threshold: float, *, most_kmers: int = MOST_KMERS
) -> Ints:
    """Return the group (N,) of each sequence of A C G T N, numbered from 0 in order of their first members.

    Groups depend on neither order nor strand. Sequences with no k-mer of known bases are similar only to
    copies.

    Not all pairs are compared. The k-mers of a sequence are ordered from the rarest to the most frequent one.
    A similar sequence must contain `needed` of them. Without the `needed − least` most frequent k-mers of
    each sequence, a similar pair still has at least `least` common ones, with the larger `least` of both:
    both sequences have the same order, so one of them lacks all common k-mers that either lacks. K-mers of
    many sequences, such as those of an adapter, are therefore not used to find pairs.
    """
    copies, distinct = pd.factorize(
        np.array([min(one, reverse_complement(one)) for one in sequences], object)
    )
    texts: list[str] = list(distinct)
    count = len(texts)
    k = SHORT_K if min(map(len, texts), default=0) < SHORT else LONG_K
    numbers, kmers = distinct_kmers(
        texts, k, -(-sum(map(len, sequences)) // most_kmers) or 1
    )
    sizes = np.bincount(numbers, minlength=count)
    needed = np.maximum(np.ceil(threshold * sizes - 1e-9).astype(np.int64), 1)
    least = -(-needed // 4)

    # Columns are the k-mers of several sequences, from the rarest to the most frequent one.
    _, which, frequencies = np.unique(kmers, return_inverse=True, return_counts=True)
    order = np.argsort(frequencies, kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order)) - (frequencies == 1).sum()
    columns = ranks[which]
    several = columns >= 0
    entries = np.ones(several.sum(), np.int32), (numbers[several], columns[several])
    shape = (count, int((frequencies > 1).sum()))
    shared = csr_matrix(entries, shape=shape)
    shared.sort_indices()
    lengths = np.diff(shared.indptr)
    places = np.arange(shared.nnz) - np.repeat(shared.indptr[:-1], lengths)
    rare = shared.copy()
    rare.data = (places < np.repeat(lengths - (needed - least), lengths)).astype(
        np.int32
    )
    rare.eliminate_zeros()

    groups = np.arange(count)
    todo, columns_of = groups, rare.tocsc()
    changed = True
    while len(todo):
        if changed:  # k-mers of a single group link nothing more
            columns_of = columns_of[:, np.diff(columns_of.indptr) > 1]
            members, starts = groups[columns_of.indices], columns_of.indptr[:-1]
            if len(starts):
                lowest = np.minimum.reduceat(members, starts)
                highest = np.maximum.reduceat(members, starts)
                columns_of = columns_of[:, lowest < highest]

            rare, others = columns_of.tocsr(), columns_of.T.tocsr()
            work = rare @ np.diff(columns_of.indptr)
            todo = todo[work[todo] > 0]

        size = int(np.searchsorted(np.cumsum(work[todo]), BATCH, "right")) or 1
        rows, todo = todo[:size], todo[size:]
        found = (rare[rows] @ others).tocoo()
        pairs = np.stack([rows[found.row], found.col.astype(np.int64)])
        pairs = pairs[:, found.data >= least[pairs].max(axis=0)]
        changed = False
        while pairs.size:
            pairs = pairs[:, groups[pairs[0]] != groups[pairs[1]]]
            (one, other), pairs = pairs[:, :PAIRS], pairs[:, PAIRS:]
            common = np.asarray(shared[one].multiply(shared[other]).sum(axis=1)).ravel()
            similar = common >= np.maximum(needed[one], needed[other])
            if similar.any():
                changed = True
                ends = groups[one[similar]], groups[other[similar]]
                links = csr_matrix((np.ones(len(ends[0])), ends), shape=(count, count))
                groups = connected_components(links, directed=False)[1][groups]

    return np.asarray(pd.factorize(groups[copies])[0], np.int64)
