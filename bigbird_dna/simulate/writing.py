"""Simulate a demo genome contig by contig, and write its files; equal arguments give equal bytes."""

import gzip
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pysam

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import bgzip_writer, quiet_htslib, write_json
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import UsageError
from bigbird_dna.simulate.plan import (
    KINDS,
    PlacedLoci,
    draw_islands,
    place,
    plan_contig,
    plant,
)
from bigbird_dna.simulate.sequence import (
    LETTERS,
    MEGABASES_RANGE,
    MOTIFS,
    N_CODE,
    Codes,
    Flags,
    Parameters,
    background,
    contig_lengths,
    families,
    lay_islands,
    lay_repeats,
    weights,
)
from bigbird_dna.simulate.truth import (
    TRACKS,
    SimulatedPeaks,
    Variant,
    all_sites,
    chromatin_peaks,
    draw_variants,
    factor_peaks,
)


class SimulatedContig(NamedTuple):
    """A simulated contig with its truth; `masked` marks soft-masked bases."""

    name: str
    codes: Codes
    masked: Flags
    placed: PlacedLoci
    islands: list[tuple[int, int]]
    repeats: list[tuple[int, int, int, bool]]
    peaks: dict[str, SimulatedPeaks]
    variants: list[Variant]


def simulate_contig(
    name: str,
    length: int,
    families: list[Codes],
    parameters: Parameters,
    seed: np.random.SeedSequence,
) -> SimulatedContig:
    """Simulate a contig; each stage has a separate random stream and does not affect the others."""
    streams = [np.random.default_rng(child) for child in seed.spawn(7)]
    planning, sequence, repeating, islanding, planting, peaking, varying = streams

    placed = place(plan_contig(length, parameters, planning), length, planning)
    codes = background(length, parameters, sequence)
    repeats = lay_repeats(codes, families, parameters, repeating)
    islands = draw_islands(placed, length, parameters, islanding)
    lay_islands(codes, islands, parameters, islanding)
    masked = np.zeros(length, dtype=bool)
    for start, end, _, _ in repeats:
        masked[start:end] = True
    for start, end in islands:
        masked[start:end] = False
    for locus in placed.of("gap").tolist():
        codes[placed.start[locus] : placed.end[locus]] = N_CODE
        masked[placed.start[locus] : placed.end[locus]] = False
    planted = plant(codes, placed, parameters, planting)

    peaks = chromatin_peaks(placed, islands, length, parameters, peaking)
    sites = all_sites(codes, [peaks["OPEN1"], peaks["OPEN2"]])
    peaks |= factor_peaks(sites, length, peaking)
    variants = draw_variants(codes, placed, planted, sites, parameters, varying)
    return SimulatedContig(
        name, codes, masked, placed, islands, repeats, peaks, variants
    )


_LINE = 60
_LOWER = np.frombuffer(b"acgtn", dtype=np.uint8)

_VCF_HEADER = """\
##fileformat=VCFv4.3
##source=bigbird-dna simulate
##reference=genome.fa.gz
{contigs}\
##INFO=<ID=EFFECT,Number=1,Type=String,Description="True effect on TRACK: loss, gain or none">
##INFO=<ID=TRACK,Number=1,Type=String,Description="Transcription factor track that the variant belongs to">
##INFO=<ID=CATEGORY,Number=1,Type=String,Description="Category of the variant">
##INFO=<ID=SITE,Number=1,Type=Integer,Description="First base of the factor's site, 1-based">
##INFO=<ID=STRAND,Number=1,Type=String,Description="Strand of the factor's site">
#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO
"""


def write_sequence(stream: Any, contig: SimulatedContig) -> None:
    """Write a soft-masked FASTA record in lines of 60."""
    letters = np.where(contig.masked, _LOWER[contig.codes], LETTERS[contig.codes])
    whole = len(letters) // _LINE * _LINE
    lines = np.empty((whole // _LINE, _LINE + 1), dtype=np.uint8)
    lines[:, :_LINE] = letters[:whole].reshape(-1, _LINE)
    lines[:, _LINE] = ord("\n")
    stream.write(f">{contig.name}\n".encode())
    stream.write(lines.tobytes())
    if whole < len(letters):
        stream.write(letters[whole:].tobytes() + b"\n")


def promoter_lines(contig: SimulatedContig) -> Iterator[str]:
    """Yield lines of EPDnew's SGA: contig, TSS, 1-based position, strand, 1, name."""
    placed = contig.placed
    order = placed.of("promoter-tata", "promoter-dpe")
    order = order[np.argsort(placed.anchor[order], kind="stable")]
    for number, locus in enumerate(order.tolist(), start=1):
        strand = "-" if placed.minus[locus] else "+"
        name = f"{contig.name.upper()}G{number}_1"
        yield f"{contig.name}\tTSS\t{placed.anchor[locus] + 1}\t{strand}\t1\t{name}\n"


def peak_lines(contig: SimulatedContig, track: str) -> Iterator[str]:
    """Yield lines in ENCODE narrowPeak format (BED6+4)."""
    peaks = contig.peaks[track]
    rows = zip(*(column.tolist() for column in peaks), strict=True)
    for number, (start, end, summit, signal) in enumerate(rows, start=1):
        name = f"{track}.{contig.name}.{number}"
        score = min(1000, 10 * signal)
        yield (
            f"{contig.name}\t{start}\t{end}\t{name}\t{score}\t.\t{signal}\t-1\t-1\t{summit - start}\n"
        )


def locus_lines(contig: SimulatedContig) -> Iterator[str]:
    """Yield BED6 lines of all planted elements: loci by kind, motif sites, islands and repeats."""
    placed = contig.placed
    rows: list[tuple[int, int, str, str]] = []
    loci = (placed.start, placed.end, placed.kind, placed.anchor, placed.minus)
    for start, end, kind, anchor, minus in zip(
        *(column.tolist() for column in loci), strict=True
    ):
        rows.append(
            (start, end, f"{KINDS[kind]};anchor={anchor}", "-" if minus else "+")
        )
    sites = (placed.site_start, placed.motif, placed.site_broken, placed.site_reverse)
    for start, motif, broken, reverse in zip(
        *(column.tolist() for column in sites), strict=True
    ):
        name = f"motif-{MOTIFS[motif].name}{';broken' if broken else ''}"
        rows.append((start, start + MOTIFS[motif].width, name, "-" if reverse else "+"))
    rows += [(start, end, "island", ".") for start, end in contig.islands]
    rows += [
        (start, end, f"repeat-{family + 1}", "-" if reverse else "+")
        for start, end, family, reverse in contig.repeats
    ]
    for start, end, name, strand in sorted(rows):
        yield f"{contig.name}\t{start}\t{end}\t{name}\t0\t{strand}\n"


def variant_lines(contig: SimulatedContig) -> Iterator[str]:
    """Yield the VCF records of one contig, numbered per contig."""
    for number, variant in enumerate(contig.variants, start=1):
        info = (
            f"EFFECT={variant.effect};TRACK={variant.track};CATEGORY={variant.category};"
            f"SITE={variant.site_start + 1};STRAND={'-' if variant.site_reverse else '+'}"
        )
        yield (
            f"{contig.name}\t{variant.position + 1}\t{contig.name}v{number}\t{variant.ref}\t"
            f"{variant.alt}\t.\tPASS\t{info}\n"
        )


def simulate(
    out_dir: Path, seed: int, megabases: float, parameters: Parameters | None = None
) -> None:
    """Write a demo genome of `megabases` Mb into `out_dir`; equal arguments give equal bytes.

    Files: `genome.fa.gz` (bgzip, soft-masked, with `.fai` and `.gzi`), `promoters.sga`,
    `peaks/{track}.narrowPeak.gz`, `tracks.tsv`, `variants.vcf.gz` (bgzip, with `.tbi`; the true effect in
    INFO), `loci.bed.gz` (all planted elements, including decoys) and `truth.json`. They are moved into place
    when all are complete; other files in `out_dir` are kept.

    `UsageError` for a size outside `MEGABASES_RANGE`, a negative seed, or an `out_dir` that cannot be created
    or contains other files of these names.
    """
    low, high = MEGABASES_RANGE
    if not low <= megabases <= high:
        raise UsageError(f"megabases {megabases:g}: must be from {low:g} to {high:g}")
    if seed < 0:
        raise UsageError(f"seed {seed}: must be at least 0")
    parameters = parameters or Parameters()
    with into_directory(out_dir) as files:
        _write_all(files, seed, contig_lengths(megabases, parameters), parameters)


def _write_all(
    directory: Path, seed: int, lengths: dict[str, int], parameters: Parameters
) -> None:
    """Simulate contig by contig, so that only one contig is in memory."""
    (directory / "peaks").mkdir()
    family_seed, *contig_seeds = np.random.SeedSequence(seed).spawn(1 + len(lengths))
    consensus = families(parameters, np.random.default_rng(family_seed))
    fasta, vcf = directory / "genome.fa.gz", directory / "variants.vcf.gz"
    with ExitStack() as stack:

        def packed(path: Path) -> gzip.GzipFile:
            """Open a gzip stream without name and time, so that equal text gives equal bytes."""
            raw = stack.enter_context(path.open("wb"))
            return stack.enter_context(gzip.GzipFile("", "wb", 6, raw, 0))

        genome = stack.enter_context(bgzip_writer(fasta))
        variants = stack.enter_context(bgzip_writer(vcf))
        sga = stack.enter_context(
            (directory / "promoters.sga").open("w", encoding="utf-8")
        )
        loci = packed(directory / "loci.bed.gz")
        peaks = {
            track: packed(directory / "peaks" / f"{track}.narrowPeak.gz")
            for track in TRACKS
        }
        contig_lines = "".join(
            f"##contig=<ID={name},length={size}>\n" for name, size in lengths.items()
        )
        variants.write(_VCF_HEADER.format(contigs=contig_lines).encode())
        for (name, length), contig_seed in zip(
            lengths.items(), contig_seeds, strict=True
        ):
            contig = simulate_contig(name, length, consensus, parameters, contig_seed)
            write_sequence(genome, contig)
            sga.writelines(promoter_lines(contig))
            loci.write("".join(locus_lines(contig)).encode())
            variants.write("".join(variant_lines(contig)).encode())
            for track, stream in peaks.items():
                stream.write("".join(peak_lines(contig, track)).encode())
            log(f"{name}: {length:,} bp simulated")
    with quiet_htslib():
        pysam.faidx(str(fasta))
        pysam.tabix_index(str(vcf), preset="vcf", force=True)
    rows = [
        f"{track}\t{group}\tpeaks/{track}.narrowPeak.gz\t{description}\n"
        for track, (group, description) in TRACKS.items()
    ]
    (directory / "tracks.tsv").write_text(
        "".join(["track\tgroup\tfile\tdescription\n", *rows]), encoding="utf-8"
    )
    write_json(directory / "truth.json", _truth(seed, parameters, lengths))


def _truth(
    seed: int, parameters: Parameters, lengths: dict[str, int]
) -> dict[str, Any]:
    """Return the content of `truth.json`: the parameters and motifs of the genome."""
    return {
        "seed": seed,
        "parameters": asdict(parameters),
        "suggested_splits": {"valid": ["demo5"], "test": ["demo6"]},
        "motifs": {
            motif.name: {
                "consensus": motif.consensus,
                "description": motif.description,
                "pwm": np.round(weights(motif, parameters), 4).tolist(),
            }
            for motif in MOTIFS
        },
        "tracks": {
            track: {"group": group, "description": description}
            for track, (group, description) in TRACKS.items()
        },
        "contigs": lengths,
    }
