"""Read start sites and coding bases from an annotation in GFF3 or GTF.

Start sites are the 5' ends of the transcripts, or of the genes. Coding bases are those of the CDS.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

from bigbird_dna.console import log
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import shown
from bigbird_dna.genome.fields import check_name, parse_lines, quoted, site, split_columns, strand
from bigbird_dna.genome.sequence import OPPOSITE, Intervals, Locus, Strand

T = TypeVar("T")

_MOST = 4_000_000  # features kept per file, to limit memory
_MOST_TYPES = 10_000
_CODING = "CDS"
# The stop codon is part of the CDS in GFF3, but not in GTF.
_CODING_TYPES = frozenset({_CODING, "stop_codon"})

# Types of the Sequence Ontology below transcript (SO:0000673), and common synonyms. Those of pseudogenes are
# excluded.
_MESSENGER_TYPES = """
    transcript primary_transcript protein_coding_primary_transcript nc_primary_transcript mature_transcript
    processed_transcript unconfirmed_transcript aberrant_processed_transcript NMD_transcript_variant
    monocistronic_transcript polycistronic_transcript monocistronic_mRNA polycistronic_mRNA
    mRNA mRNA_with_frameshift edited_mRNA capped_mRNA polyadenylated_mRNA
"""
_OTHER_TYPES = """
    ncRNA lnc_RNA lncRNA lincRNA antisense_RNA antisense_lncRNA sense_intronic_lncRNA sense_overlap_lncRNA
    intronic_lncRNA bidirectional_promoter_lncRNA three_prime_overlapping_ncrna circular_ncRNA
    tRNA rRNA snRNA snoRNA scRNA scaRNA sRNA miRNA pre_miRNA miRNA_primary_transcript siRNA piRNA
    SRP_RNA RNase_P_RNA RNase_MRP_RNA telomerase_RNA telomeric_transcript vault_RNA Y_RNA tmRNA guide_RNA
    enzymatic_RNA ribozyme hammerhead_ribozyme
"""
_GENE_TYPES = """
    gene protein_coding_gene ncRNA_gene lncRNA_gene tRNA_gene rRNA_gene snRNA_gene snoRNA_gene miRNA_gene
"""
_MESSENGERS, _OTHERS, _GENES = (
    frozenset(types.split()) for types in (_MESSENGER_TYPES, _OTHER_TYPES, _GENE_TYPES)
)
_KEPT = _MESSENGERS | _OTHERS | _GENES
_GENE_NAMES = ("Name", "gene_name", "gene", "ID", "gene_id", "locus_tag")
_NAMES = ("ID", "Name", "transcript_id", "gene", "gene_id", "gene_name", "locus_tag")
# A key does not start within another key, and quantifiers are possessive, so long words are scanned once.
_GTF = re.compile(r'(?<![^\s=;"])([^\s=;"]++)\s++(?:"([^"]*+)"|([^\s";]++))\s*+(?:;|$)')


class Gene(NamedTuple):
    """A gene; 0-based, half-open."""

    contig: str
    start: int
    end: int
    strand: str
    name: str


class CodingTranscript(NamedTuple):
    """The coding parts of a transcript, ascending; 0-based, half-open, without the stop codon in GTF."""

    contig: str
    strand: Strand
    name: str
    parts: tuple[tuple[int, int], ...]


class _Feature(NamedTuple):
    """A transcript or gene, with its ID and its parents' IDs."""

    line: int
    type: str
    locus: Locus
    id: str | None
    parents: tuple[str, ...]


def read_annotation(path: Path) -> Iterator[tuple[int, tuple[Locus, str]]]:
    """Yield line, start site and the rule that found it, for each transcript in a GFF3 or GTF file.

    A transcript is a feature of a Sequence Ontology transcript type that is not derived from another
    transcript, as a miRNA is. If the file has no mRNA or transcript features, as in annotations of bacteria,
    genes are used instead; without genes, other RNAs. `DataError` names the malformed line, or the types of a
    file without any of these.
    """
    types: Counter[str] = Counter()
    kept = [feature._replace(line=number) for number, feature in _features(path, types, _transcript)]
    genes = [feature for feature in kept if feature.type in _GENES]
    chosen, reason = genes, ", as the file has no mRNA or transcript"
    if _MESSENGERS & types.keys() or not genes:
        transcripts = [feature for feature in kept if feature.type not in _GENES]
        ids = {feature.id for feature in transcripts if feature.id is not None}
        chosen, reason = [feature for feature in transcripts if ids.isdisjoint(feature.parents)], ""
    if not chosen:
        raise DataError(
            f"{path}: no transcript, mRNA or gene with a strand; its features are {_shown_types(types)}"
        )
    named = {feature.type for feature in chosen}
    unstranded = sum(types[name] for name in named) - sum(feature.type in named for feature in kept)
    if unstranded:
        log(f"warning: {path}: {unstranded:,} of {' and '.join(sorted(named))} are skipped: no strand")
    for feature in chosen:
        locus = replace(feature.locus, name=feature.locus.name or f"{feature.type}_{feature.line}")
        yield feature.line, (locus, f"the 5' end of each {feature.type}{reason}")


def read_coding(path: Path) -> dict[str, Intervals]:
    """Return the coding features of a GFF3 or GTF file, by the file's names of contigs, in file order.

    These are the features of type `CDS` and `stop_codon`, which GTF does not include in the CDS, on either
    strand; they may overlap. A file without `CDS` is a `DataError`.
    """

    def coding(columns: list[str]) -> tuple[str, int, int] | None:
        return (unquote(columns[0]), *_span(columns)) if columns[2] in _CODING_TYPES else None

    types: Counter[str] = Counter()
    rows = ((number, *place) for number, place in _features(path, types, coding))
    found = Intervals.collect(path, rows, _MOST)
    if not types[_CODING]:
        raise DataError(f"{path}: no {_CODING} features; its features are {_shown_types(types)}")
    return {check_name(contig, "contig", str(path)): places for contig, places in found.items()}


def read_transcripts(path: Path) -> list[CodingTranscript]:
    """Return the transcripts of a GTF file that have coding features, in file order, with the file's contig
    names. `DataError`: the file has no CDS of a named transcript, or names the line that is malformed."""

    def part(columns: list[str]) -> tuple[tuple[str, str, str], tuple[int, int]] | None:
        name = _attributes(columns[8]).get("transcript_id")
        if columns[2] != _CODING or columns[6] not in OPPOSITE or not name:
            return None
        return (unquote(columns[0]), columns[6], name), _span(columns)

    types: Counter[str] = Counter()
    found: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for _, (key, span) in _features(path, types, part):
        found.setdefault(key, []).append(span)
    if not found:
        raise DataError(f"{path}: no {_CODING} with a transcript_id; its features are {_shown_types(types)}")
    return [
        CodingTranscript(contig, strand(sense), name, tuple(sorted(spans)))
        for (contig, sense, name), spans in found.items()
    ]


def read_genes(path: Path) -> list[Gene]:
    """Return the genes of a GFF3 or GTF file that have a strand, in file order, with the file's contig names.
    `DataError`: the file has no such feature, or names the line that is malformed."""

    def gene(columns: list[str]) -> Gene | None:
        if columns[2] not in _GENES or columns[6] not in OPPOSITE:
            return None
        values = _attributes(columns[8])
        name = next((values[key] for key in _GENE_NAMES if values.get(key)), "")
        return Gene(unquote(columns[0]), *_span(columns), strand(columns[6]), name)

    types: Counter[str] = Counter()
    found = [one for _, one in _features(path, types, gene)]
    if not found:
        raise DataError(f"{path}: no gene on a strand; its features are {_shown_types(types)}")
    return found


def _features(
    path: Path, types: Counter[str], make: Callable[[list[str]], T | None]
) -> Iterator[tuple[int, T]]:
    """Yield line and result of `make` for the columns of each feature; `types` counts all features."""

    def parse(line: str) -> T | None:
        columns = split_columns(line, 9)
        types[columns[2]] += 1
        if len(types) > _MOST_TYPES:
            raise ValueError(f"more than {_MOST_TYPES:,} kinds of features")
        return make(columns)

    # A GFF3 file may end with sequences.
    with closing(read_lines(path)) as opened:
        lines = takewhile(lambda numbered: not numbered[1].startswith(("##FASTA", ">")), opened)
        rows = (one for one in lines if one[1].strip() and not one[1].startswith("#"))
        for count, (number, found) in enumerate(parse_lines(path, parse, rows)):
            if count == _MOST:
                raise DataError(f"{path}: line {number}: more than {_MOST:,} such features")
            yield number, found


def _shown_types(types: Counter[str]) -> str:
    return shown(f"{quoted(name)} {count:,}" for name, count in types.most_common()) or "none"


def _transcript(columns: list[str]) -> _Feature | None:
    contig, _source, kind, _first, _last, _score, sense, _phase, attributes = columns[:9]
    if kind not in _KEPT or sense not in OPPOSITE:
        return None
    start, end = _span(columns)
    own = strand(sense)
    values = _attributes(attributes)
    name = next((values[key] for key in _NAMES if values.get(key)), "")
    locus = Locus(unquote(contig), start if own == "+" else end - 1, own, name)
    parents = values.get("Parent", "")
    return _Feature(0, kind, locus, values.get("ID"), tuple(parents.split(",")) if parents else ())


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
    pairs = (pair.partition("=") for pair in text.split(";"))
    return {key.strip(): unquote(value.strip()) for key, equals, value in pairs if equals}
