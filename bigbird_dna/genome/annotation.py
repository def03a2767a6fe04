"""Read start sites, genes and coding bases from an annotation in GFF3 or GTF.

Start sites are decided gene by gene: the 5' ends of its transcripts; without any, of the gene's line; without
one, of its exons or CDS. The same annotation therefore has the same sites as NCBI's, Ensembl's, GENCODE's or
Prokka's file, some of which have lines of transcripts for RNA genes only. Coding bases are those of the CDS.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from pathlib import Path
from sys import intern
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

import numpy as np

from bigbird_dna.console import log
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import shown, shown_counts
from bigbird_dna.genome.fields import (
    FURTHEST,
    check_name,
    parse_lines,
    quoted,
    site,
    split_columns,
    strand,
    whole_number,
)
from bigbird_dna.genome.sequence import OPPOSITE, Intervals, Locus

T = TypeVar("T")

_CODING = "CDS"
# The stop codon is part of the CDS in GFF3, but not in GTF.
_CODING_TYPES = frozenset({_CODING, "stop_codon"})

# Types of the Sequence Ontology below transcript (SO:0000673), and common synonyms.
_TRANSCRIPT_TYPES = """
    transcript primary_transcript protein_coding_primary_transcript nc_primary_transcript mature_transcript
    processed_transcript unconfirmed_transcript aberrant_processed_transcript NMD_transcript_variant
    monocistronic_transcript polycistronic_transcript monocistronic_mRNA polycistronic_mRNA
    mRNA mRNA_with_frameshift edited_mRNA capped_mRNA polyadenylated_mRNA mRNA_TE_gene
    ncRNA lnc_RNA lncRNA lincRNA antisense_RNA antisense_lncRNA sense_intronic_lncRNA sense_overlap_lncRNA
    intronic_lncRNA bidirectional_promoter_lncRNA three_prime_overlapping_ncrna circular_ncRNA
    tRNA rRNA snRNA snoRNA scRNA scaRNA sRNA miRNA pre_miRNA miRNA_primary_transcript siRNA piRNA
    SRP_RNA RNase_P_RNA RNase_MRP_RNA telomerase_RNA telomeric_transcript vault_RNA Y_RNA tmRNA guide_RNA
    enzymatic_RNA ribozyme hammerhead_ribozyme
    pseudogenic_transcript pseudogenic_tRNA pseudogenic_rRNA
"""
_GENE_TYPES = """
    gene protein_coding_gene ncRNA_gene lncRNA_gene tRNA_gene rRNA_gene snRNA_gene snoRNA_gene scRNA_gene
    miRNA_gene tmRNA_gene telomerase_RNA_gene SRP_RNA_gene RNase_P_RNA_gene RNase_MRP_RNA_gene
    transposable_element_gene pseudogene processed_pseudogene unprocessed_pseudogene
"""
_TRANSCRIPTS, _GENES = (
    frozenset(types.split()) for types in (_TRANSCRIPT_TYPES, _GENE_TYPES)
)
_EXON = "exon"
_GENE_NAMES = ("Name", "gene_name", "gene", "ID", "gene_id", "locus_tag")
_GENE_NAMES_OF_OTHERS = ("gene_name", "gene", "gene_id", "locus_tag", "Parent", "ID")
_NAMES = (
    "ID",
    "Name",
    "transcript_id",
    "Parent",
    "gene",
    "gene_id",
    "gene_name",
    "locus_tag",
)
_BIOTYPES = (
    "gene_biotype",
    "gene_type",
    "biotype",
    "transcript_biotype",
    "transcript_type",
)
# A key does not start within another key, and quantifiers are possessive, so long words are scanned once.
_GTF = re.compile(r'(?<![^\s=;"])([^\s=;"]++)\s++(?:"([^"]*+)"|([^\s";]++))\s*+(?:;|$)')
_OWNER = re.compile(r'(?<![^\s;])(?:Parent=([^;]++)|transcript_id "([^"]++)")')
_CHILD = re.compile(r"(?<![^\s;])(ID|Parent)=([^;]++)")


class Gene(NamedTuple):
    """A gene, or one of its parts if it is trans-spliced or across the origin; 0-based, half-open."""

    contig: str
    start: int
    end: int
    strand: str
    name: str


class _Feature(NamedTuple):
    """A line of a gene, transcript, exon or CDS."""

    line: int
    type: str
    contig: str
    start: int
    end: int
    strand: str  # "." or "?" if it has none
    name: str
    gene_name: str
    id: str  # GFF3's ID
    parents: tuple[str, ...]
    transcript: str  # GTF's transcript_id
    gene_keys: tuple[
        str, ...
    ]  # what lines of one gene have in common: gene_id, locus_tag, gene
    biotype: str
    pseudo: bool
    part: (
        int | None
    )  # number of the part of a trans-spliced feature, 0 if unknown; None: not trans-spliced

    @property
    def stranded(self) -> bool:
        return self.strand in OPPOSITE

    @property
    def key(self) -> str:
        """What the lines of one feature have in common; empty if there is nothing."""
        return self.id or self.transcript or next(iter(self.gene_keys), "")


@dataclass
class _Gene:
    lines: list[_Feature] = field(default_factory=list)
    transcripts: list[_Feature] = field(default_factory=list)
    pieces: list[list[_Feature]] = field(
        default_factory=list
    )  # exons and CDS of a transcript without a line

    @property
    def features(self) -> list[_Feature]:
        """The lines that stand for the gene: its own, else its transcripts, else exons and CDS."""
        return (
            self.lines
            or self.transcripts
            or [feature for piece in self.pieces for feature in piece]
        )

    @property
    def pseudo(self) -> bool:
        return any(one.pseudo for one in self.lines) or all(
            one.pseudo for one in self.transcripts or self.features
        )

    @property
    def biotype(self) -> str:
        """The biotype that the file states, else the type of a line."""
        firsts = (*self.features[:1], *self.transcripts[:1])
        return next((one.biotype for one in firsts if one.biotype), firsts[-1].type)


@dataclass
class _File:
    """What lines have in common, counted or collected while they are read."""

    types: Counter[str] = field(default_factory=Counter)
    circular: dict[str, int] = field(
        default_factory=dict
    )  # lengths of circular contigs
    lengths: dict[str, int] = field(default_factory=dict)  # of ##sequence-region
    furthest: dict[str, int] = field(
        default_factory=dict
    )  # end of the last gene or transcript

    def length(self, contig: str) -> int | None:
        return self.circular.get(contig) or self.lengths.get(contig)


class _Site(NamedTuple):
    line: int
    locus: Locus
    rule: str


def read_annotation(path: Path) -> Iterator[tuple[int, tuple[Locus, str]]]:
    """Yield line, start site and the rule that found it, in the order of a GFF3 or GTF file.

    The start sites of a gene are the 5' ends of its transcripts: features of a Sequence Ontology transcript
    type that are not derived from another transcript, as a miRNA is. If it has none, it is the 5' end of the
    gene; without a line for the gene, of the exons of each transcript, else of the CDS. Lines of one gene
    have its ID as `Parent`, or the same `gene_id`, `locus_tag` or `gene`. A gene across the origin of a
    circular contig has one start site; so has a trans-spliced gene, at the beginning of its first part.

    Pseudogenes are not used. The log states the numbers of genes by biotype, and warns of genes without a
    strand. `DataError` names the malformed line, or the types of a file without any of these.
    """
    file = _File()
    sites: list[_Site] = []
    biotypes: Counter[str] = Counter()
    pseudogenes = 0
    without: list[str] = []
    genes = _genes(path, file)
    for gene in genes:
        if gene.pseudo:
            pseudogenes += 1
            continue
        found = _start_sites(gene, file)
        sites += found
        if found:
            biotypes[gene.biotype] += 1
        else:
            without.append(gene.features[0].gene_name or gene.features[0].name)
    if not sites:
        what = "no transcript, gene or CDS with a strand"
        what += f" ({pseudogenes:,} pseudogenes are not used)" if pseudogenes else ""
        raise DataError(f"{path}: {what}; its features are {_shown_types(file.types)}")
    text = f"{path}: {biotypes.total():,} genes have start sites, by biotype: {shown_counts(biotypes, 12)}"
    log(text + (f"; {pseudogenes:,} pseudogenes are not used" if pseudogenes else ""))
    if without:
        log(
            f"warning: {path}: {len(without):,} of {len(genes) - pseudogenes:,} genes have no start site, "
            f"because they have no strand: {shown(without)}"
        )
    for line, locus, rule in sorted(sites, key=lambda one: one.line):
        yield line, (locus, rule)


def read_coding(path: Path) -> dict[str, Intervals]:
    """Return the coding features of a GFF3 or GTF file, by the file's names of contigs.

    These are the features of type `CDS` and `stop_codon`, which GTF does not include in the CDS, on either
    strand; they may overlap. Features across the origin of a circular contig are divided there. A file
    without `CDS` is a `DataError`.
    """

    def coding(columns: list[str]) -> tuple[str, int, int] | None:
        return (
            (unquote(columns[0]), *_span(columns))
            if columns[2] in _CODING_TYPES
            else None
        )

    file = _File()
    rows = (place for _, place in _features(path, file, coding))
    found = Intervals.collect(rows)
    if not file.types[_CODING]:
        raise DataError(
            f"{path}: no {_CODING} features; its features are {_shown_types(file.types)}"
        )
    for contig, (starts, ends) in found.items():
        length = file.length(contig) or FURTHEST
        across = (starts < length) & (ends > length)
        if across.any():
            rest = ends[across] - length
            found[contig] = Intervals(
                np.append(starts, np.zeros_like(rest)),
                np.append(np.where(across, length, ends), rest),
            )
    return {
        check_name(contig, "contig", str(path)): places
        for contig, places in found.items()
    }


def read_genes(path: Path) -> list[Gene]:
    """Return the genes of a GFF3 or GTF file that have a strand, in file order, with the file's contig names.

    Pseudogenes are included. For a gene without a line of its own, these are its transcripts, or the extents
    of their exons or CDS. A gene across the origin of a circular contig is divided there. `DataError`: the
    file has no such feature, or names the line that is malformed.
    """
    file = _File()
    found: dict[Gene, int] = {}
    for gene in _genes(path, file):
        bodies = [[one] for one in gene.lines or gene.transcripts]
        for features in [] if bodies else gene.pieces:
            divided = _trans_spliced(features) or _origin(features, file)
            bodies += [[one] for one in features] if divided else [features]
        for features in bodies:
            first = features[0]
            if not first.stranded:
                continue
            start, end = (
                min(one.start for one in features),
                max(one.end for one in features),
            )
            length = file.length(first.contig)
            if length and start < length < end:
                found[
                    Gene(first.contig, 0, end - length, first.strand, first.gene_name)
                ] = first.line
                end = length
            found[Gene(first.contig, start, end, first.strand, first.gene_name)] = (
                first.line
            )
    if not found:
        raise DataError(
            f"{path}: no gene on a strand; its features are {_shown_types(file.types)}"
        )
    return sorted(found, key=lambda gene: found[gene])


def _genes(path: Path, file: _File) -> list[_Gene]:
    """Return the genes of a file with their lines, transcripts, and exons and CDS that have no transcript."""
    genes: list[_Feature] = []
    transcripts: list[_Feature] = []
    pieces: dict[tuple[str, str], list[_Feature]] = {}
    # Parents of features of other types, such as gene segments, whose CDS and exons belong to their gene.
    others: dict[tuple[str, str], list[str]] = {}
    # Genes and transcripts so far. Their exons and CDS are most of a file, and add nothing.
    known: set[tuple[str, str]] = set()

    def read(columns: list[str]) -> _Feature | None:
        contig, kind, attributes = unquote(columns[0]), columns[2], columns[8]
        if kind in (_CODING, _EXON):
            owner = _OWNER.search(attributes)
            if owner:
                names = unquote(owner[1]).split(",") if owner[1] else [owner[2]]
                if all((contig, name) in known for name in names):
                    return None
        elif kind not in _TRANSCRIPTS and kind not in _GENES:
            named = dict(_CHILD.findall(attributes))
            if len(named) == 2:
                others[contig, unquote(named["ID"])] = unquote(named["Parent"]).split(
                    ","
                )
            return None
        found = _feature(columns)
        if kind in _GENES or kind in _TRANSCRIPTS:
            file.furthest[contig] = max(file.furthest.get(contig, 0), found.end)
            if found.stranded and (kind in _GENES or found.parents or found.gene_keys):
                known.update(
                    (contig, name) for name in (found.id, found.transcript) if name
                )
        return found

    for number, unnumbered in _features(path, file, read):
        found = unnumbered._replace(line=number)
        if found.type in _GENES:
            genes.append(found)
        elif found.type in _TRANSCRIPTS:
            transcripts.append(found)
        else:
            owners = found.parents or tuple(filter(None, [found.transcript]))
            if not owners and found.type == _CODING:
                # Without an ID, exons of copies of a gene can be told apart by their strand at most.
                named = [
                    key for key in found.gene_keys if not key.startswith("gene=")
                ] or [found.id]
                owners = (
                    named[0] or f"{found.strand}{'&'.join(found.gene_keys) or number}",
                )
            for owner in owners:
                pieces.setdefault((found.contig, owner), []).append(found)
    return _grouped(genes, transcripts, pieces, others)


def _grouped(
    lines: Sequence[_Feature],
    transcripts: Sequence[_Feature],
    pieces: dict[tuple[str, str], list[_Feature]],
    others: dict[tuple[str, str], list[str]],
) -> list[_Gene]:
    """Bring the features of each gene together; leave out transcripts that derive from another one.

    `pieces` has exons and CDS by contig and transcript; `others` the parents of other features.
    """
    genes: list[_Gene] = []
    owners: dict[
        tuple[str, str], _Gene
    ] = {}  # by contig, and ID or other name of a gene or transcript

    def gene_of(contig: str, names: Iterable[str]) -> _Gene | None:
        for name in names:
            for _ in range(5):  # levels of other features
                if found := owners.get((contig, name)):
                    return found
                name = next(iter(others.get((contig, name), ())), "")
        return None

    def add(contig: str, names: Iterable[str], gene: _Gene | None) -> _Gene:
        if gene is None:
            genes.append(gene := _Gene())
        for name in filter(None, names):
            owners.setdefault((contig, name), gene)
        return gene

    for one in lines:
        same = owners.get((one.contig, one.key)) if one.key else None
        add(one.contig, (one.id, *one.gene_keys), same).lines.append(one)
    own = set(owners)  # names of genes
    ids = {(one.contig, one.id) for one in transcripts if one.id} - own
    derived = []
    for one in transcripts:
        if any(name != one.id and (one.contig, name) in ids for name in one.parents):
            derived.append(one)
            continue
        key = one.transcript or one.id
        names = (*one.parents, *one.gene_keys) or (key,)
        gene = gene_of(one.contig, names)
        if (
            gene is None and (one.contig, key) in pieces
        ):  # AUGUSTUS names the gene with exons and CDS only
            names += pieces[one.contig, key][0].gene_keys
            gene = gene_of(one.contig, names)
        add(one.contig, (*names, key), gene).transcripts.append(one)
    for one in derived:
        add(one.contig, [one.id], gene_of(one.contig, one.parents))
    for (contig, owner), features in pieces.items():
        first = features[0]
        names = (owner, *first.gene_keys)
        add(contig, (*names, first.id), gene_of(contig, names)).pieces.append(features)
    return [gene for gene in genes if gene.features]


def _start_sites(gene: _Gene, file: _File) -> list[_Site]:
    """Return the start sites of a gene; none if it has no strand."""
    for features, without in (
        (gene.transcripts, ""),
        (gene.lines, " without a transcript"),
    ):
        chosen = [one for one in features if one.stranded and not one.pseudo]
        if chosen:
            return [
                _site(lines, f"the 5' end of each {lines[0].type}{without}", file)
                for lines in _joined(chosen, file)
            ]
    sites = []
    for features in gene.pieces:
        stranded = [one for one in features if one.stranded and not one.pseudo]
        exons = [one for one in stranded if one.type == _EXON]
        if exons:
            sites.append(
                _site(
                    exons,
                    "the 5' end of the exons of each transcript without a line",
                    file,
                )
            )
        elif stranded:
            sites.append(
                _site(
                    stranded, "the 5' end of the CDS of each gene without a line", file
                )
            )
    return sites


def _joined(features: Sequence[_Feature], file: _File) -> Iterator[list[_Feature]]:
    """Yield the lines of each gene or transcript: one, or all parts if it is trans-spliced or divided.

    Other lines of the same ID are separate.
    """
    same: dict[str | int, list[_Feature]] = defaultdict(list)
    for one in features:
        same[one.key or one.line].append(one)
    for lines in same.values():
        marked = any(one.part is not None for one in lines)
        if marked or (lines[0].id and _trans_spliced(lines)) or _origin(lines, file):
            yield lines
        else:
            yield from ([one] for one in lines)


def _trans_spliced(lines: Sequence[_Feature]) -> bool:
    return (
        any(one.part is not None for one in lines)
        or len({one.strand for one in lines}) == 2
    )


def _origin(lines: Sequence[_Feature], file: _File) -> int | None:
    """Return the length of the contig if lines of one feature are on both sides of its origin, else None."""
    first = lines[0]
    length = file.length(first.contig)
    if length and any(one.start < length < one.end for one in lines):
        return length
    # An intron may be between the ends of a linear contig, but not between two lines of a gene.
    if first.type in (_CODING, _EXON):
        length = file.circular.get(first.contig)
    elif not length:
        length = file.furthest[first.contig]
    ends = [one for one in lines if one.end == length]
    return (
        length
        if ends and any(one.start == 0 and one not in ends for one in lines)
        else None
    )


def _site(lines: Sequence[_Feature], rule: str, file: _File) -> _Site:
    """Return the first base that is transcribed of the lines of one feature."""
    first = min(lines, key=lambda one: (one.part or 0, one.line))
    if _trans_spliced(lines):
        lines = [first]
    length = _origin(lines, file) or file.circular.get(first.contig)
    spans = sorted((one.start, one.end) for one in lines)
    if len(spans) > 1 and spans[0][0] == 0 and spans[-1][1] == length:
        # The contig is cut where the lines are furthest apart, so that they are in order.
        gaps = [start - end for (_, end), (start, _) in pairwise(spans)]
        after = gaps.index(max(gaps)) + 1
        spans = [
            *spans[after:],
            *((start + length, end + length) for start, end in spans[:after]),
        ]
    position = spans[0][0] if first.strand == "+" else max(end for _, end in spans) - 1
    if length:
        position %= length
    name = first.name or f"{first.type}_{first.line}"
    return _Site(
        first.line, Locus(first.contig, position, strand(first.strand), name), rule
    )


def _features(
    path: Path, file: _File, make: Callable[[list[str]], T | None]
) -> Iterator[tuple[int, T]]:
    """Yield line and result of `make` for the columns of each feature; `file` counts all features."""

    def parse(line: str) -> T | None:
        if line.startswith("#"):
            words = line.split()
            if (
                len(words) == 4
                and words[0] == "##sequence-region"
                and (end := whole_number(words[3]))
            ):
                file.lengths[unquote(words[1])] = end
            return None
        columns = split_columns(line, 9)
        file.types[columns[2]] += 1
        if columns[3] == "1" and "Is_circular=true" in columns[8]:
            file.circular[unquote(columns[0])] = _span(columns)[1]
        return make(columns)

    # A GFF3 file may end with sequences.
    with closing(read_lines(path)) as opened:
        lines = takewhile(
            lambda numbered: not numbered[1].startswith(("##FASTA", ">")), opened
        )
        rows = (one for one in lines if one[1].strip())
        yield from parse_lines(path, parse, rows)


def _shown_types(types: Counter[str]) -> str:
    return (
        shown(f"{quoted(name)} {count:,}" for name, count in types.most_common())
        or "none"
    )


def _feature(columns: list[str]) -> _Feature:
    """Return a feature without its line."""
    contig, source, kind, _first, _last, _score, sense, _phase, attributes = columns[:9]
    values = _attributes(attributes)

    def first(keys: Iterable[str]) -> str:
        return next((values[key] for key in keys if values.get(key)), "")

    is_gene = kind in _GENES
    keys = [values.get("gene_id", ""), values.get("locus_tag", "")]
    keys.append(f"gene={values['gene']}" if values.get("gene") else "")
    biotypes = [values[key] for key in _BIOTYPES if values.get(key)]
    pseudo = (
        "pseudogen" in kind
        or "pseudogene" in source
        or any("pseudogene" in one for one in biotypes)
    )
    pseudo |= values.get("pseudo", "false").lower() != "false" or "pseudogene" in values
    part = None
    if "part" in values or "trans-splicing" in values.get("exception", ""):
        part = whole_number(re.split("[/,]", values.get("part", "0"))[0]) or 0
    return _Feature(
        line=0,
        type=intern(kind),
        contig=intern(unquote(contig)),
        start=(span := _span(columns))[0],
        end=span[1],
        strand=sense,
        name=first(_NAMES[2:] if kind == _EXON else _NAMES),
        gene_name=intern(first(_GENE_NAMES if is_gene else _GENE_NAMES_OF_OTHERS)),
        id=values.get("ID", ""),
        parents=tuple(values["Parent"].split(",")) if values.get("Parent") else (),
        transcript="" if is_gene or "ID" in values else values.get("transcript_id", ""),
        gene_keys=tuple(intern(key) for key in keys if key),
        biotype=intern(next(iter(biotypes), "")),
        pseudo=pseudo,
        part=part,
    )


def _span(columns: list[str]) -> tuple[int, int]:
    """Return start and end of a feature, 0-based and half-open."""
    start, last = site(columns[3]), site(columns[4])
    if last < start:
        raise ValueError(f"{columns[2]} {start + 1}-{last + 1} ends before it starts")
    return start, last + 1


def _attributes(text: str) -> dict[str, str]:
    """Parse the attributes of GFF3 (`ID=x;Name=y`) or of GTF (`gene_id "x"; …`); a single word is the ID."""
    if _GTF.match(text.lstrip()):
        return {key: word or bare for key, word, bare in reversed(_GTF.findall(text))}
    pairs = [pair.partition("=") for pair in text.split(";")]
    if (
        len(pairs) == 1 and not pairs[0][1] and len(text.split()) == 1 and text != "."
    ):  # AUGUSTUS
        return {"ID": text.strip()}
    return {
        key.strip(): unquote(value.strip()) for key, equals, value in pairs if equals
    }
