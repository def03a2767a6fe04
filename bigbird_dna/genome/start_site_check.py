"""Check of the strands and positions of transcription start sites against their reference.

The bases around start sites on one strand are compared with the position weight matrix of those on the other,
in their order of transcription, also shifted by up to two bases and reversed. If the fit is better elsewhere
than at the listed positions, the positions on one of the strands are wrong.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    OPPOSITE,
    UNKNOWN,
    Locus,
    base_codes,
    inside,
    window_around,
)

UPSTREAM, DOWNSTREAM = 60, 40  # bp compared around a start site
SHIFTS = (-2, -1, 0, 1, 2)  # bp downstream
REACH = max(SHIFTS)
FEWEST = 40  # start sites per strand
_SMOOTHED = 11  # bp over which the composition around a position is averaged
_CERTAIN = 5.0  # standard errors of a difference
_LEAST_BITS = 0.05  # information that counts as promoter elements
_UPSTREAM_BITS = 0.5  # from here on, there are elements before the start sites

# Axes: N start sites, L = UPSTREAM + DOWNSTREAM positions.
Floats = NDArray[np.float64]
Codes = NDArray[np.uint8]


def check_start_sites(loci: Sequence[Locus], reference: Reference) -> list[str]:
    """Return what seems wrong with start sites, one sentence each; [] with fewer than `FEWEST` on a strand.

    A list whose positions on one strand are off by one, as in some releases of RegulonDB, is found.
    """
    edge = UPSTREAM + DOWNSTREAM + REACH
    usable = [
        locus
        for locus in loci
        if inside(window_around(locus, edge, edge), reference.contigs)
    ]
    strands = {
        strand: [locus for locus in usable if locus.strand == strand]
        for strand in ("+", "-")
    }
    if min(map(len, strands.values())) < FEWEST:
        return []

    listed = {name: _bases(own, reference, False) for name, own in strands.items()}
    reversed_ = {name: _bases(own, reference, True) for name, own in strands.items()}
    scores: dict[tuple[str, bool, int], Floats] = {}
    initiators: dict[tuple[str, int], float] = {}
    for strand, other in (("+", "-"), ("-", "+")):
        matrix = _log_odds(listed[other])
        for shift in SHIFTS:
            window = _window(listed[strand], shift)
            scores[strand, False, shift] = _fit(window, matrix)
            scores[strand, True, shift] = _fit(
                _window(reversed_[strand], shift), matrix
            )
            # C or T before the start site, and A or G at it, as most transcripts have.
            before, at = window[:, UPSTREAM - 1], window[:, UPSTREAM]
            is_initiator = np.isin(before, (1, 3)) & np.isin(at, (0, 2))
            initiators[strand, shift] = float(is_initiator.mean())

    # The strands read in the other direction, or moved apart.
    moves = {shift: {"+": (False, shift), "-": (False, -shift)} for shift in SHIFTS}
    moves[0] = {"+": (True, 0), "-": (True, 0)}
    best = _best_move(scores, moves)
    if best == 0:
        return ["both strands fit better on the opposite strand: one is read wrongly"]
    if best is not None:
        ahead, back = (
            ("downstream", "upstream") if best > 0 else ("upstream", "downstream")
        )
        plus, minus = initiators["+", 0], initiators["-", 0]
        return [
            f"the strands differ by {abs(best)} bp: to fit each other, start sites on - must move "
            f"{abs(best)} bp {back}, or those on + {abs(best)} bp {ahead}; {plus:.0%} of those on + and "
            f"{minus:.0%} on - begin with A or G after C or T: those on {'+' if plus < minus else '-'} are "
            "probably wrong"
        ]

    upstream, downstream = _information(np.concatenate([*listed.values()]))
    if upstream < _UPSTREAM_BITS and downstream > max(2 * upstream, _LEAST_BITS):
        return [
            f"{upstream:.2f} bits of sequence information before the start sites, {downstream:.2f} after "
            "them: strands may be swapped"
        ]
    shares = {
        shift: (initiators["+", shift] + initiators["-", shift]) / 2 for shift in SHIFTS
    }
    shift = max(shares, key=lambda one: shares[one])
    if shift:
        where = f"{abs(shift)} bp {'downstream' if shift > 0 else 'upstream'}"
        return [
            f"only {shares[0]:.0%} of the start sites begin with A or G after C or T, but {shares[shift]:.0%} "
            f"{where}: all may be off"
        ]
    return []


def _bases(loci: Sequence[Locus], reference: Reference, opposite: bool) -> Codes:
    """Return the bases (N, L + 2 REACH) around start sites, or around them on the opposite strand."""
    rows = []
    for locus in loci:
        strand = OPPOSITE[locus.strand] if opposite else locus.strand
        read = Locus(locus.contig, locus.position, strand, "")
        window = window_around(read, UPSTREAM + REACH, DOWNSTREAM + REACH)
        rows.append(base_codes(reference.fetch(window)))
    return np.array(rows)


def _window(bases: Codes, shift: int) -> Codes:
    """Return the bases (N, L) around positions that are `shift` bp downstream."""
    first = REACH + shift
    return bases[:, first : first + UPSTREAM + DOWNSTREAM]


def _frequencies(bases: Codes) -> Floats:
    """Return the frequencies (L, 4) of bases around start sites."""
    window = _window(bases, 0)
    counts = np.stack([(window == base).sum(0) for base in range(UNKNOWN)], 1) + 1.0
    return np.asarray(counts / counts.sum(1, keepdims=True))


def _log_odds(bases: Codes) -> Floats:
    """Return the log-odds (L, 4), in bits, of bases against the composition around each position."""
    frequencies = _frequencies(bases)
    kernel, ones = np.ones(_SMOOTHED), np.ones(len(frequencies))
    around = [
        np.convolve(column, kernel, "same") / np.convolve(ones, kernel, "same")
        for column in frequencies.T
    ]
    return np.asarray(np.log2(frequencies / np.stack(around, 1)))


def _information(bases: Codes) -> tuple[float, float]:
    """Return the information, in bits, of the bases 3 to 38 bp before and after start sites."""
    bits = (_frequencies(bases) * _log_odds(bases)).sum(1)
    bits -= 3 / (2 * math.log(2) * len(bases))  # bias of few start sites
    before = bits[UPSTREAM - 38 : UPSTREAM - 2].sum()
    after = bits[UPSTREAM + 3 : UPSTREAM + 39].sum()
    return float(before), float(after)


def _fit(window: Codes, matrix: Floats) -> Floats:
    """Return the score (N,), in bits, of the bases (N, L) of each start site."""
    values = matrix[np.arange(len(matrix)), window % UNKNOWN]
    return np.asarray(np.where(window < UNKNOWN, values, 0).sum(1))


def _best_move(
    scores: dict[tuple[str, bool, int], Floats],
    moves: dict[int, dict[str, tuple[bool, int]]],
) -> int | None:
    """Return the key of the move with the largest gain on both strands together; None: no certain gain."""
    best, largest = None, 0.0
    for key, of_strands in moves.items():
        gain = variance = 0.0
        for strand, (opposite, shift) in of_strands.items():
            gains = scores[strand, opposite, shift] - scores[strand, False, 0]
            gain += float(gains.mean())
            variance += float(gains.var(ddof=1)) / len(gains)
        if gain > max(_CERTAIN * math.sqrt(variance), largest):
            best, largest = key, gain
    return best
