"""Assemblies: the names and lengths of their contigs in different sources.

Names are looked up in tables and never guessed from their form: GRCh37's `chrM` (UCSC) and `MT` (Ensembl) are
different sequences, and yeast's `chrX` is chromosome 10.

An alias file has all names of one contig on a line, separated by tabs, in any order. Empty columns and lines
that begin with `#` are ignored. UCSC's current `chromAlias.txt` has this format. NCBI's assembly reports
(`*_assembly_report.txt`) are supported too, and give lengths.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.config.section import ASSEMBLY_SYNONYMS
from bigbird_dna.console import log
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import ConfigError, DataError, one_of
from bigbird_dna.genome.fields import check_name, quoted, whole_number

ASSEMBLIES = ("sacCer3", "ASM294v2", "ASM584v2", "GRCh37", "GRCh38")
DEMO = "demo"
CUSTOM = "custom"
ALIAS_HINT = "give a file of contig aliases (genome.aliases, --aliases)"


class Contig(NamedTuple):
    """A row of an assembly's table."""

    name: str
    length: int | None  # bp; None if unknown
    names: frozenset[str]  # all names of the contig, including `name`


@dataclass(frozen=True)
class Assembly:
    """The contigs of an assembly; without contigs, a name matches only itself."""

    name: str
    contigs: tuple[Contig, ...]

    @cached_property
    def _by_name(self) -> dict[str, Contig]:
        return {name: contig for contig in self.contigs for name in contig.names}

    @cached_property
    def lengths(self) -> dict[str, int]:
        """Lengths in bp of the contigs with a known length, by each of their names."""
        return {
            name: contig.length
            for name, contig in self._by_name.items()
            if contig.length is not None
        }

    def names_of(self, name: str) -> frozenset[str]:
        """Return all names of a contig, including `name`; only `name` if the contig is unknown."""
        contig = self._by_name.get(name)
        return frozenset({name}) if contig is None else contig.names

    def knows(self, name: str) -> bool:
        """Return whether the assembly has a contig of this name."""
        return name in self._by_name

    def match(self, name: str, contigs: Collection[str]) -> str | None:
        """Return the one of `contigs` that is the same contig as `name`, or None; `DataError` if two are."""
        if name in contigs:
            return name

        contig = self._by_name.get(name)
        if contig is None:
            return None

        found = [other for other in contigs if other in contig.names]
        if len(found) > 1:
            raise DataError(
                f"{found[0]!r} and {found[1]!r} are the same contig of {self.name}"
            )

        return found[0] if found else None

    def explain_none(self, names: Collection[str], contigs: Collection[str]) -> str:
        """Explain in a message why none of these contig names is in a reference."""
        return (
            f"the file's contigs are {shown(names)}, the reference's {shown(contigs)} (names are looked up in "
            f"{self.name}); {ALIAS_HINT}"
        )

    def check_lengths(
        self,
        contigs: Mapping[str, int],
        where: str = "reference",
    ) -> None:
        """Raise `DataError` if the lengths of a reference's contigs are not those of this assembly.

        `where` names the reference. A contig that is too short is taken as the first part of the contig, with
        a warning. Contigs that are not in the table are allowed in addition to known ones. A contig that is
        too long, or has its length in another known assembly, is an error.
        """
        known = {name: self._by_name[name] for name in contigs if name in self._by_name}
        if self.contigs and not known:
            raise DataError(
                f"{where}: none of the contigs ({shown(contigs)}) is in {self.name} "
                f"({shown(contig.name for contig in self.contigs)}); {ALIAS_HINT}"
            )

        for name, contig in known.items():
            length = contigs[name]
            if contig.length is None or length == contig.length:
                continue

            difference = f"{where}: contig {name!r} has {length:,} bp, in {self.name} {contig.length:,}"
            other = next(
                (a for a in ASSEMBLIES if load_assembly(a).lengths.get(name) == length),
                None,
            )
            if other is not None:
                raise DataError(f"{difference}: that is its length in {other}")

            if length > contig.length:
                raise DataError(f"{difference}: the reference is another assembly")

            log(f"warning: {difference}; it is taken as the first part of the contig")


@cache
def load_assembly(name: str) -> Assembly:
    """Return a known assembly with its table, or "demo" or "custom", which have no table.

    UCSC's hg19 and hg38 and Ensembl's R64-1-1 are synonyms of GRCh37, GRCh38 and sacCer3. An unknown name is
    a `ConfigError`.
    """
    name = ASSEMBLY_SYNONYMS.get(name, name)
    if name in (DEMO, CUSTOM):
        return Assembly(name, ())

    if name not in ASSEMBLIES:
        known = (*ASSEMBLIES, *ASSEMBLY_SYNONYMS, CUSTOM, DEMO)
        raise ConfigError(f"unknown assembly {name!r}: {one_of(name, known)}")

    path = files("bigbird_dna.resources").joinpath("assemblies", f"{name}.tsv")
    lines = path.read_text(encoding="utf-8").splitlines()
    contigs = []
    for line in [line for line in lines if not line.startswith("##")][1:]:
        contig, length, *aliases = line.split("\t")
        names = {contig, *",".join(aliases).split(",")} - {""}
        contigs.append(Contig(contig, int(length), frozenset(names)))

    return Assembly(name, tuple(contigs))


def contig_finder(
    contigs: Mapping[str, int], names: Assembly | None
) -> Callable[[str], str | None]:
    """Return a function from any name of a contig to the reference's name, or to None.

    The reference's alias file takes precedence over known assemblies. The assembly is inferred: it has a
    common contig with the reference, and none is longer in the reference, which may have only its first part.
    Assemblies with an equal length take precedence. If several assemblies remain, they must agree on a name.
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


def shown(names: Iterable[str]) -> str:
    """Format the first names and their total number for a message."""
    names = list(names)
    more = f", … {len(names)} in total" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def shown_counts(counts: Mapping[str, int]) -> str:
    """Format the names (of contigs …) with the largest counts for a message."""
    largest = sorted(counts.items(), key=lambda item: -item[1])
    return shown((f"{name} {count:,}" for name, count in largest))


def warn_of_dropped(
    where: str,
    what: str,
    total: int,
    dropped: Mapping[str, int],
    why: str,
    hint: str = "",
) -> None:
    """Log how many of `total` entries of a file are dropped, and the contigs with most of them."""
    if count := sum(dropped.values()):
        share = f"{count:,} of {total:,} {what} ({count / total:.1%})"
        log(f"warning: {where}: {share} {why}: {shown_counts(dropped)}{hint}")


def open_assembly(
    assembly: str, aliases: Path | None = None, title: str | None = None
) -> Assembly:
    """Return a known assembly, "demo" or "custom", with the names of an alias file, and contigs only in it.

    `title` is its name in messages and results.
    """
    known = load_assembly(assembly)
    title = title or known.name
    if aliases is None:
        return Assembly(title, known.contigs)

    table = {name: contig for contig in known.contigs for name in contig.names}
    more: defaultdict[str, set[str]] = defaultdict(set)
    lines: dict[str, int] = {}
    new = []
    for number, names, length in _read_aliases(Path(aliases)):
        where = f"{aliases}: line {number}"
        for name in names:
            check_name(name, "contig", where)
            if any(letter.isspace() for letter in name):
                raise DataError(
                    f"{where}: contig {quoted(name)} contains a space; tabs must separate names"
                )

            if name in lines:
                raise DataError(
                    f"{where}: duplicate name {quoted(name)}, also in line {lines[name]}; all names of a "
                    "contig belong on one line"
                )

            lines[name] = number

        owners = sorted({table[name].name for name in names if name in table})
        if len(owners) > 1:
            raise DataError(
                f"{where}: {' and '.join(owners)} are different contigs of {known.name}"
            )

        if owners:
            more[owners[0]].update(names)
        else:
            new.append(Contig(names[0], length, frozenset(names)))

    if not lines:
        raise DataError(f"{aliases}: the file contains no contig names")

    extended = [
        contig._replace(names=contig.names | more[contig.name])
        for contig in known.contigs
    ]
    return Assembly(title, (*extended, *new))


def _read_aliases(path: Path) -> Iterator[tuple[int, list[str], int | None]]:
    """Yield line, names (the primary name first) and length of the contigs of an alias file."""
    columns: list[str] | None = None
    for number, text in read_lines(path):
        fields = [field.strip() for field in text.split("\t")]
        if text.startswith("#"):
            fields[0] = fields[0].lstrip("# ")
            columns = fields if fields[0] == "Sequence-Name" else columns
            continue

        if not text.strip():
            continue

        length = None
        if columns is not None:  # NCBI's assembly report
            if len(fields) != len(columns):
                raise DataError(
                    f"{path}: line {number}: found {len(fields)} columns, expected {len(columns)} as in the header"
                )

            row = defaultdict(str, zip(columns, fields, strict=True))
            fields = [row["Sequence-Name"], row["RefSeq-Accn"], row["UCSC-style-name"]]
            # A scaffold can be assigned to a chromosome but is not the chromosome.
            if row["Sequence-Role"] == "assembled-molecule":
                fields.append(row["Assigned-Molecule"])

            # Only RefSeq's accession is used if the sequences differ, as for the human mitochondrion of GRCh37.
            if row["Relationship"] == "=" or row["RefSeq-Accn"] in ("", "na"):
                fields.append(row["GenBank-Accn"])

            length = whole_number(row["Sequence-Length"])

        names = list(dict.fromkeys(name for name in fields if name not in ("", "na")))
        if not names:
            raise DataError(f"{path}: line {number}: a sequence without a name")

        yield number, names, length
