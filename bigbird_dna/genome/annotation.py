"""Read start sites, genes and coding bases from an annotation in GFF3 or GTF.

Start sites are decided gene by gene: the 5' ends of its transcripts; without any, of the gene's line; without
one, of the exons or CDS of each transcript. The same annotation therefore has the same sites as NCBI's,
Ensembl's, GENCODE's or Prokka's file, some of which have transcripts for RNA genes only. Coding bases are
those of the CDS.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from sys import intern
from typing import NamedTuple
from urllib.parse import unquote

from bigbird_dna.console import log
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError
from bigbird_dna.genome.fields import check_name, quoted
from bigbird_dna.genome.sequence import OPPOSITE, Intervals, Locus

_TRANSCRIPT = re.compile(r".*(transcript|RNA)(_\w+)?")  # mRNA, lnc_RNA, mRNA_TE_gene
_GENE = re.compile(r"(.*_)?(pseudo)?gene")
_PART = re.compile(r".*(UTR|codon|intron|CDS|exon|prime_untranslated_region).*")
_GENE_NAMES = ("Name", "gene_name", "gene", "ID", "gene_id", "locus_tag")
_PART_NAMES = ("gene_name", "gene", "gene_id", "locus_tag", "Parent", "ID")
_SITE_NAMES = (
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
    """A line of an annotation; 0-based, half-open."""

    line: int
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
    def is_pseudogene(self) -> bool:
        texts = [self.type, *(self.values.get(name, "") for name in _BIOTYPES)]
        marked = self.values.get("pseudo", "false").lower() != "false"
        has_key = "pseudogene" in self.values
        return marked or has_key or any("pseudogen" in text for text in texts)

    def name(self, keys: Sequence[str]) -> str:
        return next((self.values[key] for key in keys if self.values.get(key)), "")


class _Gene:
    def __init__(self) -> None:
        self.lines: list[_Feature] = []
        self.transcripts: list[_Feature] = []
        # Exons and CDS of each transcript without a line.
        self.parts: defaultdict[str, list[_Feature]] = defaultdict(list)

    @property
    def is_pseudogene(self) -> bool:
        if any(line.is_pseudogene for line in self.lines):
            return True
        parts = [part for parts in self.parts.values() for part in parts]
        features = self.transcripts or self.lines or parts
        return all(feature.is_pseudogene for feature in features)


def read_annotation(path: Path) -> Iterator[tuple[int, Locus]]:
    """Yield line and start site, in the order of a GFF3 or GTF file.

    The start sites of a gene are the 5' ends of its transcripts: features of a type such as mRNA, or whose
    `Parent` is a gene, that are not derived from another transcript, as a miRNA is. If it has none, it is the
    5' end of the gene; without a line for the gene, of the exons of each transcript, else of the CDS. Lines
    of one gene have its ID as `Parent`, or the same `gene_id`, `locus_tag` or `gene`.

    Pseudogenes are not used. The log states their number, and warns of genes without a strand. `DataError`
    names the malformed line, or the file without any of these.
    """
    sites: dict[int, Locus] = {}
    genes = _read_genes(path)
    pseudogenes = without = 0
    for gene in genes:
        if gene.is_pseudogene:
            pseudogenes += 1
            continue
        groups = _on_strand([[one] for one in gene.transcripts])
        groups = groups or _on_strand([[one] for one in gene.lines])
        groups = groups or _on_strand(
            [
                [part for part in parts if part.type == "exon"] or parts
                for parts in gene.parts.values()
            ]
        )
        without += not groups
        for group in groups:
            first = group[0]
            if first.strand == "+":
                position = min(feature.start for feature in group)
            else:
                position = max(feature.end for feature in group) - 1
            names = _SITE_NAMES[2:] if first.type == "exon" else _SITE_NAMES
            name = first.name(names) or f"{first.type}_{first.line}"
            sites[first.line] = Locus(first.contig, position, first.strand, name)  # type: ignore[arg-type]
    if not sites:
        raise DataError(
            f"{path}: no transcript, gene or CDS with a strand ({pseudogenes:,} pseudogenes are not used)"
        )
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
    features = [
        feature
        for feature in _read_features(path)
        if feature.type in ("CDS", "stop_codon")
    ]
    if not any(feature.type == "CDS" for feature in features):
        raise DataError(f"{path}: no CDS features")
    return Intervals.collect((one.contig, one.start, one.end) for one in features)


def read_genes(path: Path) -> list[Gene]:
    """Return the genes of a GFF3 or GTF file that have a strand, in file order, with the file's contig names.

    Pseudogenes are included. For a gene without a line of its own, these are its transcripts, or the extents
    of their exons or CDS. `DataError`: the file has no such feature, or names the line that is malformed.
    """
    found: dict[int, Gene] = {}
    for gene in _read_genes(path):
        lines = gene.lines or gene.transcripts
        for group in _on_strand([[one] for one in lines] or [*gene.parts.values()]):
            first = group[0]
            names = _GENE_NAMES if _GENE.fullmatch(first.type) else _PART_NAMES
            start = min(feature.start for feature in group)
            end = max(feature.end for feature in group)
            name = first.name(names)
            found[first.line] = Gene(first.contig, start, end, first.strand, name)
    if not found:
        raise DataError(f"{path}: no gene on a strand")
    return [found[line] for line in sorted(found)]


def _on_strand(groups: list[list[_Feature]]) -> list[list[_Feature]]:
    """Return the features of each group that have a strand, without empty groups."""
    stranded = [
        [feature for feature in group if feature.strand in OPPOSITE] for group in groups
    ]
    return [group for group in stranded if group]


def _read_features(path: Path) -> Iterator[_Feature]:
    """Yield the features of a file, up to the sequences that a GFF3 file may end with."""
    with closing(read_lines(path)) as lines:
        for number, line in lines:
            if line.startswith(("##FASTA", ">")):
                return
            if line.startswith("#") or not line.strip():
                continue
            where = f"{path}: line {number}"
            columns = line.split("\t")
            if len(columns) < 9:
                raise DataError(
                    f"{where}: expected 9 tab-separated columns, found {len(columns)}"
                )
            try:
                start, end = int(columns[3]) - 1, int(columns[4])
            except ValueError:
                start, end = 0, 0
            if not 0 <= start < end < 2**31:
                raise DataError(
                    f"{where}: {quoted(columns[3])} to {quoted(columns[4])} are not positions, from 1 on"
                )
            contig = intern(check_name(unquote(columns[0]), "contig", where))
            if _GTF.match(columns[8].lstrip()):
                pairs = reversed(_GTF.findall(columns[8]))
                values = {key: quote or word for key, quote, word in pairs}
            else:
                fields = [field.partition("=") for field in columns[8].split(";")]
                values = {
                    key.strip(): unquote(value.strip())
                    for key, equals, value in fields
                    if equals
                }
            yield _Feature(
                number, intern(columns[2]), contig, start, end, columns[6], values
            )


def _read_genes(path: Path) -> list[_Gene]:
    """Return the genes of a file with their transcripts, and the exons and CDS of transcripts without a line."""
    lines: list[_Feature] = []
    transcripts: list[_Feature] = []
    parts: list[_Feature] = []
    # Genes and transcripts so far. Their exons and CDS are most of a file, and add nothing.
    known: set[tuple[str, str]] = set()
    for one in _read_features(path):
        owners = one.parents or [one.id]
        if one.type in ("CDS", "exon"):
            if not all(owner and (one.contig, owner) in known for owner in owners):
                parts.append(one)
        elif _PART.fullmatch(one.type):
            continue
        elif _GENE.fullmatch(one.type) and not one.parents:
            lines.append(one)
            known.add((one.contig, one.id))
        elif _TRANSCRIPT.fullmatch(one.type) or any(
            (one.contig, owner) in known for owner in one.parents
        ):
            transcripts.append(one)
            known.add((one.contig, one.id))

    genes: list[_Gene] = []
    by_name: dict[tuple[str, str], _Gene] = {}

    def gene_of(feature: _Feature, names: list[str]) -> _Gene:
        keys = [(feature.contig, name) for name in names if name]
        gene = next((by_name[key] for key in keys if key in by_name), None)
        if gene is None:
            gene = _Gene()
            genes.append(gene)
        for key in keys:
            by_name.setdefault(key, gene)
        return gene

    for one in lines:
        gene = gene_of(one, [one.id] if one.id else one.keys[:1])
        gene.lines.append(one)
        for key in one.keys:
            by_name.setdefault((one.contig, key), gene)
    ids = {(one.contig, one.id) for one in transcripts} - by_name.keys()
    for one in transcripts:
        gene = gene_of(one, [*one.parents, *one.keys] or [one.id])
        by_name.setdefault((one.contig, one.id), gene)
        if not any((one.contig, name) in ids for name in one.parents):
            gene.transcripts.append(one)
    for one in parts:
        owners = one.parents
        if not owners and one.values.get("transcript_id"):
            owners = [one.values["transcript_id"]]
        elif not owners and one.type == "CDS":
            # Several CDS of one gene, as by a frameshift, are one.
            tag = one.values.get("locus_tag") or one.id
            owners = [tag or f"{one.strand}{'&'.join(one.keys) or one.line}"]
        for owner in owners:
            gene_of(one, [owner, *one.keys]).parts[owner].append(one)
    return [gene for gene in genes if gene.lines or gene.transcripts or gene.parts]
