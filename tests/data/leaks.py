"""What crosses a split in a data set and shouldn't: pairs, windows that overlap, near-duplicates."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from bigbird_dna.baselines.kmers import base_codes, other_strand
from bigbird_dna.data.predictions import EXTRA_NEGATIVES

K = 16
SHARE = 0.5
"""Of a window's k-mers among those of another split's windows: from this on it is near a duplicate."""


def crossing_pairs(rows: pd.DataFrame) -> list[int]:
    """Pairs with windows in several splits."""
    splits = rows.groupby("pair")["split"].nunique()
    return [int(pair) for pair in splits.index[splits > 1]]


def crossing_overlaps(rows: pd.DataFrame) -> list[tuple[str, int]]:
    """Where windows (contig start end split) of different splits share a base."""
    found = []
    for contig, own in rows.groupby("contig"):
        ends: dict[str, int] = {}  # furthest, by split
        for start, end, split in own.sort_values("start")[["start", "end", "split"]].itertuples(index=False):
            if any(furthest > start for other, furthest in ends.items() if other != split):
                found.append((str(contig), int(start)))
            ends[split] = max(ends.get(split, 0), end)
    return found


def by_split(rows: pd.DataFrame, sequences: Sequence[str]) -> dict[str, list[str]]:
    """The sequences of each split, further negatives with the others of theirs."""
    return {
        split: [sequences[row] for row in own]
        for split, own in rows.groupby(whole_splits(rows)).indices.items()
    }


def whole_splits(rows: pd.DataFrame) -> pd.Series:
    """The split of each row; a further negative is in that of its promoter."""
    return rows["split"].replace({further: split for split, further in EXTRA_NEGATIVES.items()})


def crossing_copies(sequences: Mapping[str, Sequence[str]]) -> int:
    """Held-out windows that share `SHARE` of their k-mers with one training window, of either strand."""
    learnt = list(sequences["train"])
    words, known = _kmers(learnt)
    found = 0
    for split, other, number in near_duplicates(sequences):
        if other != "train":
            continue
        own, own_known = _kmers([sequences[split][number]])
        shared = (np.isin(words, own[own_known]) & known).sum(axis=1)
        # Only those that may: a training window of one repeated word has it many times.
        for row in np.flatnonzero(shared >= SHARE * own_known.sum()).tolist():
            if np.isin(own[own_known], words[row][known[row]]).mean() >= SHARE:
                found += 1
                break
    return found


def near_duplicates(sequences: Mapping[str, Sequence[str]]) -> list[tuple[str, str, int]]:
    """Split, other split and number of each window that shares `SHARE` of its k-mers with the other's.

    Sequences have one length. A k-mer and its reverse complement are one. The k-mers of the other split are
    taken together: a window that is near no window of it by this count is near none.
    """
    kmers = {split: _kmers(texts) for split, texts in sequences.items()}
    found = []
    for other, (words, known) in kmers.items():
        together = np.sort(words[known])
        for split, (own, own_known) in kmers.items():
            if split == other or not len(together):
                continue
            place = np.searchsorted(together, own).clip(max=len(together) - 1)
            shared = ((together[place] == own) & own_known).sum(axis=1)
            near = shared >= SHARE * own_known.sum(axis=1).clip(1)
            found += [(split, other, number) for number in np.flatnonzero(near).tolist()]
    return found


def _kmers(sequences: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The k-mer at each place of sequences of one length, (N, L - K + 1), and whether it has no N."""
    codes = base_codes(sequences)
    places = codes.shape[1] - K + 1
    known = np.ones((len(codes), places), bool)
    strands = []
    for strand in (codes, other_strand(codes)):
        words = np.zeros((len(codes), places), np.uint64)
        for offset in range(K):
            column = strand[:, offset : offset + places]
            words = words * np.uint64(4) + (column & 3)
        strands.append(words)
    for offset in range(K):
        known &= codes[:, offset : offset + places] < 4
    return np.minimum(strands[0], strands[1][:, ::-1]), known
