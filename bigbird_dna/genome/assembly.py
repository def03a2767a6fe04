"""Assemblies: the names that a contig goes by in different sources, and its length.

Names are looked up in tables, never guessed from their form: GRCh37's `chrM` (UCSC) and `MT` (Ensembl) are
different sequences, and yeast's `chrX` is chromosome 10.

Files of names have all names of one contig on a line, separated by tabs, in any order; empty columns and
lines that begin with `#` are passed over. UCSC's `chromAlias.txt` of today is one. NCBI's assembly reports
(`*_assembly_report.txt`) are read too, and give lengths.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.config.section import ASSEMBLY_SYNONYMS
from bigbird_dna.console import log
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.genome.fields import check_name, quoted, whole_number

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
        """Return the one of `contigs` that is the same contig as `name`; `None` if none is, `DataError` if
        two are.
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

    def explain_none(self, names: Collection[str], contigs: Collection[str]) -> str:
        """Why nothing that is on contigs of these names lies on a reference, for a message."""
        known = f"names are looked up in {self.name}"
        text = f"the file's contigs are {shown(names)}, the reference's {shown(contigs)} ({known})"
        if any(self.match(name, contigs) for name in names):
            return text
        knowing = [name for name in ASSEMBLIES if set(names) <= load_assembly(name).lengths.keys()]
        others = [name for name in knowing if name != self.name]
        return f"{text}; {' and '.join(others)} would know them" if others else f"{text}; {ALIAS_HINT}"

    def check_lengths(
        self, contigs: Mapping[str, int], where: str = "reference", placed: Collection[str] = ()
    ) -> None:
        """`DataError` if the lengths of a reference's contigs, which is called `where`, aren't this
        assembly's.

        A contig that is too short is taken for a part from its start, with a warning unless it is one of
        `placed`, which were put at their own position; contigs unknown to the table are allowed beside known
        ones. One that is too long, or has the length of another known assembly, is an error.
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
                log(f"warning: {difference}; it is taken for a part from the contig's start")


@cache
def load_assembly(name: str) -> Assembly:
    """Read the table of a known assembly, or return "demo" or "custom", which have no table.

    UCSC's hg19 and hg38 and Ensembl's R64-1-1 are known as GRCh37, GRCh38 and sacCer3. An unknown name is a
    `ConfigError`.
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


def shown(names: Iterable[str], most: int = 4) -> str:
    """The first few of some names, for a message."""
    names = list(names)
    return ", ".join(names[:most]) + (f", … {len(names)} in all" if len(names) > most else "")


def shown_counts(counts: Mapping[str, int]) -> str:
    """The contigs with the largest of some counts, for a message."""
    largest = sorted(counts.items(), key=lambda item: -item[1])
    return shown(f"{name} {count:,}" for name, count in largest)


def warn_of_dropped(
    where: str, what: str, total: int, dropped: Mapping[str, int], why: str, hint: str = ""
) -> None:
    """Say in the log how many things of a file, of `total`, are dropped, and where most of them are."""
    if count := sum(dropped.values()):
        share = f"{count:,} of {total:,} {what} ({count / total:.1%})"
        log(f"warning: {where}: {share} {why}: {shown_counts(dropped)}{hint}")


_MOST = 2_000_000  # contigs of a file: what memory has room for
_ABSENT = frozenset({"", "na"})
_REPORT = "Sequence-Name"  # the first column of NCBI's
_COLUMNS = (_REPORT, "Sequence-Role", "Assigned-Molecule", "GenBank-Accn", "Relationship", "RefSeq-Accn")


_Entry = tuple[tuple[str, ...], int | None]  # a contig's names, its own first, and its length if known


def open_assembly(assembly: str, aliases: Path | None = None, title: str | None = None) -> Assembly:
    """A known assembly, "demo" or "custom", with the names of an alias file.

    Messages and results call it `title`.
    """
    known = load_assembly(assembly)
    contigs = known.contigs if aliases is None else tuple(_joined(Path(aliases), known))
    return Assembly(title or known.name, contigs)


def _joined(path: Path, known: Assembly) -> Iterator[Contig]:
    """The contigs of an assembly, with more names of the file, and the contigs that only the file has."""
    table = {name: contig for contig in known.contigs for name in contig.names}
    more: dict[str, set[str]] = {}
    first: dict[str, int] = {}
    new = []
    for number, (names, length) in _read(path):
        where = f"{path}: line {number}"
        for name in names:
            if name in first:
                raise DataError(
                    f"{where}: {quoted(name)} stands in line {first[name]} too: all names of a contig "
                    "belong on one line"
                )
            first[name] = number
        owners = {table[name].name for name in names if name in table}
        if len(owners) > 1:
            raise DataError(f"{where}: {' and '.join(sorted(owners))} are different contigs of {known.name}")
        if owners:
            more.setdefault(owners.pop(), set()).update(names)
        else:
            new.append(Contig(names[0], length, frozenset(names)))
    if not first:
        raise DataError(f"{path}: no names of contigs in the file")
    for contig in known.contigs:
        yield contig._replace(names=contig.names | more.get(contig.name, set()))
    yield from new


def _read(path: Path) -> Iterator[tuple[int, _Entry]]:
    lines = read_lines(path)
    columns: list[str] | None = None
    for count, (number, text) in enumerate(lines):
        if count > _MOST:
            raise DataError(f"{path}: line {number}: more than {_MOST:,} lines")
        if text.startswith("#"):
            header = text.lstrip("# ").split("\t")
            columns = header if header[0] == _REPORT else columns
        elif text.strip():
            where = f"{path}: line {number}"
            yield number, _names(text, where) if columns is None else _report_entry(text, columns, where)


def _names(text: str, where: str) -> _Entry:
    names = tuple(dict.fromkeys(name for name in map(str.strip, text.split("\t")) if name))
    for name in names:
        check_name(name, "contig", where)
        if any(letter.isspace() for letter in name):
            raise DataError(f"{where}: contig {quoted(name)} has a space: names are separated by tabs")
    return names, None


def _report_entry(text: str, columns: list[str], where: str) -> _Entry:
    """A line of NCBI's assembly report."""
    fields = text.split("\t")
    if len(fields) != len(columns) or not {*_COLUMNS} <= {*columns}:
        raise DataError(f"{where}: has {len(fields)} columns, not the {len(columns)} of the report's header")
    row = dict(zip(columns, map(str.strip, fields), strict=True))
    names = [row[_REPORT], row["RefSeq-Accn"], row.get("UCSC-style-name", "")]
    # A scaffold is assigned to a chromosome without being it.
    if row["Sequence-Role"] == "assembled-molecule":
        names.append(row["Assigned-Molecule"])
    # Where the accessions' sequences differ, as the human mitochondria's of GRCh37, only RefSeq's is taken.
    if row["Relationship"] == "=" or row["RefSeq-Accn"] in _ABSENT:
        names.append(row["GenBank-Accn"])
    kept = tuple(dict.fromkeys(name for name in names if name not in _ABSENT))
    for name in kept:
        check_name(name, "contig", where)
    if not kept:
        raise DataError(f"{where}: a sequence without a name")
    return kept, whole_number(row.get("Sequence-Length", ""))
