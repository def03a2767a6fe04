"""Calls of promoters along a genome: local maxima of scores, and their matches with annotated start sites.

A window's score belongs to one position, that of its transcription start site (TSS). On each strand, the
window with the highest score is a call and silences the windows whose positions are near (non-maximum
suppression); the next call is the highest score that is left. Equal scores are taken in the direction of
transcription, so that the calls of a reverse complement are the mirrored calls.

From the highest score down, a call is correct if within a distance there is a TSS of its strand that no
better call took. Whether it is correct does not depend on calls with lower scores.
"""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import find_peaks

from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.metrics.auroc import Floats
from bigbird_dna.metrics.resampling import BLOCK_BASES

Integers = NDArray[np.int64]
Track = tuple[str, str]  # a contig and a strand
DISTANCES = (10, 50, 100, 500)
"""Distances in bp within which a call is correct, in reports."""
_FURTHEST = 1 << 22  # more blocks than a contig has
_WINDOWS_AT_ONCE = 1 << 19

# Axes: C calls of all tracks, from the highest score to the lowest.


class Points(NamedTuple):
    """TSS positions of one track and their scores: of windows by position, of calls by score."""

    positions: Integers
    scores: Floats


class Curve(NamedTuple):
    """At each distinct score of calls, from the highest down: numbers of calls and of correct ones."""

    calls: Integers
    correct: Integers
    precision: Floats
    recall: Floats

    @property
    def average_precision(self) -> float:
        """Precision summed over recall as a step function; a TSS that no call finds adds nothing."""
        return float((self.precision * np.diff(self.recall, prepend=0)).sum())


class MatchedCalls(NamedTuple):
    """Calls of all tracks from the highest score down, (C,) each, and the TSSs that they could take."""

    scores: Floats
    gaps: Integers  # bp to the TSS that the call takes; -1: none
    blocks: Integers  # ids of the blocks of the genome
    site_blocks: Integers  # of all TSSs, (sites,)
    others: NDArray[np.bool_] = np.zeros(0, bool)  # calls near other TSSs only, if any

    @property
    def curve(self) -> Curve:
        """Precision and recall of calls; equal scores are one step."""
        last = np.append(self.scores[1:] != self.scores[:-1], True)
        calls = np.flatnonzero(last) + 1
        correct = np.cumsum(self.gaps >= 0, dtype=np.int64)[last]
        recall = correct / len(self.site_blocks)
        return Curve(calls, correct, correct / calls, recall)


class Scan(NamedTuple):
    """Scored windows of a table by track; windows without a score are left out."""

    windows: Mapping[Track, Points]
    stride: int  # usual distance of windows in bp

    @property
    def megabases(self) -> float:
        """Length of the scanned sequence; both strands count once."""
        strands = len({strand for _, strand in self.windows})
        windows = sum(len(points.scores) for points in self.windows.values())
        return windows * self.stride / strands / 1e6


def find_calls(windows: Points, suppress: int, strand: str = "+") -> Points:
    """Return calls: the highest score, which silences what is within `suppress` bp; then the next.

    Positions of windows ascend. Of equal scores, the first in the direction of transcription comes first.
    """
    positions, scores = windows
    if not len(positions):
        return windows

    direction = 1 if strand == "+" else -1
    order = np.argsort(-scores[::direction], kind="stable")
    if strand == "-":
        order = len(scores) - 1 - order

    ranks = np.empty(len(scores))
    ranks[order] = np.arange(len(scores), 0, -1)
    # To save memory, tracks are cut at windows that are the highest within `suppress` bp. Each is a call, and
    # what is before it does not affect what is after it.
    cuts = [0, len(scores)]
    for index in range(_WINDOWS_AT_ONCE, len(scores), _WINDOWS_AT_ONCE):
        highest = -1
        while highest != index:
            highest, near = index, positions[index] + [-suppress, suppress + 1]
            left, right = np.searchsorted(positions, near)
            index = left + int(ranks[left:right].argmax())

        cuts.append(index)

    called = [np.zeros(0)]
    for first, last in pairwise(np.unique(cuts)):
        part = slice(first, last + 1)
        # SciPy selects peaks by the same rule, in compiled code. Every window is a peak of a signal in which
        # ranks alternate with zeros.
        gaps = np.minimum(np.diff(positions[part]), suppress + 1)
        places = 1 + 2 * np.append(0, np.cumsum(gaps))
        signal = np.zeros(places[-1] + 2)
        np.maximum.at(signal, places, ranks[part])
        called.append(signal[find_peaks(signal, distance=2 * (suppress + 1))[0]])

    chosen = order[
        len(scores) - np.unique(np.concatenate(called))[::-1].astype(np.int64)
    ]
    return Points(positions[chosen], scores[chosen])


def find_track_calls(scan: Scan, suppress: int) -> dict[Track, Points]:
    """Return the calls of each track of a scan."""
    return {
        track: find_calls(windows, suppress, track[1])
        for track, windows in scan.windows.items()
    }


def match_calls(calls: Integers, sites: Integers, distance: int) -> Integers:
    """Return the index of the TSS that each call, in the order given, takes; -1: none.

    A call takes the nearest TSS within `distance` bp that none before it took (the first of two as near).
    `sites` ascend. The first calls take the same TSSs without the others.
    """
    free, taken = np.ones(len(sites), bool), np.full(len(calls), -1, np.int64)
    starts = np.searchsorted(sites, calls - distance, "left")
    ends = np.searchsorted(sites, calls + distance, "right")
    for number in np.flatnonzero(starts < ends):
        near = np.flatnonzero(free[starts[number] : ends[number]]) + starts[number]
        if len(near):
            taken[number] = near[abs(sites[near] - calls[number]).argmin()]
            free[taken[number]] = False

    return taken


def match_tracks(
    calls: Mapping[Track, Points],
    sites: Mapping[Track, Integers],
    distance: int,
    others: Mapping[Track, Integers] | None = None,
) -> MatchedCalls:
    """Return the calls of all tracks with the TSSs that they take within `distance` bp.

    Calls that are not within this distance of any of them may take `others`.
    """
    contigs = sorted({contig for contig, _ in calls})
    rows = []
    for track, (positions, scores) in calls.items():
        tss = sites[track]
        taken = match_calls(positions, tss, distance)
        gaps = np.full(len(taken), -1, np.int64)
        correct = taken >= 0
        gaps[correct] = abs(positions[correct] - tss[taken[correct]])
        has_other = np.zeros(len(taken), bool)
        if others is not None:
            first = np.searchsorted(tss, positions - distance, "left")
            far = first == np.searchsorted(tss, positions + distance, "right")
            by_others = match_calls(positions[far], others[track], distance)
            has_other[far] = by_others >= 0

        first_block = contigs.index(track[0]) * _FURTHEST
        blocks = first_block + positions // BLOCK_BASES
        site_blocks = first_block + tss // BLOCK_BASES
        rows.append((scores, gaps, blocks, has_other, site_blocks))

    scores, gaps, blocks, has_other, site_blocks = map(
        np.concatenate, zip(*rows, strict=True)
    )
    order = np.argsort(-scores, kind="stable")
    return MatchedCalls(
        scores[order], gaps[order], blocks[order], site_blocks, has_other[order]
    )


def sites_of(promoters: Path, scan: Scan) -> dict[Track, Integers]:
    """Return the annotated TSSs of each track, ascending, that are within a stride of a scored window."""
    annotated: dict[Track, set[int]] = {track: set() for track in scan.windows}
    for locus in read_loci(promoters):
        annotated.get((locus.contig, locus.strand), set()).add(locus.position)

    sites = {}
    for track, positions in annotated.items():
        tss = np.array(sorted(positions), np.int64)
        windows = scan.windows[track].positions
        first = np.searchsorted(windows, tss - scan.stride, "left")
        last = np.searchsorted(windows, tss + scan.stride, "left")
        sites[track] = tss[first < last]

    return sites
