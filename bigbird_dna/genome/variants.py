"""Variants against a reference: whether they can be applied to it, their normal form, their windows.

Two records that turn the reference into the same sequence have the same normal form, and so the
same windows, however they are padded or aligned.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import NamedTuple, Self

from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import ASSEMBLIES, Assembly, load_assembly, shown
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, clean, first_bad_letter, fraction_n

OFFSET_SPAN = 40
"""bp from the leftmost to the rightmost offset: a few tokens, so that their phases average out."""

_LOOK_BACK = 64  # bp fetched first where an allele is moved to the left; doubled while it moves
_BREAKEND = re.compile(r".*[\[\]].*|\.[^.]+|[^.]+\.")


class Note(StrEnum):
    """Why an alternative allele has no effect, or what is special about the effect it has.

    In the order in which they are looked for, with what each means; at most the last two go together.
    """

    meaning: str

    def __new__(cls, code: str, meaning: str) -> Self:
        """A member is its code, and knows its meaning."""
        note = str.__new__(cls, code)
        note._value_, note.meaning = code, meaning
        return note

    NO_ALT = "NO_ALT", "no alternative allele"
    SPANNING_DELETION = "SPANNING_DELETION", "allele * (lost by a deletion upstream)"
    BREAKEND = "BREAKEND", "breakend"
    SYMBOLIC = "SYMBOLIC", "symbolic allele"
    NOT_BASES = "NOT_BASES", "REF or ALT has letters that are not bases"
    CONTIG_UNKNOWN = "CONTIG_UNKNOWN", "the reference has no such contig"
    BEYOND_CONTIG = "BEYOND_CONTIG", "REF is not within the contig"
    REF_MISMATCH = "REF_MISMATCH", "REF is not what the reference has there"
    NO_CHANGE = "NO_CHANGE", "ALT equals REF"
    REF_UNKNOWN = "REF_UNKNOWN", "the reference has N or another IUPAC code at the changed bases"
    AMBIGUOUS = "AMBIGUOUS", "the changed bases have N or another IUPAC code"
    TOO_LONG = "TOO_LONG", "the changed bases don't fit the window at every offset"
    TOO_MANY_N = "TOO_MANY_N", "too large a share of N in a window, what lies beyond the contig included"
    CONTIG_EDGE = "CONTIG_EDGE", "scored or not: a window reaches beyond the contig and is filled up with N"


class Change(NamedTuple):
    """The bases `[start, start + len(ref))` of a contig are `ref`; the variant makes them `alt`."""

    contig: str
    start: int
    ref: str
    alt: str


class AlleleWindows(NamedTuple):
    """Sequences of both alleles on the forward strand, one each per offset."""

    ref: tuple[str, ...]
    alt: tuple[str, ...]
    reaches_beyond: bool  # the contig, for one of them at least

    @property
    def largest_n_fraction(self) -> float:
        """Of any of the windows."""
        return max(map(fraction_n, (*self.ref, *self.alt)))


def window_offsets(count: int, span: int = OFFSET_SPAN) -> tuple[int, ...]:
    """`count` distinct offsets in bp, evenly spread over `span` bp around 0, ascending."""
    if not 1 <= count <= span + 1:
        raise ValueError(f"{count} offsets: must be from 1 to {span + 1}")
    if count == 1:
        return (0,)
    return tuple(round(span * index / (count - 1) - span / 2) for index in range(count))


def find_change(contig: str | None, start: int, ref: str, alt: str, reference: Reference) -> Change | Note:
    """The normal form of an allele as a VCF has it, `start` counted from 0, or why there is none.

    Case doesn't count. REF must be what the reference has, wherever that isn't N or another IUPAC code; such
    positions may be padding, but not among the changed bases. `contig` is the reference's name, None if it
    has no such contig.
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
    change = _trimmed(Change(contig, start, ref, alt))
    first = change.start - start
    if "N" in found[first : first + len(change.ref)]:
        return Note.REF_UNKNOWN
    if "N" in change.ref + change.alt:
        return Note.AMBIGUOUS
    return _left_aligned(change, reference)


def allele_windows(
    change: Change, reference: Reference, size: int, offsets: Sequence[int]
) -> AlleleWindows | None:
    """Windows of `size` bp with either allele in place; None if the change doesn't fit them.

    Both alleles have the same `(size - longer allele) // 2 + offset` bases before them, and as many after
    them as fill the window. So the reference that has `alt` in place, with the opposite change, has the same
    windows the other way round. Beyond the contig there is N.
    """
    longer = max(len(change.ref), len(change.alt))
    lefts = [(size - longer) // 2 + offset for offset in offsets]
    if min(lefts) < 0 or max(lefts) + longer > size:
        return None
    before, end = max(lefts), change.start + len(change.ref)
    after = size - min(lefts) - min(len(change.ref), len(change.alt))
    left_side = reference.fetch(Interval(change.contig, change.start - before, change.start))
    right_side = reference.fetch(Interval(change.contig, end, end + after))
    ref, alt = (
        tuple(left_side[before - left :] + allele + right_side[: size - left - len(allele)] for left in lefts)
        for allele in (change.ref, change.alt)
    )
    beyond = change.start < before or end + after > reference.contigs[change.contig]
    return AlleleWindows(ref, alt, beyond)


def find_contigs(names: Iterable[str], reference: Reference) -> list[str]:
    """A reference's own names of contigs that are asked for, each once, by any names that are known.

    `DataError` names the first that it hasn't got.
    """
    find = contig_finder(reference.contigs, reference.names)
    found = {}
    for name in names:
        own = find(name)
        if own is None:
            raise DataError(f"{reference.path}: has no contig {name!r}; it has {shown(reference.contigs)}")
        found[own] = name
    return [*found]


def contig_finder(contigs: Mapping[str, int], names: Assembly | None) -> Callable[[str], str | None]:
    """A function that gives the reference's name of a contig under any name, or None.

    Names of the reference's alias file come before known assemblies. The assembly is found from the
    reference: it is one that knows a contig of it, with a length that is not below the reference's (a part
    from a contig's start is allowed), and if lengths are found exactly, one where they are. Where several
    assemblies are left, a name counts if they agree on it.
    """
    possible: list[Assembly] = []
    exact: list[Assembly] = []
    for assembly in map(load_assembly, ASSEMBLIES):
        lengths = assembly.lengths
        shared = [(contigs[name], lengths[name]) for name in contigs if name in lengths]
        if shared and all(here <= there for here, there in shared):
            possible.append(assembly)
            if any(here == there for here, there in shared):
                exact.append(assembly)

    @cache
    def find(name: str) -> str | None:
        own = names.match(name, contigs) if names is not None else None
        if own is not None or name in contigs:
            return own or name
        found = {assembly.match(name, contigs) for assembly in exact or possible}
        return found.pop() if len(found) == 1 else None

    return find


def _shape(alt: str) -> Note | None:
    """What an ALT is that is not a sequence of A C G T and IUPAC codes."""
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


def _trimmed(change: Change) -> Change:
    """Without the bases that both alleles end with, then without those that both begin with."""
    contig, start, ref, alt = change
    suffix = _shared(ref[::-1], alt[::-1])
    ref, alt = ref[: len(ref) - suffix], alt[: len(alt) - suffix]
    prefix = _shared(ref, alt)
    return Change(contig, start + prefix, ref[prefix:], alt[prefix:])


def _shared(one: str, other: str) -> int:
    """How many letters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _left_aligned(change: Change, reference: Reference) -> Change:
    """A trimmed insertion or deletion moved as far left as it makes the same sequence.

    A. Tan, G. Abecasis and H. Kang, Unified representation of genetic variants, Bioinformatics
    2015; here without the anchoring base, since an allele may be empty.
    """
    contig, start, ref, alt = change
    if ref and alt:
        return change
    moved = ref or alt
    size = len(moved)
    shift, reach = 0, _LOOK_BACK
    while shift < start:
        first = max(0, start - shift - reach)
        before = reference.fetch(Interval(contig, first, start - shift))
        # Each step takes the last base to the front, so that after k of them the last is number
        # -1 - k, counted round and round.
        steps = 0
        while steps < len(before) and before[-1 - steps] == moved[-1 - (shift + steps) % size]:
            steps += 1
        shift += steps
        if steps < len(before):
            break
        reach *= 2
    turn = shift % size
    moved = moved[size - turn :] + moved[: size - turn]
    return Change(contig, start - shift, moved if ref else "", moved if alt else "")
