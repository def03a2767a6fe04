"""Negatives from upstream of promoters: the same neighbourhood, and no promoter.

A negative is as long as its promoter's window and is read in the same direction. It is the nearest window
upstream of that which shares no base with the window of any promoter, on either strand, nor with a negative
that was found before, and which lies in the promoter's split.
"""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from bigbird_dna.genome.intervals import Interval

FURTHEST = 100_000
"""bp between the windows of a promoter and its negative: beyond that it is no neighbourhood."""


class _Taken:
    """Stretches of contigs that don't overlap each other once they are put together."""

    def __init__(self, windows: Iterable[Interval]) -> None:
        self._starts: defaultdict[str, list[int]] = defaultdict(list)
        self._ends: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for window in sorted(windows):
            self.add(window)

    def add(self, window: Interval) -> None:
        """Take a window, which may overlap the stretch that begins before it, but none after it."""
        starts, ends = self._starts[window.contig], self._ends[window.contig]
        place = bisect_right(starts, window.start) - 1
        if place >= 0 and ends[starts[place]] >= window.start:
            ends[starts[place]] = max(ends[starts[place]], window.end)
        else:
            insort(starts, window.start)
            ends[window.start] = window.end

    def across(self, window: Interval) -> tuple[int, int] | None:
        """The first stretch, its start and end, that shares a base with a window."""
        starts, ends = self._starts[window.contig], self._ends[window.contig]
        place = bisect_right(starts, window.start) - 1
        for start in starts[max(place, 0) : place + 2]:
            if start < window.end and window.start < ends[start]:
                return start, ends[start]
        return None


def find_upstream(
    owners: Sequence[Interval], promoters: Iterable[Interval], usable: Callable[[Interval, Interval], bool]
) -> list[Interval | None]:
    """For each owner, a promoter's window, its negative; None where there is none within `FURTHEST`.

    Parameters
    ----------
    owners
        In the order in which they choose; one that stands there twice gets two.
    promoters
        The windows of all promoters, those of no data set too.
    usable
        Whether a negative (the second) may serve an owner (the first): by its contig, split and letters.
    """
    taken = _Taken(promoters)
    found: list[Interval | None] = []
    for owner in owners:
        negative = next((one for one in _free(owner, taken) if usable(owner, one)), None)
        if negative is not None:
            taken.add(negative)
        found.append(negative)
    return found


def _free(owner: Interval, taken: _Taken) -> Iterable[Interval]:
    """Windows upstream of an owner that share no base with what is taken, the nearest first."""
    size, window = len(owner), owner
    forward = owner.strand == "+"
    edge = owner.start if forward else owner.end
    while abs((window.end if forward else window.start) - edge) <= FURTHEST:
        start = window.start - size if forward else window.end
        window = Interval(owner.contig, start, start + size, owner.strand)
        while blocked := taken.across(window):
            start = blocked[0] - size if forward else blocked[1]
            window = Interval(owner.contig, start, start + size, owner.strand)
        if abs((window.end if forward else window.start) - edge) <= FURTHEST:
            yield window
