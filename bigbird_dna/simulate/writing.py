"""The demo genome's files; the same contigs give the same bytes."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pysam

from bigbird_dna.simulate.contig import Contig
from bigbird_dna.simulate.motifs import INDEX, LETTERS, MOTIFS
from bigbird_dna.simulate.plan import KINDS
from bigbird_dna.simulate.tracks import TRACKS

_LINE = 60
_LOWER = np.frombuffer(b"acgtn", dtype=np.uint8)

_VCF_HEADER = """\
##fileformat=VCFv4.3
##source=bigbird-dna simulate
##reference=genome.fa.gz
{contigs}\
##INFO=<ID=EFFECT,Number=1,Type=String,Description="True effect on TRACK: loss, gain or none">
##INFO=<ID=TRACK,Number=1,Type=String,Description="Transcription factor track that the variant belongs to">
##INFO=<ID=PLACE,Number=1,Type=String,Description="strong, weak, flank, repair, unrepaired or closed">
##INFO=<ID=SITE,Number=1,Type=Integer,Description="First base of the factor's site, 1-based">
##INFO=<ID=STRAND,Number=1,Type=String,Description="Strand of the factor's site">
#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO
"""


@contextmanager
def gzip_writer(path: Path) -> Iterator[IO[bytes]]:
    """A gzip stream without name and time, so that equal text gives equal bytes."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as stream,
    ):
        yield stream  # type: ignore[misc]


def write_sequence(stream: Any, contig: Contig) -> None:
    """Append a FASTA record in lines of 60, soft-masked."""
    letters = np.where(contig.masked, _LOWER[contig.codes], LETTERS[contig.codes])
    whole = len(letters) // _LINE * _LINE
    lines = np.empty((whole // _LINE, _LINE + 1), dtype=np.uint8)
    lines[:, :_LINE] = letters[:whole].reshape(-1, _LINE)
    lines[:, _LINE] = ord("\n")
    stream.write(f">{contig.name}\n".encode())
    stream.write(lines.tobytes())
    if whole < len(letters):
        stream.write(letters[whole:].tobytes() + b"\n")


def promoter_lines(contig: Contig) -> Iterator[str]:
    """EPDnew's SGA: contig, TSS, 1-based position, strand, 1, name."""
    placed = contig.placed
    order = placed.of("promoter-tata", "promoter-dpe")
    order = order[np.argsort(placed.anchor[order], kind="stable")]
    for number, locus in enumerate(order.tolist(), start=1):
        strand = "-" if placed.minus[locus] else "+"
        name = f"{contig.name.upper()}G{number}_1"
        yield f"{contig.name}\tTSS\t{placed.anchor[locus] + 1}\t{strand}\t1\t{name}\n"


def peak_lines(contig: Contig, track: str) -> Iterator[str]:
    """ENCODE narrowPeak (BED6+4)."""
    peaks = contig.peaks[track]
    rows = zip(*(column.tolist() for column in vars(peaks).values()), strict=True)
    for number, (start, end, summit, signal) in enumerate(rows, start=1):
        name = f"{track}.{contig.name}.{number}"
        score = min(1000, 10 * signal)
        yield (f"{contig.name}\t{start}\t{end}\t{name}\t{score}\t.\t{signal}\t-1\t-1\t{summit - start}\n")


def locus_lines(contig: Contig) -> Iterator[str]:
    """BED6 of everything that was laid down: loci by kind, motif sites, islands and repeats."""
    placed = contig.placed
    rows: list[tuple[int, int, str, str]] = []
    loci = (placed.start, placed.end, placed.kind, placed.anchor, placed.minus)
    for start, end, kind, anchor, minus in zip(*(column.tolist() for column in loci), strict=True):
        rows.append((start, end, f"{KINDS[kind]};anchor={anchor}", "-" if minus else "+"))
    sites = (placed.site_start, placed.motif, placed.site_broken, placed.site_reverse)
    for start, motif, broken, reverse in zip(*(column.tolist() for column in sites), strict=True):
        name = f"motif-{MOTIFS[motif].name}{';broken' if broken else ''}"
        rows.append((start, start + MOTIFS[motif].width, name, "-" if reverse else "+"))
    rows += [(start, end, "island", ".") for start, end in contig.islands]
    rows += [
        (start, end, f"repeat-{family + 1}", "-" if reverse else "+")
        for start, end, family, reverse in contig.repeats
    ]
    for start, end, name, strand in sorted(rows):
        yield f"{contig.name}\t{start}\t{end}\t{name}\t0\t{strand}\n"


def variant_lines(contig: Contig) -> Iterator[str]:
    """VCF records of one contig, numbered within it."""
    for number, variant in enumerate(contig.variants, start=1):
        info = (
            f"EFFECT={variant.effect};TRACK={variant.track};PLACE={variant.place};"
            f"SITE={variant.site_start + 1};STRAND={'-' if variant.site_reverse else '+'}"
        )
        yield (
            f"{contig.name}\t{variant.position + 1}\t{contig.name}v{number}\t{variant.ref}\t"
            f"{variant.alt}\t.\tPASS\t{info}\n"
        )


def vcf_header(lengths: dict[str, int]) -> str:
    """Meta lines and the column line."""
    contigs = "".join(f"##contig=<ID={name},length={size}>\n" for name, size in lengths.items())
    return _VCF_HEADER.format(contigs=contigs)


def track_table() -> str:
    """`tracks.tsv`: track, group, file relative to the table, and what its peaks follow."""
    rows = ["track\tgroup\tfile\tdescription\n"]
    for track, (group, description) in TRACKS.items():
        rows.append(f"{track}\t{group}\tpeaks/{track}.narrowPeak.gz\t{description}\n")
    return "".join(rows)


def contig_numbers(contig: Contig) -> dict[str, Any]:
    """A contig's entry in `truth.json`."""
    known = contig.codes[contig.codes < 4]
    kinds, counts = np.unique(contig.placed.kind, return_counts=True)
    return {
        "length": len(contig.codes),
        "n_bases": len(contig.codes) - len(known),
        "gc": round(float(np.isin(known, (1, 2)).mean()), 4),
        "soft_masked": round(float(contig.masked.mean()), 4),
        "islands": len(contig.islands),
        "loci": {KINDS[kind]: count for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True)},
        "sites": {name: int((contig.placed.motif == index).sum()) for name, index in INDEX.items()},
        "peaks": {track: len(contig.peaks[track].start) for track in TRACKS},
        "variants": {
            effect: sum(variant.effect == effect for variant in contig.variants)
            for effect in ("loss", "gain", "none")
        },
    }


def index_outputs(fasta: Path, vcf: Path) -> None:
    """`.fai` and `.gzi` beside the FASTA, `.tbi` beside the VCF."""
    pysam.faidx(str(fasta))
    pysam.tabix_index(str(vcf), preset="vcf", force=True)
