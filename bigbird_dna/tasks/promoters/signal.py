"""Overlapping scored windows as one signal along the genome.

A promoter model says whether a window holds a promoter with its TSS at one place: `upstream` bp from the
window's start, in the direction of transcription. A score belongs to that place, not to the window's centre:
with the paper's 5,000 + 3,000 bp it lies 1 kb from it, to the right on "+" and to the left on "-".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, tee
from operator import attrgetter
from typing import NamedTuple

from bigbird_dna.genome.sequence import Strand
from bigbird_dna.tasks.promoters.scan import BOTH_STRANDS, ScoredWindow


class Span(NamedTuple):
    """A piece of a signal: `[start, end)` of a contig, 0-based, and its probability."""

    contig: str
    start: int
    end: int
    score: float


def signal_spans(
    windows: Iterable[ScoredWindow],
    contigs: Mapping[str, int],
    *,
    upstream: int,
    downstream: int,
    stride: int,
    strands: Sequence[Strand] = BOTH_STRANDS,
) -> Iterator[Span]:
    """Turn scored windows into spans that don't overlap, in the windows' order of contigs.

    On each strand, a window's span is `stride` wide around its TSS position: it reaches half-way to the TSS
    positions of the neighbouring windows (which are nearer in the middle of a record, where the tilings from
    both ends meet). Where both strands have a span, the larger score counts, and neighbours of the same score
    become one. The span of a record shorter than the window is the whole record. Windows without a score
    have none.

    Parameters
    ----------
    windows
        Rows of one contig together, ascending by start, a row for each of `strands`.
    contigs
        Lengths in bp. Bounds between two bases are rounded away from a record's middle, so that the reverse
        complement of a record has the mirrored signal (to 1 bp where a bound is the very middle).
    """
    centre = {"+": 2 * upstream + 1, "-": 2 * downstream - 1}
    for contig, rows in groupby(windows, key=attrgetter("contig")):
        length = contigs[contig]
        # The strands advance together up to |upstream − downstream| bp, which is all that tee holds.
        pieces = [
            _strand_pieces(_positions(copy, strand, centre[strand]), length, stride)
            for strand, copy in zip(strands, tee(rows, len(strands)), strict=True)
        ]
        yield from _joined(_larger(contig, pieces))


class _Position(NamedTuple):
    """Twice the middle of a TSS base, and the score of its window; the middle is None for a short record."""

    twice: int | None
    score: float | None


def _positions(rows: Iterable[ScoredWindow], strand: Strand, twice: int) -> Iterator[_Position]:
    for row in rows:
        if row.strand == strand:
            yield _Position(None if row.is_short else 2 * row.start + twice, row.score)


class _Piece(NamedTuple):
    """A bin of one strand, which has no score where the window has none."""

    start: int
    end: int
    score: float | None


def _strand_pieces(positions: Iterator[_Position], length: int, stride: int) -> Iterator[_Piece]:
    before: int | None = None
    here = next(positions, None)
    while here is not None:
        after = next(positions, None)
        if here.twice is None:
            yield _Piece(0, length, here.score)
        else:
            left = here.twice - 2 * stride if before is None else before
            right = here.twice + 2 * stride if after is None or after.twice is None else after.twice
            start, end = _bound(left + here.twice, length), _bound(here.twice + right, length)
            if start < end:
                yield _Piece(start, end, here.score)
        before, here = here.twice, after


def _bound(quadruple: int, length: int) -> int:
    """A bound, given as four times its position, as a whole number within `[0, length]`."""
    outward = quadruple // 4 if quadruple <= 2 * length else -(-quadruple // 4)
    return min(max(outward, 0), length)


def _larger(contig: str, strands: Sequence[Iterator[_Piece]]) -> Iterator[Span]:
    """The larger score wherever at least one strand has a piece with a score."""
    heads = [next(pieces, None) for pieces in strands]
    position = 0
    while waiting := [head for head in heads if head is not None]:
        position = max(position, min(head.start for head in waiting))
        covering = [head for head in waiting if head.start <= position]
        ahead = [head.start for head in waiting if head.start > position]
        stop = min([head.end for head in covering] + ahead)
        scores = [head.score for head in covering if head.score is not None]
        if scores:
            yield Span(contig, position, stop, max(scores))
        position = stop
        heads = [
            next(pieces, None) if head is not None and head.end <= stop else head
            for head, pieces in zip(heads, strands, strict=True)
        ]


def _joined(spans: Iterable[Span]) -> Iterator[Span]:
    """Spans of one contig, with those that touch and have the same score as one."""
    last: Span | None = None
    for piece in spans:
        if last is not None and last.end == piece.start and last.score == piece.score:
            last = last._replace(end=piece.end)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last
