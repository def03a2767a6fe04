"""Fragments of contigs, put at their own position: records named `chr20:1000001-2000000`, as samtools names
them.

N stands before a fragment and between two of a contig, so that all coordinates are the contig's own.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from bigbird_dna.console import log
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import Assembly
from bigbird_dna.genome.fasta import Chunk, ChunkBuffer
from bigbird_dna.genome.fields import whole_number
from bigbird_dna.genome.sequence import Interval

_COUNT = r"[0-9]{1,20}|[0-9]{1,3}(?:,[0-9]{3}){1,6}"
_NAME = re.compile(rf"(?P<contig>.+):(?P<first>{_COUNT})-(?P<last>{_COUNT})")


def parse_fragment(name: str) -> Interval | None:
    """The fragment that a record's name tells, counted from 1 with both ends; None if it tells none."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    first, last = (whole_number(match[end].replace(",", "")) for end in ("first", "last"))
    if first is None or last is None or not 1 <= first <= last:
        return None
    return Interval(match["contig"], first - 1, last)


class ContigFragments:
    """The records of a file, of which some may be fragments of contigs.

    `contigs` are those made of fragments, with the bp that these have; it is complete once all chunks
    were placed.
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

        A record is a fragment if the assembly doesn't know its name, and if it is as long as its name says.
        The fragments of a contig have to follow each other in the file, in the contig's order, else
        `DataError`. `lengths` gives the length of each record in file order, and is only called if a name may
        be a fragment's.
        """
        plan: dict[str, Interval] | None = None
        filling: ChunkBuffer | None = None
        for chunk in chunks:
            if plan is None and parse_fragment(chunk.contig) is not None:
                plan = self._plan(lengths())
            fragment = (plan or {}).get(chunk.contig)
            if filling is not None and (fragment is None or fragment.contig != filling.contig):
                yield from filling.finish()
                filling = None
            if fragment is None:
                yield chunk
                continue
            filling = filling or ChunkBuffer(fragment.contig, size)
            if chunk.start == 0:
                while missing := fragment.start - filling.start - filling.count:
                    yield from filling.add("N" * min(missing, size))
            yield from filling.add(chunk.sequence, chunk.ambiguous)
        if filling is not None:
            yield from filling.finish()

    def _plan(self, lengths: Mapping[str, int]) -> dict[str, Interval]:
        """The records that are fragments, once their order was found to be right."""
        plan = {}
        for name, length in lengths.items():
            fragment = None if self.assembly.knows(name) else parse_fragment(name)
            if fragment is None:
                continue
            if len(fragment) != length:
                log(
                    f"{self.where}: record {name!r} has {length:,} bp, not the {len(fragment):,} "
                    "that its name tells: it stays a contig of that name"
                )
            else:
                plan[name] = fragment
        self._check_order(lengths, plan)
        for fragment in plan.values():
            self.contigs[fragment.contig] = self.contigs.get(fragment.contig, 0) + len(fragment)
        return plan

    def _check_order(self, names: Iterable[str], plan: Mapping[str, Interval]) -> None:
        ended: dict[str, str] = {}  # name of the last record of a contig
        before: str | None = None
        for name in names:
            fragment = plan.get(name)
            contig = name if fragment is None else fragment.contig
            earlier = ended.get(contig)
            if earlier is not None:
                if fragment is None or earlier not in plan:
                    raise DataError(f"{self.where}: records {earlier!r} and {name!r} are of the same contig")
                last = plan[earlier]
                if fragment.start < last.end and last.start < fragment.end:
                    raise DataError(f"{self.where}: fragments {earlier!r} and {name!r} overlap")
                if earlier != before or fragment.start < last.end:
                    raise DataError(
                        f"{self.where}: fragment {name!r} comes after {earlier!r}: the fragments of a contig "
                        "have to follow each other, in the contig's order"
                    )
            ended[contig] = before = name
