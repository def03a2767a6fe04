"""Carrying loci from one assembly to another along a liftOver chain file."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from liftover import ChainFile

from bigbird_dna.disk.atomic import scratch_directory
from bigbird_dna.disk.compression import numbered_lines, open_bytes
from bigbird_dna.errors import DataError, error_text
from bigbird_dna.genome.assembly import shown
from bigbird_dna.genome.fields import check_name, decimal, quoted, whole_number
from bigbird_dna.genome.sequence import OPPOSITE, Locus

_LONGEST_LINE = 1 << 14  # bytes


class Lifted(NamedTuple):
    """What became of some loci."""

    loci: list[Locus]  # on the new assembly, contigs named as in the chain file
    unmapped: list[Locus]  # as they were: no counterpart, or more than one


def lift(loci: Iterable[Locus], chain: Path, rename: Callable[[str, list[str]], str | None]) -> Lifted:
    """Carry loci over along a chain file; where it is inverted between the assemblies, the strand is flipped.

    `rename` maps a locus's contig and the names of the chain's contigs to the one of the latter that is the
    same contig, as `Assembly.match` does; without one the locus is unmapped. Blocks that lead beyond the ends
    that their chain states, or those beyond their contig, are a `DataError`.
    """
    chains, lengths = _read_chain(Path(chain))
    names = list(chains)
    renamed: dict[str, str | None] = {}
    lifted = Lifted([], [])
    for locus in loci:
        if locus.contig not in renamed:
            renamed[locus.contig] = rename(locus.contig, names)
        contig = renamed[locus.contig]
        targets = [] if contig is None else chains[contig][locus.position]
        if len(targets) != 1:
            lifted.unmapped.append(locus)
            continue
        target, position, direction = targets[0]
        if not 0 <= position < lengths.get(target, 0):
            place = f"{target}:{position}, which is not a place of that contig"
            raise DataError(f"{chain}: leads {locus.contig}:{locus.position} to {place}")
        strand = locus.strand if direction == "+" else OPPOSITE[locus.strand]
        lifted.loci.append(Locus(target, position, strand, locus.name))
    if not lifted.loci:
        raise DataError(
            f"{chain}: nothing can be lifted: the contigs are {shown(renamed)}, the chain's {shown(names)}"
        )
    return lifted


def _read_chain(path: Path) -> tuple[ChainFile, dict[str, int]]:
    """The chains of a file, and the lengths of the contigs that they lead to."""
    with scratch_directory() as directory:
        # What is read is what was checked: the reader takes any numbers, and cut files for whole ones.
        copy = directory / "checked.chain"
        with open_bytes(path) as stream, copy.open("w", encoding="utf-8") as checked:
            lengths = _check_chains(path, stream, checked)
        try:
            chains = ChainFile(str(copy))
        except (OSError, ValueError, RuntimeError, LookupError, OverflowError) as error:
            raise DataError(f"{path}: not a usable chain file: {error_text(error)}") from None
    return chains, lengths


def _check_chains(path: Path, stream: IO[bytes], copy: IO[str]) -> dict[str, int]:
    """Write the chains of a file to `copy`, checked line by line; the lengths of the contigs they lead to.

    The format is UCSC's: a header, blocks that reach its ends exactly, an empty line.
    """
    lengths: dict[str, int] = {}
    sides: tuple[_Side, _Side] | None = None  # of the chain that is open
    number = 0
    for number, line in numbered_lines(path, stream, _LONGEST_LINE):
        where = f"{path}: line {number}: not a usable chain file"
        words = line.decode("utf-8", "replace").split()
        if not words or words[0].startswith("#"):
            if sides and not words:
                raise DataError(f"{where}: the chain ends before its last block")
            continue
        if sides is None:
            source, target = sides = _header(words, where)
            known = lengths.setdefault(target.contig, target.length)
            if known != target.length:
                was = f"{target.length:,} bp, in a line before {known:,}"
                raise DataError(f"{where}: contig {quoted(target.contig)} has {was}")
            copy.write(" ".join(words[:12]) + f" {number}\n")
            continue
        source, target = sides
        block = [whole_number(word) for word in words]
        if len(block) not in (1, 3) or None in block:
            raise DataError(f"{where}: {quoted(' '.join(words))} is not a block of a chain")
        size, *gaps = (value or 0 for value in block)
        for side, gap in zip((source, target), gaps or (0, 0), strict=True):
            side.reached += size + gap
            if side.reached > side.end or (not gaps and side.reached < side.end):
                reached = f"{side.reached:,} of {quoted(side.contig)}"
                raise DataError(f"{where}: blocks reach {reached}, the chain's header says {side.end:,}")
        copy.write("\t".join(words) + ("\n" if gaps else "\n\n"))
        if not gaps:
            sides = None
    if sides:
        raise DataError(f"{path}: line {number}: not a usable chain file: the last chain has no last block")
    if not lengths:
        raise DataError(f"{path}: no chain in the file")
    return lengths


@dataclass
class _Side:
    """A chain's stretch of one assembly."""

    contig: str
    length: int
    end: int
    reached: int  # by the blocks read so far


def _header(words: list[str], where: str) -> tuple[_Side, _Side]:
    """The sides of a chain: `chain`, score, twice contig, length, strand, start and end, and a number."""
    if words[0] != "chain":
        raise DataError(f"{where}: a chain was to begin here, not {quoted(' '.join(words))}")
    if len(words) not in (12, 13) or decimal(words[1]) is None:
        raise DataError(f"{where}: not the header of a chain: {quoted(' '.join(words))}")
    sides = []
    for contig, *numbers in (words[2:7], words[7:12]):
        length, start, end = (whole_number(word) for word in (numbers[0], numbers[2], numbers[3]))
        if length is None or start is None or end is None or not start < end <= length:
            raise DataError(
                f"{where}: from {quoted(numbers[2])} to {quoted(numbers[3])} is not a stretch of a contig of "
                f"{quoted(numbers[0])} bp"
            )
        check_name(contig, "contig", where)
        sides.append(_Side(contig, length, end, start))
    if words[4] != "+" or words[9] not in OPPOSITE:
        raise DataError(f"{where}: strands {quoted(words[4])} and {quoted(words[9])}: must be + and + or -")
    return sides[0], sides[1]
