"""Read start sites and genes from an annotation in GFF3 or GTF.

Start sites are decided gene by gene: the 5' ends of its transcripts; without any, of the gene's line; without
one, of the exons or CDS of each transcript. The same annotation therefore has the same sites as NCBI's,
Ensembl's, GENCODE's or Prokka's file, some of which have transcripts for RNA genes only.
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
from bigbird_dna.genome.sequence import OPPOSITE, Locus

_TRANSCRIPT = re.compile(r".*(transcript|RNA)(_\w+)?")  # mRNA, lnc_RNA, mRNA_TE_gene
_GENE = re.compile(r"(.*_)?(pseudo)?gene")
_PART = re.compile(r".*(UTR|codon|intron|CDS|exon|prime_untranslated_region).*")
_GENE_NAMES = "gene_name", "gene", "Name", "gene_id", "locus_tag", "Parent", "ID"
_SITE_NAMES = "ID", "Name", "transcript_id", "Parent", "gene", "gene_id", "locus_tag"
# Several CDS of one locus_tag, as by a frameshift, are one.
_GROUP_NAMES = "Parent", "transcript_id", "locus_tag", "ID", "gene"
_BIOTYPE = re.compile("(gene|transcript)_(bio)?type|biotype")
# A key does not start within another key, and quantifiers are possessive, so long words are scanned once.
_GTF = re.compile(r'(?<![^\s=;"])([^\s=;"]++)\s++(?:"([^"]*+)"|([^\s";]++))\s*+(?:;|$)')

_Key = tuple[str, str]  # contig, and ID or name=value


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
    def id(self) -> _Key:
        """GFF3's ID; GTF's transcript_id, which lines of genes may have too."""
        name = "ID"
        if name not in self.values and not _GENE.fullmatch(self.type):
            name = "transcript_id"
        return self.contig, self.values.get(name, "")

    @property
    def names(self) -> list[_Key]:
        """What lines of one gene have in common, the most specific first."""
        return [
            (self.contig, f"{name}={self.values[name]}")
            for name in ("gene_id", "locus_tag", "gene")
            if self.values.get(name)
        ]

    @property
    def owners(self) -> list[_Key]:
        """The genes or transcripts that a feature belongs to."""
        parents = filter(None, self.values.get("Parent", "").split(","))
        return [(self.contig, parent) for parent in parents] or self.names[:1]

    @property
    def is_pseudogene(self) -> bool:
        if "pseudogen" in self.type or "pseudogene" in self.values:
            return True
        return self.values.get("pseudo", "false").lower() != "false" or any(
            "pseudogen" in text
            for name, text in self.values.items()
            if _BIOTYPE.fullmatch(name)
        )

    def name(self, keys: Sequence[str]) -> str:
        return next((self.values[key] for key in keys if self.values.get(key)), "")


class _Genes(NamedTuple):
    """The features of an annotation that genes or start sites are decided from."""

    genes: list[_Feature]
    transcripts: list[_Feature]
    groups: list[list[_Feature]]  # exons or CDS that belong to neither, by transcript


def read_annotation(path: Path) -> Iterator[tuple[int, Locus]]:
    """Yield line and start site, in the order of a GFF3 or GTF file.

    The start sites of a gene are the 5' ends of its transcripts: features of a type such as mRNA, or whose
    `Parent` is a gene, that are not derived from another transcript, as a miRNA is. If it has none, it is the
    5' end of the gene; without a line for the gene, of the exons of each transcript, else of the CDS. Lines
    of one gene have its ID as `Parent`, or the same `gene_id`, `locus_tag` or `gene`.

    Pseudogenes are not used. The log states their number, and warns of features without a strand. `DataError`
    names the malformed line, or the file without any of these.
    """
    found = _read_genes(path)
    gene_ids = {gene.id for gene in found.genes}
    derived = {transcript.id for transcript in found.transcripts} - gene_ids
    pseudogenes: set[_Key] = set()
    for gene in found.genes:
        if gene.is_pseudogene:
            pseudogenes.update([gene.id, *gene.names])

    groups = []
    transcribed: set[_Key] = set()
    for transcript in found.transcripts:
        owners = transcript.owners
        transcribed.update(owners)
        # A transcript may have the ID of its gene.
        if derived.isdisjoint(owners) and pseudogenes.isdisjoint(owners):
            groups.append([transcript])

    for gene in found.genes:
        if transcribed.isdisjoint([gene.id, *gene.names]):
            groups.append([gene])

    groups += found.groups

    sites: dict[int, Locus] = {}
    skipped = without_strand = 0
    for group in groups:
        first = group[0]
        if all(feature.is_pseudogene for feature in group):
            skipped += 1
        elif first.strand not in OPPOSITE:
            without_strand += 1
        else:
            position = min(feature.start for feature in group)
            if first.strand == "-":
                position = max(feature.end for feature in group) - 1

            name = first.name(_SITE_NAMES) or f"{first.type}_{first.line}"
            sites[first.line] = Locus(first.contig, position, first.strand, name)

    if not sites:
        raise DataError(
            f"{path}: no transcript, gene or CDS with a strand that is not of a pseudogene"
        )

    log(f"{path}: {len(sites):,} start sites; pseudogenes are not used ({skipped:,})")
    if without_strand:
        log(f"warning: {path}: {without_strand:,} genes or transcripts have no strand")

    yield from sorted(sites.items())


def read_genes(path: Path) -> list[Gene]:
    """Return the genes of a GFF3 or GTF file that have a strand, in file order, with the file's contig names.

    Pseudogenes are included. For a gene without a line of its own, these are its transcripts, or the extents
    of their exons or CDS. `DataError`: the file has no such feature, or names the line that is malformed.
    """
    found = _read_genes(path)
    known = {key for gene in found.genes for key in (gene.id, *gene.names)}
    groups = [[gene] for gene in found.genes]
    groups += [
        [transcript]
        for transcript in found.transcripts
        if known.isdisjoint([*transcript.owners, *transcript.names])
    ]
    groups += found.groups
    genes = {}
    for group in groups:
        first = group[0]
        if first.strand in OPPOSITE:
            start = min(feature.start for feature in group)
            end = max(feature.end for feature in group)
            name = first.name(_GENE_NAMES)
            genes[first.line] = Gene(first.contig, start, end, first.strand, name)

    if not genes:
        raise DataError(f"{path}: no gene on a strand")

    return [genes[line] for line in sorted(genes)]


def _read_genes(path: Path) -> _Genes:
    """Return the genes and transcripts of a file, and the exons or CDS of transcripts without either."""
    genes: list[_Feature] = []
    transcripts: list[_Feature] = []
    others: list[_Feature] = []
    # Genes and transcripts so far. Their exons and CDS are most of a file, and add nothing.
    known: set[_Key] = set()
    for feature in _read_features(path):
        if feature.type in ("CDS", "exon"):
            if not feature.owners or known.isdisjoint(feature.owners):
                others.append(feature)
        elif _GENE.fullmatch(feature.type) and "Parent" not in feature.values:
            genes.append(feature)
            known.update([feature.id, *feature.names])
        elif not _PART.fullmatch(feature.type):
            if _TRANSCRIPT.fullmatch(feature.type):
                transcripts.append(feature)
                known.update([feature.id, *feature.owners])
            elif "Parent" in feature.values:
                others.append(feature)

    by_transcript: defaultdict[tuple[str, str], list[_Feature]] = defaultdict(list)
    for feature in others:
        is_known = not known.isdisjoint(feature.owners)
        if feature.type not in ("CDS", "exon"):
            if is_known:  # such as a gene segment, whose parent is a gene
                transcripts.append(feature)
                known.add(feature.id)
        elif not is_known:
            key = feature.name(_GROUP_NAMES)
            if key or feature.type == "CDS":
                key = key or str(feature.line)
                by_transcript[feature.contig, key].append(feature)

    groups = []
    for features in by_transcript.values():
        if known.isdisjoint(features[0].owners):
            exons = [feature for feature in features if feature.type == "exon"]
            groups.append(exons or features)

    return _Genes(genes, transcripts, groups)


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
