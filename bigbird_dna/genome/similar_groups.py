"""Groups of similar sequences, by common k-mers.

Two sequences are similar if at least a fraction `threshold` of the distinct k-mers of each, on either strand,
also occurs in the other: `shared ≥ threshold · max(n_1, n_2)`. Sequences that are linked by similar pairs,
directly or through other sequences, form one group. k is 16 (8 if a sequence has less than 64 bp). A
threshold of 0.2 means about 90 % identity, or windows that overlap by a fifth. Above 32 million k-mers in
total, a subset is used to limit memory; it is chosen by hash and thus the same in every sequence.

Not all pairs are compared. Sort the k-mers of each sequence from the rarest to the most frequent. A similar
sequence must contain `a = ceil(threshold · n)` of them. Drop the `a − m` most frequent k-mers of each
sequence. A similar pair keeps at least m common k-mers, with the larger m of both: both use the same order,
so one sequence drops all common k-mers that either drops. K-mers of many sequences, such as those of an
adapter, are thus not used, and pairs with fewer than m common k-mers are not compared. Families are linked
along chains first; k-mers that occur in only one group add no links.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from bigbird_dna.genome.similarity import (
    batches,
    kmers_of,
    run_sizes,
    run_starts,
    within_runs,
)

Labels = npt.NDArray[np.int64]  # (N,) group of each sequence
Pairs = npt.NDArray[np.int64]  # (P, 2) indices of sequences

SIMILAR = 0.2
"""Usual minimum fraction of common k-mers of similar sequences."""
_LONG, _SHORT, _SHORT_BELOW = (
    16,
    8,
    64,
)  # k for long and short sequences; bp below which a sequence is short
_MOST_KMERS = 1 << 25
BATCH = 1 << 21  # shared k-mers per batch
_ROUNDS = 8  # of linking sequences along chains
_PARTNERS = 3  # per sequence and round
_KEPT = 4  # the fraction 1 / 4 of the needed k-mers is kept: m = ceil(a / 4)
_ROUNDING = 1e-9


class RecordKmers(NamedTuple):
    """Distinct k-mers of N sequences; those of one sequence are contiguous."""

    rows: npt.NDArray[np.int64]  # sequence of each k-mer, ascending
    codes: npt.NDArray[np.uint32]
    sizes: npt.NDArray[np.int64]  # (N,) number of k-mers of each sequence


def similar_groups(
    sequences: Sequence[str], threshold: float, *, most_kmers: int = _MOST_KMERS
) -> Labels:
    """Return the group of each sequence of A C G T N, numbered from 0 in order of their first members.

    Groups depend on neither order nor strand. A sequence without a k-mer of known bases is its own group.
    """
    kmers = distinct_kmers(sequences, most_kmers)
    needed = np.maximum(
        np.ceil(threshold * kmers.sizes - _ROUNDING).astype(np.int64), 1
    )
    least = -(-needed // _KEPT)
    shared, prefixes = _matrices(kmers, needed - least)
    labels = np.arange(len(sequences))
    for _ in range(_ROUNDS):
        linked = _linked(labels, _chains(prefixes, labels), shared, needed)
        if linked is labels:
            break
        labels = linked
        prefixes = _between(prefixes, labels)
    for pairs in _candidates(prefixes, labels, least):
        labels = _linked(labels, pairs, shared, needed)
    return pd.factorize(labels)[0]


def distinct_kmers(sequences: Sequence[str], most: int = _MOST_KMERS) -> RecordKmers:
    """Return the k-mers without N of each sequence; a k-mer and its reverse complement count as the same."""
    k = _SHORT if sequences and min(map(len, sequences)) < _SHORT_BELOW else _LONG
    parts = -(
        -sum(map(len, sequences)) // most
    )  # the fraction 1 / parts of the k-mers is used
    keys = [np.empty(0, np.uint64)]  # row · 2^32 + k-mer
    for first, last in batches([len(one) for one in sequences]):
        kmers = kmers_of(sequences[first:last], k)
        codes, kept = kmers.codes, kmers.known
        if parts > 1:
            mixed = (codes ^ (codes >> np.uint32(15))) * np.uint32(0x9E3779B1)
            kept = kept & ((mixed >> np.uint32(1)) % np.uint32(parts) == 0)
        here = ((kmers.rows[kept] + first).astype(np.uint64) << np.uint64(32)) | codes[
            kept
        ]
        here.sort()
        keys.append(here[run_starts(here)])
    whole = np.concatenate(keys)
    rows = (whole >> np.uint64(32)).astype(np.int64)
    return RecordKmers(
        rows, whole.astype(np.uint32), np.bincount(rows, minlength=len(sequences))
    )


def _matrices(
    kmers: RecordKmers, lost: npt.NDArray[np.int64]
) -> tuple[csr_matrix, csr_matrix]:
    """Return which sequence has which k-mer (N, K), for k-mers that occur in several sequences.

    The second matrix omits the `lost` (N,) most frequent k-mers of each sequence.
    """
    count = len(kmers.sizes)
    keys = (kmers.codes.astype(np.uint64) << np.uint64(32)) | kmers.rows.astype(
        np.uint64
    )
    keys.sort()
    frequencies = run_sizes(keys >> np.uint64(32))
    several = frequencies > 1
    rows = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)[
        np.repeat(several, frequencies)
    ]
    del keys
    frequencies = frequencies[several]
    # Columns are ranks, from the rarest k-mer to the most frequent one.
    ranks = np.empty(len(frequencies), np.int64)
    ranks[np.argsort(frequencies, kind="stable")] = np.arange(len(frequencies))
    places = (rows << 32) | np.repeat(ranks, frequencies)
    places.sort()
    rows, columns = places >> 32, places & 0xFFFFFFFF
    sizes = np.bincount(rows, minlength=count)
    shape = (count, len(frequencies))
    shared = _rows_of_ones(columns, sizes, shape)
    length = np.maximum(sizes - lost, 0)
    return shared, _rows_of_ones(
        columns[within_runs(sizes) < np.repeat(length, sizes)], length, shape
    )


def _rows_of_ones(
    columns: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], shape: tuple[int, int]
) -> csr_matrix:
    """Return a matrix of ones with `sizes` entries in each row."""
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return csr_matrix(
        (np.ones(len(columns), np.int32), columns.astype(np.int32), ends), shape=shape
    )


def _between(prefixes: csr_matrix, labels: Labels) -> csr_matrix:
    """Keep the columns of k-mers that occur in several groups; the other columns become empty."""
    coordinates = prefixes.tocoo()
    groups = labels[coordinates.row]
    least = np.full(prefixes.shape[1], len(labels), np.int64)
    most = np.full(prefixes.shape[1], -1, np.int64)
    np.minimum.at(least, coordinates.col, groups)
    np.maximum.at(most, coordinates.col, groups)
    kept = (least < most)[coordinates.col]
    sizes = np.bincount(coordinates.row[kept], minlength=len(labels))
    return _rows_of_ones(coordinates.col[kept].astype(np.int64), sizes, prefixes.shape)


def _chains(prefixes: csr_matrix, labels: Labels) -> Pairs:
    """Return the most frequent pairs of sequences that are adjacent under a k-mer and in different groups."""
    coordinates = prefixes.tocoo()
    order = np.lexsort((labels[coordinates.row], coordinates.col))
    rows, columns = coordinates.row[order].astype(np.int64), coordinates.col[order]
    side = (columns[1:] == columns[:-1]) & (labels[rows[1:]] != labels[rows[:-1]])
    pairs = np.stack([rows[:-1][side], rows[1:][side]], axis=1)
    pairs.sort(axis=1)
    keys, counts = np.unique((pairs[:, 0] << 32) | pairs[:, 1], return_counts=True)
    first = keys >> 32
    order = np.lexsort((-counts, first))
    first, keys = first[order], keys[order]
    keys = keys[within_runs(run_sizes(first)) < _PARTNERS]
    return np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1)


def _candidates(
    prefixes: csr_matrix, labels: Labels, least: npt.NDArray[np.int64]
) -> Iterator[Pairs]:
    """Yield all pairs of different groups with `least` (N,) common k-mers of both; some pairs occur twice."""
    # Pairs inside the largest group are not needed, so its members need no rows of their own.
    largest = np.bincount(labels).argmax() if len(labels) else 0
    asked = np.flatnonzero((labels != largest) | (np.bincount(labels)[labels] == 1))
    columns = prefixes.T.tocsr()
    work = prefixes[asked] @ np.diff(columns.indptr)
    done = np.cumsum(work)
    first = 0
    while first < len(asked):
        before = done[first - 1] if first else 0
        last = max(int(np.searchsorted(done, before + 5 * BATCH, "right")), first + 1)
        found = (prefixes[asked[first:last]] @ columns).tocoo()
        one, other, count = asked[first:last][found.row], found.col, found.data
        kept = (count >= np.maximum(least[one], least[other])) & (
            labels[one] != labels[other]
        )
        yield np.stack([one[kept], other[kept].astype(np.int64)], axis=1)
        first = last


def _linked(
    labels: Labels, pairs: Pairs, shared: csr_matrix, needed: npt.NDArray[np.int64]
) -> Labels:
    """Return the groups after linking the pairs with `needed` (N,) common k-mers; `labels` if none is new."""
    batch = max(BATCH // max(int(np.diff(shared.indptr).max(initial=1)), 1), 1)
    for first in range(0, len(pairs), batch):
        some = pairs[first : first + batch]
        some = some[labels[some[:, 0]] != labels[some[:, 1]]]
        one, other = some.T
        overlap = np.asarray(shared[one].multiply(shared[other]).sum(axis=1)).ravel()
        similar = some[overlap >= np.maximum(needed[one], needed[other])]
        if len(similar):
            shape = len(labels), len(labels)
            edges = csr_matrix(
                (np.ones(len(similar), np.int8), labels[similar].T), shape=shape
            )
            labels = connected_components(edges, directed=False)[1][labels].astype(
                np.int64
            )
    return labels
