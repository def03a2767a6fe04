"""Read start sites, genes and coding bases from an annotation in GFF3 or GTF.

Start sites are decided gene by gene: the 5' ends of its transcripts; without any, of the gene's line; without
one, of the exons or CDS of each transcript. The same annotation therefore has the same sites as NCBI's,
Ensembl's, GENCODE's or Prokka's file, some of which have transcripts for RNA genes only. Coding bases are
those of the CDS.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from sys import intern
from typing import NamedTuple
from urllib.parse import unquote

from bigbird_dna.console import log
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import shown
from bigbird_dna.genome.fields import (
    check_name,
    parse_lines,
    quoted,
    site,
    split_columns,
    strand,
)
from bigbird_dna.genome.sequence import OPPOSITE, Intervals, Locus

_CODING = "CDS"
_EXON = "exon"
_TRANSCRIPT = re.compile(r".*(transcript|RNA)(_\w+)?")  # mRNA, lnc_RNA, mRNA_TE_gene
_GENE = re.compile(r"(.*_)?(pseudo)?gene")
_PART = re.compile(r".*(UTR|codon|intron|CDS|exon|prime_untranslated_region).*")
_GENE_NAMES = ("Name", "gene_name", "gene", "ID", "gene_id", "locus_tag")
_NAMES = (
    *("ID", "Name", "transcript_id", "Parent", "gene", "gene_id", "gene_name"),
    "locus_tag",
)
_BIOTYPES = (
    *("gene_biotype", "gene_type", "biotype", "transcript_biotype"),
    "transcript_type",
)
# A key does not start within another key, and quantifiers are possessive, so long words are scanned once.
_GTF = re.compile(r'(?<![^\s=;"])([^\s=;"]++)\s++(?:"([^"]*+)"|([^\s";]++))\s*+(?:;|$)')


class Gene(NamedTuple):
    """A gene; 0-based, half-open."""

    contig: str
    start: int
    end: int
    strand: str
    name: str


class _Feature(NamedTuple):
    """A line of a gene, transcript, exon or CDS."""

    type: str
    contig: str
    start: int
    end: int
    strand: str  # "." or "?" if it has none
    values: dict[str, str]  # attributes

    @property
    def id(self) -> str:
        """GFF3's ID; GTF's transcript_id, which lines of genes may have too."""
        if "ID" in self.values or _GENE.fullmatch(self.type):
            return self.values.get("ID", "")
        return self.values.get("transcript_id", "")

    @property
    def parents(self) -> list[str]:
        return list(filter(None, self.values.get("Parent", "").split(",")))

    @property
    def keys(self) -> list[str]:
        """What lines of one gene have in common."""
        names = ("gene_id", "locus_tag", "gene")
        return [
            f"{name}={self.values[name]}" for name in names if self.values.get(name)
        ]

    @property
    def pseudo(self) -> bool:
        texts = (self.type, *(self.values.get(name, "") for name in _BIOTYPES))
        marked = self.values.get("pseudo", "false").lower() != "false"
        return (
            marked
            or "pseudogene" in self.values
            or any("pseudogen" in text for text in texts)
        )

    def name(self, keys: tuple[str, ...]) -> str:
        return next((self.values[key] for key in keys if self.values.get(key)), "")


@dataclass
class _Gene:
    lines: list[tuple[int, _Feature]] = field(default_factory=list)
    transcripts: list[tuple[int, _Feature]] = field(default_factory=list)
    # Exons and CDS of each transcript without a line.
    pieces: dict[str, list[tuple[int, _Feature]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @property
    def pseudo(self) -> bool:
        pieces = [piece for pieces in self.pieces.values() for piece in pieces]
        return any(line.pseudo for _, line in self.lines) or all(
            part.pseudo for _, part in self.transcripts or self.lines or pieces
        )


def read_annotation(path: Path) -> Iterator[tuple[int, tuple[Locus, str]]]:
    """Yield line, start site and the rule that found it, in the order of a GFF3 or GTF file.

    The start sites of a gene are the 5' ends of its transcripts: features of a type such as mRNA, or whose
    `Parent` is a gene, that are not derived from another transcript, as a miRNA is. If it has none, it is the
    5' end of the gene; without a line for the gene, of the exons of each transcript, else of the CDS. Lines
    of one gene have its ID as `Parent`, or the same `gene_id`, `locus_tag` or `gene`.

    Pseudogenes are not used. The log states their number, and warns of genes without a strand. `DataError`
    names the malformed line, or the types of a file without any of these.
    """
    genes, types = _read_genes(path)
    sites: dict[int, tuple[Locus, str]] = {}
    pseudogenes = without = 0
    for gene in genes:
        if gene.pseudo:
            pseudogenes += 1
            continue
        groups = [[one] for one in gene.transcripts]
        rule = "the 5' end of each {}"
        if not any(_stranded(group) for group in groups):
            groups = [[one] for one in gene.lines]
            rule = "the 5' end of each {} without a transcript"
        if not any(_stranded(group) for group in groups):
            groups = [
                [one for one in pieces if one[1].type == _EXON] or pieces
                for pieces in gene.pieces.values()
            ]
            rule = "the 5' end of the {} of each transcript without a line"
        found = [one for group in groups if (one := _stranded(group))]
        without += not found
        for group in found:
            line, first = group[0]
            start, end = _extent(group)
            names = _NAMES[2:] if first.type == _EXON else _NAMES
            name = first.name(names) or f"{first.type}_{line}"
            position = start if first.strand == "+" else end - 1
            locus = Locus(first.contig, position, strand(first.strand), name)
            sites[line] = locus, rule.format(first.type)
    if not sites:
        what = "no transcript, gene or CDS with a strand"
        what += f" ({pseudogenes:,} pseudogenes are not used)" if pseudogenes else ""
        raise DataError(f"{path}: {what}; its features are {_shown_types(types)}")
    count = len(genes) - pseudogenes - without
    log(
        f"{path}: {count:,} genes have start sites; {pseudogenes:,} pseudogenes are not used"
    )
    if without:
        log(
            f"warning: {path}: {without:,} genes have no start site, because they have no strand"
        )
    yield from sorted(sites.items())


def read_coding(path: Path) -> dict[str, Intervals]:
    """Return the coding features of a GFF3 or GTF file, by the file's names of contigs.

    These are the features of type `CDS` and `stop_codon`, which GTF does not include in the CDS, on either
    strand; they may overlap. A file without `CDS` is a `DataError`.
    """
    types: Counter[str] = Counter()

    def parse(line: str) -> tuple[str, int, int] | None:
        if line.startswith("#"):
            return None
        columns = split_columns(line, 9)
        types[columns[2]] += 1
        if columns[2] not in (_CODING, "stop_codon"):
            return None
        return unquote(columns[0]), *_span(columns)

    with closing(read_lines(path)) as lines:
        found = Intervals.collect(
            row for _, row in parse_lines(path, parse, _annotated(lines))
        )
    if not types[_CODING]:
        raise DataError(
            f"{path}: no {_CODING} features; its features are {_shown_types(types)}"
        )
    return {
        check_name(contig, "contig", str(path)): spans
        for contig, spans in found.items()
    }


def read_genes(path: Path) -> list[Gene]:
    """Return the genes of a GFF3 or GTF file that have a strand, in file order, with the file's contig names.

    Pseudogenes are included. For a gene without a line of its own, these are its transcripts, or the extents
    of their exons or CDS. `DataError`: the file has no such feature, or names the line that is malformed.
    """
    genes, types = _read_genes(path)
    found: dict[int, Gene] = {}
    for gene in genes:
        groups = [[one] for one in gene.lines or gene.transcripts]
        for group in groups or gene.pieces.values():
            if stranded := _stranded(group):
                line, first = stranded[0]
                names = _GENE_NAMES
                if not _GENE.fullmatch(first.type):
                    names = (
                        "gene_name",
                        "gene",
                        "gene_id",
                        "locus_tag",
                        "Parent",
                        "ID",
                    )
                extent = _extent(stranded)
                found[line] = Gene(
                    first.contig, *extent, first.strand, first.name(names)
                )
    if not found:
        raise DataError(
            f"{path}: no gene on a strand; its features are {_shown_types(types)}"
        )
    return [found[line] for line in sorted(found)]


def _stranded(group: list[tuple[int, _Feature]]) -> list[tuple[int, _Feature]]:
    return [one for one in group if one[1].strand in OPPOSITE]


def _extent(group: list[tuple[int, _Feature]]) -> tuple[int, int]:
    return min(one.start for _, one in group), max(one.end for _, one in group)


def _read_genes(path: Path) -> tuple[list[_Gene], Counter[str]]:
    """Return the genes of a file, and the number of features of each type."""
    types: Counter[str] = Counter()
    genes: list[tuple[int, _Feature]] = []
    transcripts: list[tuple[int, _Feature]] = []
    pieces: list[tuple[int, _Feature]] = []
    # Genes and transcripts so far. Their exons and CDS are most of a file, and add nothing.
    known: set[tuple[str, str]] = set()

    def parse(line: str) -> _Feature | None:
        if line.startswith("#"):
            return None
        columns = split_columns(line, 9)
        types[columns[2]] += 1
        return _Feature(
            intern(columns[2]),
            intern(unquote(columns[0])),
            *_span(columns),
            columns[6],
            _attributes(columns[8]),
        )

    with closing(read_lines(path)) as lines:
        for line, one in parse_lines(path, parse, _annotated(lines)):
            owners = one.parents or [one.id]
            if one.type in (_CODING, _EXON):
                if not all(owner and (one.contig, owner) in known for owner in owners):
                    pieces.append((line, one))
            elif _PART.fullmatch(one.type):
                continue
            elif _GENE.fullmatch(one.type) and not one.parents:
                genes.append((line, one))
                known.add((one.contig, one.id))
            elif _TRANSCRIPT.fullmatch(one.type) or any(
                (one.contig, owner) in known for owner in one.parents
            ):
                transcripts.append((line, one))
                known.add((one.contig, one.id))

    found: list[_Gene] = []
    by_name: dict[tuple[str, str], _Gene] = {}

    def gene_of(one: _Feature, names: list[str]) -> _Gene:
        places = [(one.contig, name) for name in names if name]
        gene = next((by_name[place] for place in places if place in by_name), None)
        if gene is None:
            found.append(gene := _Gene())
        for place in places:
            by_name.setdefault(place, gene)
        return gene

    for line, one in genes:
        gene = gene_of(one, [one.id] if one.id else one.keys[:1])
        gene.lines.append((line, one))
        for key in one.keys:
            by_name.setdefault((one.contig, key), gene)
    ids = {(one.contig, one.id) for _, one in transcripts} - by_name.keys()
    for line, one in transcripts:
        gene = gene_of(one, [*one.parents, *one.keys] or [one.id])
        by_name.setdefault((one.contig, one.id), gene)
        if not any((one.contig, name) in ids for name in one.parents):
            gene.transcripts.append((line, one))
    for line, one in pieces:
        owners = one.parents
        if not owners and one.values.get("transcript_id"):
            owners = [one.values["transcript_id"]]
        elif not owners and one.type == _CODING:
            # Several CDS of one gene, as by a frameshift, are one.
            own = one.values.get("locus_tag") or one.id
            owners = [own or f"{one.strand}{'&'.join(one.keys) or line}"]
        for owner in owners:
            gene_of(one, [owner, *one.keys]).pieces[owner].append((line, one))
    return [one for one in found if one.lines or one.transcripts or one.pieces], types


def _annotated(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, up to the sequences that a GFF3 file may end with."""
    rows = takewhile(lambda row: not row[1].startswith(("##FASTA", ">")), lines)
    return (row for row in rows if row[1].strip())


def _shown_types(types: Counter[str]) -> str:
    texts = [f"{quoted(name)} {count:,}" for name, count in types.most_common()]
    return shown(texts) or "none"


def _span(columns: list[str]) -> tuple[int, int]:
    """Return start and end of a feature, 0-based and half-open."""
    start, last = site(columns[3]), site(columns[4])
    if last < start:
        raise ValueError(f"{columns[2]} {start + 1}-{last + 1} ends before it starts")
    return start, last + 1


def _attributes(text: str) -> dict[str, str]:
    """Parse the attributes of GFF3 (`ID=x;Name=y`) or of GTF (`gene_id "x"; …`)."""
    if _GTF.match(text.lstrip()):
        return {key: word or bare for key, word, bare in reversed(_GTF.findall(text))}
    pairs = [pair.partition("=") for pair in text.split(";")]
    return {
        key.strip(): unquote(value.strip()) for key, equals, value in pairs if equals
    }
