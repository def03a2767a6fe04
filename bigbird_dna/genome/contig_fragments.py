"""Fragments of contigs, put at their own position: records named `chr20:1000001-2000000`, as samtools names
them.

N stands before a fragment and between two of a contig, so that all coordinates are the contig's own.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from bigbird_dna.console import log
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import Assembly
from bigbird_dna.genome.fasta import Chunk
from bigbird_dna.genome.fields import whole_number

_COUNT = r"[0-9]{1,20}|[0-9]{1,3}(?:,[0-9]{3}){1,6}"
_NAME = re.compile(rf"(?P<contig>.+):(?P<first>{_COUNT})-(?P<last>{_COUNT})")


class ContigFragment(NamedTuple):
    """Bases `[start, end)` of a contig, 0-based, that are a record of a file."""

    contig: str
    start: int
    end: int


def read_piece(name: str) -> ContigFragment | None:
    """The piece that a record's name tells, counted from 1 with both ends; None if it tells none."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    first, last = (whole_number(match[end].replace(",", "")) for end in ("first", "last"))
    if first is None or last is None or not 1 <= first <= last:
        return None
    return ContigFragment(match["contig"], first - 1, last)


class ContigFragments:
    """The records of a file, of which some may be pieces of contigs.

    `contigs` are those that were made of pieces, with the bp that the pieces have; it is complete once all
    chunks were placed.
    """

    def __init__(self, where: str, assembly: Assembly) -> None:
        self.where = where
        self.assembly = assembly
        self.contigs: dict[str, int] = {}

    def place(
        self, chunks: Iterable[Chunk], size: int, lengths: Callable[[], Mapping[str, int]]
    ) -> Iterator[Chunk]:
        """The chunks of records with every fragment at its position in its contig, whose chunks have `size`
        bp.

        A record is a fragment if the assembly doesn't know its name, and if it is as long as its name says;
        others stay as they are. The fragments of a contig have to follow each other in the file, in the
        contig's order, else `DataError`. `lengths` gives the length of each record in file order, and is only
        called if a name may be a fragment's.
        """
        plan: dict[str, ContigFragment] | None = None
        filling: _Filling | None = None
        for chunk in chunks:
            if plan is None and read_piece(chunk.contig) is not None:
                plan = self._plan(lengths())
            piece = (plan or {}).get(chunk.contig)
            if filling is not None and (piece is None or piece.contig != filling.contig):
                yield from filling.finish()
                filling = None
            if piece is None:
                yield chunk
                continue
            filling = filling or _Filling(piece.contig, size)
            if chunk.start == 0:
                yield from filling.skip_to(piece.start)
            yield from filling.add(chunk.sequence, chunk.ambiguous)
        if filling is not None:
            yield from filling.finish()

    def _plan(self, lengths: Mapping[str, int]) -> dict[str, ContigFragment]:
        """The records that are pieces, once their order was found to be right."""
        plan = {}
        for name, length in lengths.items():
            piece = None if self.assembly.knows(name) else read_piece(name)
            if piece is None:
                continue
            if piece.end - piece.start != length:
                log(
                    f"{self.where}: record {name!r} has {length:,} bp, not the {piece.end - piece.start:,} "
                    "that its name tells: it stays a contig of that name"
                )
            else:
                plan[name] = piece
        self._check_order(lengths, plan)
        for piece in plan.values():
            self.contigs[piece.contig] = self.contigs.get(piece.contig, 0) + piece.end - piece.start
        return plan

    def _check_order(self, names: Iterable[str], plan: Mapping[str, ContigFragment]) -> None:
        ended: dict[str, str] = {}  # name of the last record of a contig
        before: str | None = None
        for name in names:
            piece = plan.get(name)
            contig = name if piece is None else piece.contig
            earlier = ended.get(contig)
            if earlier is not None:
                if piece is None or earlier not in plan:
                    raise DataError(f"{self.where}: records {earlier!r} and {name!r} are of the same contig")
                last = plan[earlier]
                if piece.start < last.end and last.start < piece.end:
                    raise DataError(f"{self.where}: pieces {earlier!r} and {name!r} overlap")
                if earlier != before or piece.start < last.end:
                    raise DataError(
                        f"{self.where}: piece {name!r} comes after {earlier!r}: the pieces of a contig "
                        "have to follow each other, in the contig's order"
                    )
            ended[contig] = before = name


class _Filling:
    """The sequence of a contig that is made of pieces, given out in chunks of one size."""

    def __init__(self, contig: str, size: int) -> None:
        self.contig = contig
        self.size = size
        self.start = 0  # of what is held back
        self.held: list[str] = []
        self.count = 0  # bp held back
        self.ambiguous = 0

    def skip_to(self, position: int) -> Iterator[Chunk]:
        """N up to a position."""
        missing = position - self.start - self.count
        while missing:
            run = min(missing, self.size)
            yield from self.add("N" * run)
            missing -= run

    def add(self, sequence: str, ambiguous: int = 0) -> Iterator[Chunk]:
        """The next bases."""
        self.held.append(sequence)
        self.count += len(sequence)
        self.ambiguous += ambiguous
        # One base too many has to be at hand, to know that a chunk isn't the contig's last.
        while self.count > self.size:
            text = "".join(self.held)
            yield self._chunk(text[: self.size], last=False)
            self.held, self.count = [text[self.size :]], self.count - self.size

    def finish(self) -> Iterator[Chunk]:
        """What is left."""
        yield self._chunk("".join(self.held), last=True)

    def _chunk(self, sequence: str, *, last: bool) -> Chunk:
        chunk = Chunk(self.contig, self.start, sequence, last, self.ambiguous)
        self.start += len(sequence)
        self.ambiguous = 0
        return chunk
