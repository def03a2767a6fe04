"""Normal forms of variants, and their sequence windows from a reference.

Two records that change the reference to the same sequence have the same normal form and the same windows,
independent of padding and alignment.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from os.path import commonprefix
from typing import NamedTuple, Self

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, clean, first_bad_letter, fraction_n

OFFSET_SPAN = 40
"""bp from the leftmost to the rightmost offset: a few tokens, so that tokenization phases average out."""

_LOOKED_AT = (
    64  # initial bp to fetch for an alignment; doubled until the allele stops moving
)
_BREAKEND = re.compile(r".*[\[\]].*|\.[^.]+|[^.]+\.")


class Note(StrEnum):
    """Reason why an alternative allele has no predicted effect, or a property of its effect.

    Members are in the order of the checks, with their meaning; only CONTIG_EDGE occurs together with others.
    """

    meaning: str

    def __new__(cls, code: str, meaning: str) -> Self:
        """Return the code as a string with its meaning as an attribute."""
        note = str.__new__(cls, code)
        note._value_, note.meaning = code, meaning
        return note

    NO_ALT = "NO_ALT", "no alternative allele"
    SPANNING_DELETION = (
        "SPANNING_DELETION",
        "allele * (overlapped by an upstream deletion)",
    )
    BREAKEND = "BREAKEND", "breakend"
    SYMBOLIC = "SYMBOLIC", "symbolic allele"
    NOT_BASES = "NOT_BASES", "REF or ALT contains letters that are not bases"
    CONTIG_UNKNOWN = "CONTIG_UNKNOWN", "the contig is not in the reference"
    BEYOND_CONTIG = "BEYOND_CONTIG", "REF is not within the contig"
    REF_MISMATCH = "REF_MISMATCH", "REF differs from the reference"
    NO_CHANGE = "NO_CHANGE", "ALT equals REF"
    REF_UNKNOWN = (
        "REF_UNKNOWN",
        "the reference has N or another IUPAC code at the changed bases",
    )
    AMBIGUOUS = "AMBIGUOUS", "the changed bases have N or another IUPAC code"
    TOO_LONG = (
        "TOO_LONG",
        "the changed bases do not fit into the window at every offset",
    )
    TOO_MANY_N = (
        "TOO_MANY_N",
        "too large a fraction of N in a window, including positions beyond the contig",
    )
    NO_SITE = "NO_SITE", "no bin with a start site is on the contig"
    CONTIG_EDGE = (
        "CONTIG_EDGE",
        "a window extends beyond the contig and is padded with N (scored or not)",
    )


class Change(NamedTuple):
    """A variant that replaces the bases `[start, start + len(ref))` of a contig, `ref`, by `alt`."""

    contig: str
    start: int
    ref: str
    alt: str


class AlleleWindows(NamedTuple):
    """Sequences of both alleles on the forward strand, one per offset each."""

    ref: tuple[str, ...]
    alt: tuple[str, ...]
    reaches_beyond: bool  # whether any window extends beyond the contig

    @property
    def largest_n_fraction(self) -> float:
        """The largest fraction of N in any of the windows."""
        return max(map(fraction_n, (*self.ref, *self.alt)))


def window_offsets(count: int) -> tuple[int, ...]:
    """Return `count` distinct offsets in bp, evenly spaced over `OFFSET_SPAN` bp around 0, ascending."""
    span = OFFSET_SPAN
    if not 1 <= count <= span + 1:
        raise ValueError(f"{count} offsets: the number must be from 1 to {span + 1}")
    if count == 1:
        return (0,)
    return tuple(round(span * index / (count - 1) - span / 2) for index in range(count))


def find_change(
    contig: str | None, start: int, ref: str, alt: str, reference: Reference
) -> Change | Note:
    """Return the normal form of a VCF allele (with 0-based `start`), or the reason why there is none.

    Case is ignored. REF must match the reference, except where the reference has N or another IUPAC code.
    Such positions may be padding, but must not be among the changed bases. `contig` is the reference's name,
    or None if the contig is not in the reference.
    """
    shape = _shape(alt)
    if shape is not None:
        return shape

    if first_bad_letter(ref.encode("ascii", "replace")) is not None:
        return Note.NOT_BASES

    if contig is None:
        return Note.CONTIG_UNKNOWN

    end = start + len(ref)
    if start < 0 or end > reference.contigs[contig]:
        return Note.BEYOND_CONTIG

    found = reference.fetch(Interval(contig, start, end))
    ref, alt = clean(ref, "REF"), clean(alt, "ALT")
    if any(a != b for a, b in zip(ref, found, strict=True) if b != "N"):
        return Note.REF_MISMATCH

    if ref == alt:
        return Note.NO_CHANGE

    # Remove the common suffix of both alleles, then their common prefix.
    suffix = len(commonprefix([ref[::-1], alt[::-1]]))  # noqa: RUF071 - for letters
    ref, alt = ref[: len(ref) - suffix], alt[: len(alt) - suffix]
    first = len(commonprefix([ref, alt]))  # noqa: RUF071
    change = Change(contig, start + first, ref[first:], alt[first:])
    if "N" in found[first : first + len(change.ref)]:
        return Note.REF_UNKNOWN

    if "N" in change.ref + change.alt:
        return Note.AMBIGUOUS

    return _left_aligned(change, reference)


def allele_windows(
    change: Change, reference: Reference, size: int, offsets: Sequence[int]
) -> AlleleWindows | None:
    """Return windows of `size` bp with each allele; None if the change does not fit into them.

    Both alleles have the same `(size - longer allele) // 2 + offset` bases on their left, and on their right
    as many as fill the window. A reference that contains `alt`, with the reverse change, therefore gives the
    same windows with the alleles exchanged. Positions beyond the contig are N.
    """
    longer = max(len(change.ref), len(change.alt))
    lefts = [(size - longer) // 2 + offset for offset in offsets]
    if min(lefts) < 0 or max(lefts) + longer > size:
        return None

    before, end = max(lefts), change.start + len(change.ref)
    after = size - min(lefts) - min(len(change.ref), len(change.alt))
    left_side = reference.fetch(
        Interval(change.contig, change.start - before, change.start)
    )
    right_side = reference.fetch(Interval(change.contig, end, end + after))
    ref, alt = (
        tuple(
            left_side[before - left :]
            + allele
            + right_side[: size - left - len(allele)]
            for left in lefts
        )
        for allele in (change.ref, change.alt)
    )
    beyond = change.start < before or end + after > reference.contigs[change.contig]
    return AlleleWindows(ref, alt, beyond)


def _shape(alt: str) -> Note | None:
    """Classify an ALT that is not a sequence of A C G T and IUPAC codes; None for a sequence."""
    if alt == ".":
        return Note.NO_ALT

    if alt == "*":
        return Note.SPANNING_DELETION

    if _BREAKEND.fullmatch(alt):
        return Note.BREAKEND

    if "<" in alt:
        return Note.SYMBOLIC

    if first_bad_letter(alt.encode("ascii", "replace")) is not None:
        return Note.NOT_BASES

    return None


def _left_aligned(change: Change, reference: Reference) -> Change:
    """Move a trimmed insertion or deletion as far left as the resulting sequence stays the same.

    Follows A. Tan, G. Abecasis and H. Kang, Unified representation of genetic variants, Bioinformatics 2015,
    but without the anchoring base, since an allele may be empty.
    """
    contig, start, ref, alt = change
    if ref and alt:
        return change

    moved = ref or alt
    size = len(moved)
    shift, reach = 0, _LOOKED_AT
    while shift < start:
        first = max(0, start - shift - reach)
        before = reference.fetch(Interval(contig, first, start - shift))
        # Each step moves the last base to the front: after k steps, the last base is number -1 - k (cyclic).
        steps = 0
        while (
            steps < len(before)
            and before[-1 - steps] == moved[-1 - (shift + steps) % size]
        ):
            steps += 1

        shift += steps
        if steps < len(before):
            break

        reach *= 2

    turn = shift % size
    moved = moved[size - turn :] + moved[: size - turn]
    return Change(contig, start - shift, moved if ref else "", moved if alt else "")


def right_shift(change: Change, reference: Reference) -> int:
    """Return how far a left-aligned insertion or deletion can move right without another result, in bp."""
    contig, start, ref, alt = change
    if ref and alt:
        return 0

    moved, end, length = ref or alt, start + len(ref), reference.contigs[contig]
    shift, reach = 0, _LOOKED_AT
    while end + shift < length:
        behind = reference.fetch(
            Interval(contig, end + shift, min(end + shift + reach, length))
        )
        turn = shift % len(moved)
        cycle = (moved[turn:] + moved[:turn]) * (1 + len(behind) // len(moved))
        steps = len(commonprefix([behind, cycle]))  # noqa: RUF071 - of letters
        shift += steps
        if steps < len(behind):
            break

        reach *= 2

    return shift
