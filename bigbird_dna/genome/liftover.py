"""Carrying loci from one assembly to another along a liftOver chain file."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from liftover import ChainFile

from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import shown
from bigbird_dna.genome.compression import open_bytes
from bigbird_dna.genome.intervals import OPPOSITE, Locus


class Lifted(NamedTuple):
    """What became of some loci."""

    loci: list[Locus]  # on the new assembly, contigs named as in the chain file
    unmapped: list[Locus]  # as they were: no counterpart, or more than one


def lift(loci: Iterable[Locus], chain: Path, rename: Callable[[str, list[str]], str | None]) -> Lifted:
    """Carry loci over; on a stretch that is inverted between the assemblies the strand is flipped.

    Parameters
    ----------
    loci
        Sites of the assembly that the chain starts from.
    chain
        A chain file, plain or gzip.
    rename
        Maps a locus's contig and the names of the chain's contigs to the one of the latter that is
        the same contig; `None` (no counterpart) leaves the locus unmapped. `Assembly.match` is such
        a function.

    Raises
    ------
    DataError
        The chain file can't be used, or no locus is on one of its contigs.
    """
    chains = _read_chain(Path(chain))
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
        strand = locus.strand if direction == "+" else OPPOSITE[locus.strand]
        lifted.loci.append(Locus(target, position, strand, locus.name))
    if not lifted.loci:
        raise DataError(
            f"{chain}: nothing can be lifted: the contigs are {shown(renamed)}, the chain's {shown(names)}"
        )
    return lifted


def _read_chain(path: Path) -> ChainFile:
    # The reader of chains takes a truncated file for a whole one, so the stream is checked first.
    with open_bytes(path) as stream:
        while stream.read(1 << 20):
            pass
    try:
        chains = ChainFile(str(path))
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{path}: not a usable chain file: {error}") from None
    if not len(chains):
        raise DataError(f"{path}: no chain in the file")
    return chains
