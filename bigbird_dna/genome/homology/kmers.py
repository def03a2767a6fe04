"""k-mers of many sequences at once, a k-mer and its reverse complement as one, and minimizers among them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bigbird_dna.genome.sequence import UNKNOWN, base_codes

Codes = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]

LONGEST = 16
"""Of a k-mer, two bits a base."""


class Kmers(NamedTuple):
    """Those of sequences one after the other, one for each place of their text with an N between two."""

    codes: Codes  # the smaller one of both strands'
    turned: Flags  # whether that is the reverse complement's
    known: Flags  # without N, and of one sequence
    directed: Flags  # of these, those that aren't their own reverse complement
    rows: npt.NDArray[np.int64]  # which sequence


def kmers_of(sequences: Sequence[str], k: int) -> Kmers:
    """All k-mers of sequences of A C G T N, k at most 16."""
    letters = base_codes("N".join(sequences))
    count = max(len(letters) - k + 1, 0)
    forward, backward = _words(letters, k, count)
    unknown = np.concatenate([[0], np.cumsum(letters == UNKNOWN)])
    known = np.asarray(unknown[k : k + count] == unknown[:count])
    rows = np.repeat(np.arange(len(sequences)), [len(sequence) + 1 for sequence in sequences])[:count]
    codes, turned = np.minimum(forward, backward), backward < forward
    return Kmers(codes, turned, known, known & (forward != backward), rows)


def mixed(codes: Codes) -> Codes:
    """Codes in an order that has nothing to do with their bases: each has one number, and no two the same."""
    hashed = (codes ^ (codes >> np.uint32(15))) * np.uint32(0x2C1B3C6D)
    hashed = (hashed ^ (hashed >> np.uint32(12))) * np.uint32(0x297A2D39)
    return np.asarray(hashed ^ (hashed >> np.uint32(15)), np.uint32)


def minimizers(kmers: Kmers, width: int) -> Flags:
    """Which directed k-mers are the least by `mixed` of some `width` places in a row (Roberts et al. 2004).

    The same places are chosen on both strands. `width` is at most k, so that sequences don't mind their
    neighbours: no `width` places have k-mers of two.
    """
    if width == 1:
        return kmers.directed
    highest = np.uint32(0xFFFFFFFF)
    hashed = np.where(kmers.directed, mixed(kmers.codes), highest)
    edge = np.full(width - 1, highest)
    padded = np.concatenate([edge, hashed, edge])
    count = len(hashed) + width - 1
    least = padded[:count].copy()
    for offset in range(1, width):
        np.minimum(least, padded[offset : offset + count], out=least)
    chosen = np.zeros(len(hashed), np.bool_)
    for offset in range(width):
        chosen |= hashed == least[offset : offset + len(hashed)]
    return chosen & kmers.directed


def _words(letters: npt.NDArray[np.uint8], k: int, count: int) -> tuple[Codes, Codes]:
    """Each place's k letters, two bits each and N as A, and those of its reverse complement."""
    forward = (letters & 3).astype(np.uint32)
    backward = forward ^ np.uint32(3)
    words, length = (np.zeros(0, np.uint32), np.zeros(0, np.uint32)), 0
    width = 1
    while width <= k:  # words of twice the width, put together as the bits of k say
        if k & width:
            words = _joined(words, length, (forward, backward), width) if length else (forward, backward)
            length += width
        if 2 * width <= k:
            forward, backward = _joined((forward, backward), width, (forward, backward), width)
        width *= 2
    return words[0][:count], words[1][:count]


def _joined(left: tuple[Codes, Codes], a: int, right: tuple[Codes, Codes], b: int) -> tuple[Codes, Codes]:
    """Words of a + b letters from those of a letters and, `a` places on, those of b letters."""
    count = max(min(len(left[0]), len(right[0]) - a), 0)
    forward = (left[0][:count] << np.uint32(2 * b)) | right[0][a : a + count]
    backward = left[1][:count] | (right[1][a : a + count] << np.uint32(2 * a))
    return forward, backward
