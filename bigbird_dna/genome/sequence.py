"""Letters, intervals and windows of a sequence.

Lower case (soft masking) is read as upper case. IUPAC codes for several bases become N, and callers report
their number. All other letters, such as the U of RNA, the letters of proteins, gaps and digits, are errors,
because such a sequence is not plain DNA.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.errors import DataError

AMBIGUOUS = "RYSWKMBDHV"
LETTERS = "ACGTN"

_UPPER = (LETTERS + AMBIGUOUS).encode()
_ACCEPTED = _UPPER + _UPPER.lower()
_AMBIGUOUS = (AMBIGUOUS + AMBIGUOUS.lower()).encode()
_UNAMBIGUOUS = bytes(sorted(set(range(256)) - set(_AMBIGUOUS)))
_CLEAN = bytes.maketrans(_ACCEPTED, (LETTERS + "N" * len(AMBIGUOUS)).encode() * 2)
_COMPLEMENT = str.maketrans("ACGTNacgtn", "TGCANtgcan")

UNKNOWN = 4
"""Code of N; A, C, G and T have the codes 0 to 3."""
_CODES = np.full(256, UNKNOWN, np.uint8)
_CODES[np.frombuffer(b"ACGT", np.uint8)] = np.arange(UNKNOWN)


def base_codes(text: str) -> NDArray[np.uint8]:
    """Return the codes (L,) of a sequence; letters other than A, C, G and T are `UNKNOWN`."""
    return _CODES[np.frombuffer(text.encode("ascii"), np.uint8)]


def words_ending(codes: NDArray[np.integer], bases: int) -> NDArray[np.int64]:
    """The word of `bases` that ends at each place, (N,); unknown bases and places before the start are A."""
    known = np.where(codes < UNKNOWN, codes, 0).astype(np.int64)
    words = known.copy()
    for age in range(1, min(bases, len(known))):
        words[age:] += known[:-age] << 2 * age
    return words


def known_before(codes: NDArray[np.integer]) -> NDArray[np.int64]:
    """Number of consecutive known bases that end at each place, inclusive, (N,); 0 at an N."""
    places = np.arange(len(codes))
    unknown = np.where(codes < UNKNOWN, -1, places)
    return places - np.maximum.accumulate(unknown) if len(codes) else places


def turned_word(words: NDArray[np.int64], bases: int) -> NDArray[np.int64]:
    """Return the reverse complements of words of `bases` letters; the codes are the digits of a number."""
    found = np.zeros_like(words)
    for _ in range(bases):
        found = found * 4 + 3 - words % 4
        words = words // 4
    return found


def canonical_kmers(k: int) -> NDArray[np.intp]:
    """Return, for each k-mer (4^k,), the index of the pair that it forms with its reverse complement."""
    numbers = np.arange(4**k)
    return np.unique(np.minimum(numbers, turned_word(numbers, k)), return_inverse=True)[
        1
    ]


GAPS = 13
PAIRS = 2080  # canonical 6-mers
DYADS = GAPS * PAIRS
"""A spaced dyad is two trinucleotides with 0 to `GAPS` − 1 bases between them. A dyad and its reverse
complement have the same number: `PAIRS` · gap + that of the canonical 6-mer that the two form."""


def dyad_parts(numbers: NDArray[np.integer]) -> NDArray[np.intp]:
    """Return the gap and the numbers of both trinucleotides of dyads (…), (…, 3), on one of the strands."""
    words = np.unique(canonical_kmers(6), return_index=True)[1][numbers % PAIRS]
    return np.stack([numbers // PAIRS, words // 64, words % 64], axis=-1)


def first_bad_letter(raw: bytes) -> int | None:
    """Return the offset of the first byte that is not a DNA letter, or None."""
    bad = raw.translate(None, _ACCEPTED)
    return raw.index(bad[0]) if bad else None


def describe_bad_letter(letter: int) -> str:
    """Describe a byte that is not a DNA letter, and what it suggests."""
    text = repr(chr(letter)) if 32 <= letter < 127 else f"byte 0x{letter:02x}"
    if letter in b"Uu":
        return f"{text} is not a DNA letter (is this RNA?)"
    if letter in b"EFIJLOPQXZefijlopqxz*":
        return f"{text} is not a DNA letter (is this a protein?)"
    return f"{text} is not a DNA letter"


def clean_bytes(raw: bytes) -> bytes:
    """Convert to upper case and replace IUPAC codes by N; `raw` must contain no other letters."""
    return raw.translate(_CLEAN)


def count_ambiguous_bytes(raw: bytes) -> int:
    """Return the number of IUPAC codes for several bases in `raw`, without N."""
    return len(raw.translate(None, _UNAMBIGUOUS))


def clean(text: str, where: str) -> str:
    """Return `text` in the letters A C G T N, of the same length; see `check_letters`."""
    return clean_bytes(check_letters(text, where)).decode("ascii")


def check_letters(text: str, where: str) -> bytes:
    """Return the letters of a sequence.

    `DataError` names the sequence (`where`), the first invalid letter and its 1-based position.
    """
    # One byte per character, so that positions match; characters beyond ASCII become '?', an error too.
    raw = text.encode("ascii", errors="replace")
    bad = first_bad_letter(raw)
    if bad is not None:
        what = (
            describe_bad_letter(raw[bad])
            if text[bad].isascii()
            else f"{text[bad]!r} is not a DNA letter"
        )
        raise DataError(f"{where}: position {bad + 1}: {what}")

    return raw


def reverse_complement(sequence: str) -> str:
    """Return the reverse complement of a sequence of A C G T N; case is kept."""
    return sequence.translate(_COMPLEMENT)[::-1]


def substitutions(text: str, places: Iterable[int]) -> Iterator[tuple[int, int, str]]:
    """Yield each substitution of the bases at `places` of a text: place, number of the new base in A C G T,
    and the new text; none of an N."""
    for place in places:
        for number, base in enumerate("ACGT"):
            if text[place] not in ("N", base):
                yield place, number, f"{text[:place]}{base}{text[place + 1 :]}"


def fraction_n(sequence: str) -> float:
    """Return the fraction of N in a clean sequence; 0.0 for an empty one."""
    return sequence.count("N") / len(sequence) if sequence else 0.0


Strand = Literal["+", "-"]

STRANDS: tuple[Strand, ...] = ("+", "-")
OPPOSITE: dict[Strand, Strand] = {"+": "-", "-": "+"}


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """Bases `[start, end)` of a contig, 0-based on the forward strand.

    `start` may be negative and `end` beyond the contig, so that windows at a contig's edge are valid; bases
    outside the contig are N. `strand` is the direction in which the sequence is read.
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
        """Return true, also for an empty interval, because it still is a location."""
        return True

    def __str__(self) -> str:
        return f"{self.contig}:{self.start}-{self.end}({self.strand})"


@dataclass(frozen=True, slots=True, order=True)
class Locus:
    """One base of a contig, 0-based, with its strand and name, such as a TSS."""

    contig: str
    position: int
    strand: Strand
    name: str

    def __post_init__(self) -> None:
        if self.strand not in OPPOSITE:
            raise ValueError(f"strand must be '+' or '-', not {self.strand!r:.60}")
        if not 0 <= self.position < 2**31:
            raise ValueError(f"position {self.position} is not on a contig")


Positions = NDArray[np.int64]


class Intervals(NamedTuple):
    """Intervals `[starts[i], ends[i])` of one contig, 0-based; methods need the form of `union`."""

    starts: Positions
    ends: Positions

    @classmethod
    def union(cls, starts: Positions, ends: Positions) -> Self:
        """Return the union of intervals: sorted and disjoint; adjacent intervals are joined."""
        if not len(starts):
            return cls(starts, ends)
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(ends[order])
        first = np.concatenate(([True], starts[1:] > ends[:-1]))
        last = np.append(np.flatnonzero(first)[1:] - 1, len(starts) - 1)
        return cls(starts[first], ends[last])

    @classmethod
    def joined(cls, parts: Iterable[tuple[str, "Intervals"]]) -> dict[str, Self]:
        """Return the union of intervals per contig; a contig may occur several times, as with two aliases."""
        by_contig: defaultdict[str, list[Intervals]] = defaultdict(list)
        for contig, part in parts:
            by_contig[contig].append(part)
        unions = {}
        for contig, some in by_contig.items():
            starts = np.concatenate([part.starts for part in some])
            ends = np.concatenate([part.ends for part in some])
            unions[contig] = cls.union(starts, ends)
        return unions

    def overlap(self, starts: Positions, ends: Positions) -> NDArray[np.bool_]:
        """Return whether each `[starts[i], ends[i])` overlaps any of the intervals."""
        if not len(self.starts):
            return np.zeros(len(starts), np.bool_)
        # Of the intervals that start before the end of the query, the last one has the largest end.
        number = np.searchsorted(self.starts, ends, side="left") - 1
        return np.asarray((number >= 0) & (self.ends[number] > starts))

    def covered(self, starts: Positions, ends: Positions) -> Positions:
        """Return the number of bp of each `[starts[i], ends[i])` that are in the intervals."""
        # The number of covered bases before a position grows by one per base inside an interval only.
        sizes = self.ends - self.starts
        edges = np.append(0, np.stack(self, axis=1))
        totals = np.cumsum(sizes)
        before = np.append(0, np.stack([totals - sizes, totals], axis=1))
        at_ends = np.interp(ends, edges, before)
        return np.asarray(at_ends - np.interp(starts, edges, before), np.int64)

    def within(self, other: "Intervals") -> Self:
        """Return the bases that are also in another union of intervals."""
        parts = []
        for start, end in zip(other.starts.tolist(), other.ends.tolist(), strict=True):
            parts += self.clipped(start, end)
        return type(self)(*np.array(parts, np.int64).reshape(-1, 2).T)

    def clipped(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts in `[start, end)`."""
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = int(np.searchsorted(self.starts, end, side="left"))
        starts = np.maximum(self.starts[first:last], start).tolist()
        ends = np.minimum(self.ends[first:last], end).tolist()
        return list(zip(starts, ends, strict=True))


NO_INTERVALS = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def tss_position(start: int, end: int, strand: str, upstream: int) -> int:
    """Return the 0-based position of the TSS of a window, `upstream` bp from its 5' end."""
    return start + upstream if strand == "+" else end - 1 - upstream


def window_around(locus: Locus, upstream: int, downstream: int) -> Interval:
    """Return the window of `upstream` bp before a locus and `downstream` bp from the locus on, inclusive.

    Directions are relative to the locus's strand. In the window's own sequence (reverse complement on "-"),
    the locus is always base `upstream`, counted from 0. The window may extend beyond the contig.
    """
    position = locus.position
    if locus.strand == "+":
        return Interval(locus.contig, position - upstream, position + downstream, "+")
    return Interval(
        locus.contig, position - downstream + 1, position + upstream + 1, "-"
    )


def inside(interval: Interval, contigs: Mapping[str, int]) -> bool:
    """Return whether an interval is entirely on its contig; `contigs` maps names to lengths."""
    length = contigs.get(interval.contig)
    return length is not None and interval.start >= 0 and interval.end <= length


def window_start(starts: Positions, size: int, window: int) -> Positions:
    """Return the start of the model's window around each bin; window and bin have the same center base.

    It may be negative near a contig's start. DeepSEA: 200-bp bins, 1000-bp windows from 400 bp upstream.
    """
    return np.asarray(starts + size // 2 - window // 2)


def centered_tiles(length: int, size: int, stride: int) -> Iterator[int]:
    """Yield the starts of windows of `size` bp that cover a contig of `length` bp, in ascending order.

    The tiling is its own mirror image: windows are `stride` bp apart, counted from both ends, and may be
    closer at the center. A contig of at most `size` bp gets one centered window, whose start is zero or
    negative (rounded down).
    """
    if length < 1 or size < 1 or stride < 1:
        raise ValueError(
            f"length {length}, size {size} and stride {stride} must be positive"
        )

    span = length - size
    if span <= 0:
        yield span // 2
        return

    # The fewest steps from either end that leave at most one stride between the two innermost windows.
    steps = max(0, -((stride - span) // (2 * stride)))
    left = range(0, steps * stride + 1, stride)
    right = range(span - steps * stride, span + 1, stride)
    yield from left[:-1]
    yield from sorted({left[-1], right[0]})
    yield from right[1:]
