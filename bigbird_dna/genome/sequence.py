"""Letters, intervals and windows of a sequence.

Lower case (soft masking) is read as upper case. IUPAC codes for several bases become N, and callers report
how many there were. Everything else, such as the U of RNA, the letters of proteins, gaps and digits, is an
error: a sequence with them is not what its user takes it for.
"""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError

MOST_CONTIGS = 1_000_000
"""Of a file of intervals: what memory has room for."""

AMBIGUOUS = "RYSWKMBDHV"
LETTERS = "ACGTN"

_UPPER = (LETTERS + AMBIGUOUS).encode()
_ACCEPTED = _UPPER + _UPPER.lower()
_AMBIGUOUS = (AMBIGUOUS + AMBIGUOUS.lower()).encode()
_UNAMBIGUOUS = bytes(sorted(set(range(256)) - set(_AMBIGUOUS)))
_CLEAN = bytes.maketrans(_ACCEPTED, (LETTERS + "N" * len(AMBIGUOUS)).encode() * 2)
_COMPLEMENT = str.maketrans("ACGTNacgtn", "TGCANtgcan")

UNKNOWN = 4
"""The code of an N; those of A, C, G and T are 0 to 3."""
_CODES = np.full(256, UNKNOWN, np.uint8)
_CODES[np.frombuffer(b"ACGT", np.uint8)] = np.arange(UNKNOWN)


def base_codes(text: str) -> NDArray[np.uint8]:
    """The codes (L,) of a sequence; whatever isn't A, C, G or T is `UNKNOWN`."""
    return _CODES[np.frombuffer(text.encode("ascii"), np.uint8)]


def first_bad_letter(raw: bytes) -> int | None:
    """Offset of the first byte that is not a DNA letter; `None` if all are."""
    bad = raw.translate(None, _ACCEPTED)
    return raw.index(bad[0]) if bad else None


def describe_bad_letter(letter: int) -> str:
    """Say what a byte that is not a DNA letter is, and what it hints at."""
    text = repr(chr(letter)) if 32 <= letter < 127 else f"byte 0x{letter:02x}"
    if letter in b"Uu":
        return f"{text} is not a DNA letter (is this RNA?)"
    if letter in b"EFIJLOPQXZefijlopqxz*":
        return f"{text} is not a DNA letter (is this a protein?)"
    return f"{text} is not a DNA letter"


def clean_bytes(raw: bytes) -> bytes:
    """Upper-case `raw` and turn IUPAC codes into N; `raw` has been found free of other letters."""
    return raw.translate(_CLEAN)


def count_ambiguous_bytes(raw: bytes) -> int:
    """How many letters of `raw` are IUPAC codes for several bases, N not counted."""
    return len(raw.translate(None, _UNAMBIGUOUS))


def clean(text: str, where: str) -> str:
    """Return `text` in the letters A C G T N, of the same length.

    `DataError`, which calls the sequence `where`, has a letter that is none and its position from 1 on.
    """
    # One byte a character, so that positions hold; characters beyond ASCII become '?', an error
    # too.
    raw = text.encode("ascii", errors="replace")
    bad = first_bad_letter(raw)
    if bad is not None:
        what = describe_bad_letter(raw[bad]) if text[bad].isascii() else f"{text[bad]!r} is not a DNA letter"
        raise DataError(f"{where}: position {bad + 1}: {what}")
    return clean_bytes(raw).decode("ascii")


def reverse_complement(sequence: str) -> str:
    """The other strand of a sequence of A C G T N, read in its own direction; case is kept."""
    return sequence.translate(_COMPLEMENT)[::-1]


def fraction_n(sequence: str) -> float:
    """Share of N in a clean sequence; 0.0 for an empty one."""
    return sequence.count("N") / len(sequence) if sequence else 0.0


Strand = Literal["+", "-"]

OPPOSITE: dict[Strand, Strand] = {"+": "-", "-": "+"}


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """Bases `[start, end)` of a contig, 0-based on the forward strand.

    `start` may be negative and `end` beyond the contig: a window at a contig's edge is still a
    window, and what lies outside reads as N. `strand` says in which direction the sequence is read.
    """

    contig: str
    start: int
    end: int
    strand: Strand = "+"

    def __post_init__(self) -> None:
        if self.start > self.end:
            raise ValueError(f"interval {self} ends before it starts")
        if self.strand not in OPPOSITE:
            raise ValueError(f"strand must be '+' or '-', not {self.strand!r}")

    def __len__(self) -> int:
        return self.end - self.start

    def __bool__(self) -> bool:
        """Always true: an interval of no bases is still a place."""
        return True

    def __str__(self) -> str:
        return f"{self.contig}:{self.start}-{self.end}({self.strand})"


@dataclass(frozen=True, slots=True, order=True)
class Locus:
    """One base of a contig, 0-based, with the strand it is read on and a name, such as a TSS."""

    contig: str
    position: int
    strand: Strand
    name: str

    def __post_init__(self) -> None:
        if self.strand not in OPPOSITE:
            raise ValueError(f"strand must be '+' or '-', not {self.strand!r}")


Positions = NDArray[np.int64]


class Intervals(NamedTuple):
    """Intervals `[starts[i], ends[i])` of one contig, 0-based; most methods want them as from `union`."""

    starts: Positions
    ends: Positions

    @classmethod
    def collect(cls, path: Path, rows: Iterable[tuple[int, str, int, int]], most: int) -> dict[str, Self]:
        """Those of a file by contig, from line, contig, start and end; more than `most` are a `DataError`."""
        found: defaultdict[str, tuple[array[int], array[int]]] = defaultdict(lambda: (array("q"), array("q")))
        for count, (line, contig, start, end) in enumerate(rows, start=1):
            starts, ends = found[contig]
            starts.append(start)
            ends.append(end)
            if count > most or len(found) > MOST_CONTIGS:
                what = f"{most:,} intervals" if count > most else f"{MOST_CONTIGS:,} contigs"
                raise DataError(f"{path}: line {line}: more than {what}")
        return {
            contig: cls(*(np.frombuffer(one, np.int64) for one in both)) for contig, both in found.items()
        }

    @classmethod
    def union(cls, starts: Positions, ends: Positions) -> Self:
        """The union of some intervals: sorted, disjoint, those that touch joined."""
        if not len(starts):
            return cls(starts, ends)
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(ends[order])
        first = np.concatenate(([True], starts[1:] > ends[:-1]))
        last = np.append(np.flatnonzero(first)[1:] - 1, len(starts) - 1)
        return cls(starts[first], ends[last])

    @classmethod
    def joined(cls, parts: Iterable[tuple[str, "Intervals"]]) -> dict[str, Self]:
        """The union of those of each contig, which may come several times, as under two names in a file."""
        found: defaultdict[str, list[Intervals]] = defaultdict(list)
        for contig, part in parts:
            found[contig].append(part)
        return {c: cls.union(*map(np.concatenate, zip(*some, strict=True))) for c, some in found.items()}

    def overlap(self, starts: Positions, ends: Positions) -> NDArray[np.bool_]:
        """Whether each `[starts[i], ends[i])` shares a base with them."""
        if not len(self.starts):
            return np.zeros(len(starts), np.bool_)
        # The last interval that starts before the other one's end reaches furthest of all such.
        number = np.searchsorted(self.starts, ends, side="left") - 1
        return np.asarray((number >= 0) & (self.ends[number] > starts))

    def hold(self, starts: Positions, ends: Positions) -> NDArray[np.bool_]:
        """Whether each `[starts[i], ends[i])` lies wholly in one of them."""
        number = np.searchsorted(self.starts, starts, side="right") - 1
        return np.asarray((number >= 0) & (self.ends[number] >= ends))

    def covered(self, starts: Positions, ends: Positions) -> Positions:
        """How many bp of each `[starts[i], ends[i])` lie in them."""
        # The bases covered before a position grow by one a base inside an interval, and not between two.
        edges = np.concatenate(([0], np.stack(self, axis=1).ravel()))
        sums = np.repeat(np.concatenate(([0], np.cumsum(self.ends - self.starts))), 2)[:-1]
        return np.asarray(np.interp(ends, edges, sums) - np.interp(starts, edges, sums), np.int64)

    @property
    def bases(self) -> int:
        """How many positions are in them."""
        return int((self.ends - self.starts).sum())

    def draw(self, count: int, rng: np.random.Generator) -> Positions:
        """`count` of their positions, ascending, each at most once; all of them where there are no more."""
        sums = np.cumsum(self.ends - self.starts)
        ranks = np.sort(rng.choice(self.bases, min(count, self.bases), replace=False))
        runs = np.searchsorted(sums, ranks, side="right")
        return np.asarray(self.ends[runs] - (sums[runs] - ranks), np.int64)

    def inside(self, start: int, end: int) -> Self:
        """Their parts in `[start, end)`, counted from its start."""
        found = np.array([*self.clipped(start, end)], np.int64).reshape(-1, 2)
        return type(self)(*(found.T - start))

    def clipped(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Their parts in `[start, end)`."""
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = int(np.searchsorted(self.starts, end, side="left"))
        for left, right in zip(self.starts[first:last].tolist(), self.ends[first:last].tolist(), strict=True):
            yield max(left, start), min(right, end)


NO_INTERVALS = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def unknown_runs(sequence: str) -> Intervals:
    """The runs of N of a sequence."""
    unknown = np.frombuffer(sequence.encode(), np.uint8) == ord("N")
    edges = np.flatnonzero(np.diff(np.concatenate([[False], unknown, [False]])))
    return Intervals(edges[::2], edges[1::2])


def whole_contigs(lengths: Mapping[str, int]) -> list[Interval]:
    """Contigs, name → bp, each as one segment from end to end."""
    return [Interval(contig, 0, length) for contig, length in lengths.items()]


def window_around(locus: Locus, upstream: int, downstream: int) -> Interval:
    """The window of `upstream` bp before a locus and `downstream` bp from it on, with it.

    Directions are those of the locus's strand, so that in the window's own sequence (reverse
    complement on "-") the locus is always base number `upstream`, counted from 0. The window may
    reach beyond the contig.
    """
    position = locus.position
    if locus.strand == "+":
        return Interval(locus.contig, position - upstream, position + downstream, "+")
    return Interval(locus.contig, position - downstream + 1, position + upstream + 1, "-")


def inside(interval: Interval, contigs: Mapping[str, int]) -> bool:
    """Whether an interval lies wholly on its contig; `contigs` maps names to lengths."""
    length = contigs.get(interval.contig)
    return length is not None and interval.start >= 0 and interval.end <= length


def centred_tiles(length: int, size: int, stride: int) -> Iterator[int]:
    """Starts of windows of `size` bp that cover a contig of `length` bp, in ascending order.

    The tiling is its own mirror image: windows stand `stride` bp apart, the left ones from the left end on
    and the right ones from the right end, and the gaps where they meet may be smaller. A contig no longer
    than `size` gets one centred window, whose start is negative (rounded down) or zero.
    """
    for some in _tiles(length, size, stride):
        yield from some


def count_tiles(length: int, size: int, stride: int, below: int | None = None) -> int:
    """How many windows `centred_tiles` gives, or how many of them start before `below`."""
    stop = length if below is None else below
    return sum(bisect_left(some, stop) for some in _tiles(length, size, stride))


def _tiles(length: int, size: int, stride: int) -> tuple[Sequence[int], ...]:
    """The starts of `centred_tiles`: those of the left, of the middle, and of the right."""
    if length < 1 or size < 1 or stride < 1:
        raise ValueError(f"length {length}, size {size} and stride {stride} must be positive")
    span = length - size
    if span <= 0:
        return ((span // 2,),)
    # The fewest steps from either end that leave no more than a stride between the two innermost
    # windows.
    steps = max(0, -((stride - span) // (2 * stride)))
    left = range(0, steps * stride + 1, stride)
    right = range(span - steps * stride, span + 1, stride)
    return left[:-1], sorted({left[-1], right[0]}), right[1:]
