"""The names a contig goes by in different sources, and its length.

Names are looked up in tables, never guessed from their form: GRCh37's `chrM` (UCSC) and `MT`
(Ensembl) are different sequences, and yeast's `chrX` is chromosome 10.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import NamedTuple

from bigbird_dna.config.names import ASSEMBLY_SYNONYMS
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError, DataError

ASSEMBLIES = ("sacCer3", "GRCh37", "GRCh38")
DEMO = "demo"
CUSTOM = "custom"
ALIAS_HINT = "a file of contigs' other names can be given (genome.aliases, --aliases)"


class Contig(NamedTuple):
    """A row of an assembly's table."""

    name: str
    length: int | None  # bp; None where no table has it
    names: frozenset[str]  # all names of the contig, `name` among them


@dataclass(frozen=True)
class Assembly:
    """An assembly's contigs; one that has none knows no names, and there each stands for itself only."""

    name: str
    contigs: tuple[Contig, ...]

    @cached_property
    def _by_name(self) -> dict[str, Contig]:
        return {name: contig for contig in self.contigs for name in contig.names}

    @cached_property
    def lengths(self) -> dict[str, int]:
        """bp of the contigs whose length is known, by every name they have."""
        return {name: contig.length for name, contig in self._by_name.items() if contig.length is not None}

    def names_of(self, name: str) -> frozenset[str]:
        """All names of a contig, `name` among them; only that if no other is known."""
        contig = self._by_name.get(name)
        return frozenset({name}) if contig is None else contig.names

    def knows(self, name: str) -> bool:
        """Whether the assembly has a contig of that name."""
        return name in self._by_name

    def match(self, name: str, contigs: Collection[str]) -> str | None:
        """Return the one of `contigs` that is the same contig as `name`; `None` if none is.

        Raises
        ------
        DataError
            Two of `contigs` are that contig under different names.
        """
        if name in contigs:
            return name
        contig = self._by_name.get(name)
        if contig is None:
            return None
        found = [other for other in contigs if other in contig.names]
        if len(found) > 1:
            raise DataError(f"{found[0]!r} and {found[1]!r} are the same contig of {self.name}")
        return found[0] if found else None

    def check_lengths(
        self, contigs: Mapping[str, int], where: str = "reference", placed: Collection[str] = ()
    ) -> None:
        """Check that the lengths of a reference's contigs are this assembly's.

        A contig that is too short is taken for a piece from its start and gets a warning, unless it is one
        of `placed`, which were put at their own place; so a reference may hold a part of the assembly, and
        contigs unknown to the table beside known ones.

        Errors and warnings call the reference `where`.

        Raises
        ------
        DataError
            A contig is too long, or has the length it has in another known assembly; no contig is
            known.
        """
        known = {name: self._by_name[name] for name in contigs if name in self._by_name}
        if self.contigs and not known:
            raise DataError(
                f"{where}: no contig ({shown(contigs)}) is known to {self.name} "
                f"({shown(contig.name for contig in self.contigs)}); {ALIAS_HINT}"
            )
        for name, contig in known.items():
            length = contigs[name]
            if contig.length is None or length == contig.length:
                continue
            difference = f"{where}: contig {name!r} has {length:,} bp, in {self.name} {contig.length:,}"
            other = next((a for a in ASSEMBLIES if load_assembly(a).lengths.get(name) == length), None)
            if other is not None:
                raise DataError(f"{difference}: that is its length in {other}")
            if length > contig.length:
                raise DataError(f"{difference}: the reference is another assembly")
            if name not in placed:
                log(f"warning: {difference}; it is taken for a piece from the contig's start")


@cache
def load_assembly(name: str) -> Assembly:
    """Read the table of a known assembly, or return "demo" or "custom", which have no table.

    UCSC's hg19 and hg38 and Ensembl's R64-1-1 are known as GRCh37, GRCh38 and sacCer3.

    Raises
    ------
    ConfigError
        The name is none of these, nor one of `ASSEMBLIES`.
    """
    name = ASSEMBLY_SYNONYMS.get(name, name)
    if name in (DEMO, CUSTOM):
        return Assembly(name, ())
    if name not in ASSEMBLIES:
        known = ", ".join([*ASSEMBLIES, CUSTOM, DEMO])
        raise ConfigError(f"unknown assembly {name!r}; known are {known}")
    text = files("bigbird_dna.resources").joinpath("assemblies", f"{name}.tsv").read_text()
    _, *rows = (line.split("\t") for line in text.splitlines() if not line.startswith("##"))
    return Assembly(
        name,
        tuple(
            Contig(contig, int(length), frozenset({contig, *",".join(aliases).split(",")} - {""}))
            for contig, length, *aliases in rows
        ),
    )


def shown(names: Iterable[str], most: int = 4) -> str:
    """The first few of some names, for a message."""
    names = list(names)
    return ", ".join(names[:most]) + (f", … {len(names)} in all" if len(names) > most else "")


def shown_counts(counts: Mapping[str, int]) -> str:
    """The contigs with the largest of some counts, for a message."""
    largest = sorted(counts.items(), key=lambda item: -item[1])
    return shown(f"{name} {count:,}" for name, count in largest)


def naming_assemblies(names: Iterable[str]) -> list[str]:
    """The known assemblies that know every one of some contig names."""
    names = set(names)
    return [name for name in ASSEMBLIES if names and names <= load_assembly(name).lengths.keys()]
