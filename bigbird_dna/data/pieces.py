"""Build the data of a start-site model from pieces of genomes and published sequences around start sites.

Loci are compared in the assembly of the published start sites (`home`), and lifted for pieces of another one.
Contigs are named `ASSEMBLY.CHROM_START_END`, 0-based and half-open, and read on the forward strand.
"""

import re
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bigbird_dna.config.data import OtherSitesConfig, PiecesConfig
from bigbird_dna.config.run import Config
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import CUSTOM, load_assembly, open_assembly
from bigbird_dna.genome.fasta import read_fasta
from bigbird_dna.genome.fields import quoted, write_rows
from bigbird_dna.genome.intervals import parse_region, read_bed, strand_column
from bigbird_dna.genome.promoters import lift, read_promoters, write_loci
from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.genome.sequence import (
    OPPOSITE,
    Locus,
    clean,
    clean_bytes,
    fraction_n,
    reverse_complement,
    window_around,
)
from bigbird_dna.genome.similarity import SIMILAR, similar_groups
from bigbird_dna.genome.sources import Inputs
from bigbird_dna.genome.splits import Splits

PROMOTER = 249, 51
"""Bases before a start site, and from it on, that are compared with those of held-out start sites."""

PlacedLoci = Mapping[tuple[str, str], Sequence[Locus]]
"""Loci by assembly and chromosome, sorted by position."""


class Piece(NamedTuple):
    """A part of a chromosome."""

    assembly: str
    chrom: str  # UCSC's name, as in liftOver chains
    start: int
    sequence: str

    @property
    def end(self) -> int:
        """Position after the last base."""
        return self.start + len(self.sequence)

    @property
    def name(self) -> str:
        """Name of the contig."""
        return f"{self.assembly}.{self.chrom}_{self.start}_{self.end}"

    def loci(self, loci: PlacedLoci) -> list[Locus]:
        """Return the loci on the piece, at their positions on the chromosome."""
        some = loci.get((self.assembly, self.chrom), ())
        first = bisect_left(some, self.start, key=lambda x: x.position)
        return list(some[first : bisect_left(some, self.end, key=lambda x: x.position)])

    def around(self, locus: Locus, upstream: int, downstream: int) -> str:
        """Return the bases around a locus in its direction, without those beyond the piece."""
        window = window_around(locus, upstream, downstream)
        first, last = (max(x - self.start, 0) for x in (window.start, window.end))
        text = self.sequence[first:last]
        return text if locus.strand == "+" else reverse_complement(text)

    def differs(self, other: "Piece") -> bool:
        """Return whether the bases in common with another piece of the chromosome differ."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        mine, theirs = (
            x.sequence[start - x.start : end - x.start] for x in (self, other)
        )
        return start < end and mine != theirs


class LiftOver:
    """Loci of the assembly `home` on another assembly, and back; without a chain, there is no other one."""

    def __init__(self, home: str, other: str, chain: Path | None) -> None:
        self.home, self.other, self.chain = home, other, chain

    def lift(self, loci: Sequence[Locus]) -> list[Locus | None]:
        """Return each locus on the other assembly; None without a unique counterpart."""
        if self.chain is None or not loci:
            return [None] * len(loci)

        numbered = [replace(x, name=str(number)) for number, x in enumerate(loci)]
        lifted, _ = lift(numbered, self.chain, load_assembly(self.home).match)
        found = {int(x.name): x for x in lifted}
        return [
            replace(found[number], name=x.name) if number in found else None
            for number, x in enumerate(loci)
        ]

    def place(self, loci: Sequence[Locus]) -> PlacedLoci:
        """Return loci of `home` by place, in both assemblies."""
        lifted = [x for x in self.lift(loci) if x is not None]
        placed = defaultdict(list)
        for assembly, some in ((self.home, loci), (self.other, lifted)):
            for locus in sorted(some, key=lambda x: x.position):
                placed[assembly, locus.contig].append(locus)
        return placed

    def lift_back(self, loci: Iterable[Locus], anchors: Sequence[Locus]) -> list[Locus]:
        """Return loci of the other assembly on `home`, without those that cannot be placed there.

        A locus is placed by its distance to the next anchors, loci of `home`, and accepted if the chain lifts
        it to where it came from.
        """
        known: defaultdict[str, list[tuple[int, str, Locus]]] = defaultdict(list)
        for anchor, lifted in zip(anchors, self.lift(anchors), strict=True):
            if lifted is not None:
                insort(known[lifted.contig], (lifted.position, lifted.strand, anchor))

        guesses, sources = [], []
        for locus in loci:
            near = known[locus.contig]
            number = bisect_left(near, locus.position, key=lambda x: x[0])
            for position, strand, anchor in near[max(number - 1, 0) : number + 1]:
                same = strand == anchor.strand
                distance = locus.position - position
                guess = anchor.position + (distance if same else -distance)
                turned = locus.strand if same else OPPOSITE[locus.strand]
                if guess >= 0:
                    guesses.append(Locus(anchor.contig, guess, turned, locus.name))
                    sources.append(locus)

        lifted_again = self.lift(guesses)
        tried = zip(sources, guesses, lifted_again, strict=True)
        return list(
            {source: guess for source, guess, x in tried if x == source}.values()
        )


def prepare_pieces(
    config: Config, settings: PiecesConfig, inputs: Inputs, output: Path
) -> dict[str, Any]:
    """Write the data set `output` as configured in the sections `genome` and `pieces`; return its counts.

    genome.fa.gz has the pieces, and promoters.tsv all start sites on them; sequences.fa.gz and sequences.tsv
    have the same of the windows, joined where they overlap, if there are any. other_promoters.tsv has start sites of other
    sources on the pieces that are not near a start site of their strand; ignore.bed has the intervals around
    these, on pieces and sequences; pieces.json the counts.
    """
    files = inputs.files
    pieces = read_pieces((files[x.file], x.assembly) for x in settings.genomes)
    lengths = {piece.name: len(piece.sequence) for piece in pieces}
    custom = open_assembly(CUSTOM, title=config.genome.title)
    splits = Splits.from_config(config.genome, lengths, custom)
    split_of = {name: splits.by_contig[name][0].split for name in lengths}
    held_out = [piece for piece in pieces if split_of[piece.name] != "train"]

    over = LiftOver(settings.assembly, "", None)
    if settings.chain is not None:
        other = inputs.sources[settings.chain].assembly
        over = LiftOver(settings.assembly, other, files[settings.chain])

    start_sites = unique(read_promoters(files[settings.sites]), over.home)
    sites = over.place(start_sites)
    bases = {}
    if settings.site_sequences is not None:
        for header, upstream, text in read_records(files[settings.site_sequences]):
            bases["".join(header.split()[1:2])] = upstream, text

    windows = read_windows([files[x] for x in settings.windows], start_sites, over.home)
    kept, dropped = select(windows, pieces, held_out, settings.exclude, sites, over)
    sequences = join(kept)
    if windows and not sequences:
        raise DataError(f"pieces.windows: none is left for training: {dropped}")

    others: list[Locus] = []
    for source in settings.other_sites:
        loci = read_other(files[source.file], source)
        at_home = source.assembly == over.home
        others += loci if at_home else over.lift_back(loci, start_sites)

    others = without_neighbors(others, start_sites, settings.clearance)
    other_sites = over.place(others)

    output.mkdir(parents=True, exist_ok=True)
    for stem, loci_stem, some in (
        ("genome", "promoters", pieces),
        ("sequences", "sequences", sequences),
    ):
        if some:
            records = ((piece.name, piece.sequence) for piece in some)
            write_fasta(output / f"{stem}.fa.gz", records)
            write_loci(output / f"{loci_stem}.tsv", on_contigs(some, sites))

    write_loci(output / "other_promoters.tsv", on_contigs(pieces, other_sites))
    lengths |= {piece.name: len(piece.sequence) for piece in sequences}
    ignored = []
    for locus in on_contigs([*pieces, *sequences], other_sites):
        start = max(locus.position - settings.clearance, 0)
        end = min(locus.position + settings.clearance + 1, lengths[locus.contig])
        ignored.append((locus.contig, start, end, locus.name, 0, locus.strand))

    write_rows(output / "ignore.bed", ignored)
    counts = {
        "start_sites": len(start_sites),
        "other_promoters": len(others),
        "windows": {
            **composition(windows.values()),
            **agreement(windows.items(), bases),
            **dropped,
            "kept": len(kept),
        },
        "sequences": {
            "contigs": len(sequences),
            **composition(sequences),
            "start_sites": len(on_contigs(sequences, sites)),
        },
        "pieces": {
            piece.name: {
                "split": split_of[piece.name],
                **composition([piece]),
                **agreement(((x, piece) for x in piece.loci(sites)), bases),
                "other_promoters": len(piece.loci(other_sites)),
            }
            for piece in pieces
        },
    }
    write_json(output / "pieces.json", counts)
    return counts


def read_pieces(files: Iterable[tuple[Path, str]]) -> list[Piece]:
    """Return the records of FASTA files of assemblies, without N at their ends, joined where they overlap.

    A record is named as a chromosome, or as a part of one: `chr1_999_2000` or `chr1:1000-2000`.
    """
    pieces = []
    for path, assembly in files:
        for name, letters in read_fasta(path):
            text = clean_bytes(letters).decode()
            part = re.sub(r"_(\d+)_(\d+)$", lambda x: f":{int(x[1]) + 1}-{x[2]}", name)
            chrom, start, end = parse_region(part) or (name, 0, None)
            if not load_assembly(assembly).knows(chrom):
                raise DataError(
                    f"{path}: record {name!r}: {assembly} has no contig {chrom!r}"
                )

            if end is not None and end - start != len(text):
                raise DataError(
                    f"{path}: record {name!r} has {len(text):,} bp, not {end - start:,}"
                )

            known = text.strip("N")
            if known:
                start += text.index(known)
                pieces.append(Piece(assembly, ucsc_name(chrom, assembly), start, known))

    return join(pieces)


def join(pieces: Iterable[Piece]) -> list[Piece]:
    """Return pieces by place, joined where they overlap or touch; `DataError` if they differ there."""
    joined: list[Piece] = []
    for piece in sorted(pieces):
        last = joined[-1] if joined else None
        if last is None or last[:2] != piece[:2] or piece.start > last.end:
            joined.append(piece)
            continue

        if last.differs(piece):
            raise DataError(f"{last.name} and {piece.name} differ where they overlap")

        more = piece.sequence[last.end - piece.start :]
        joined[-1] = last._replace(sequence=last.sequence + more)

    return joined


def ucsc_name(contig: str, assembly: str) -> str:
    """Return UCSC's name of a contig; the same name if the assembly does not know it."""
    names = load_assembly(assembly).names_of(contig)
    return min((name for name in names if name.startswith("chr")), default=contig)


def unique(loci: Iterable[Locus], assembly: str) -> list[Locus]:
    """Return the first locus at each position and strand, with UCSC's names of contigs."""
    found: dict[tuple[str, int, str], Locus] = {}
    for locus in loci:
        locus = replace(locus, contig=ucsc_name(locus.contig, assembly))
        found.setdefault((locus.contig, locus.position, locus.strand), locus)
    return list(found.values())


def read_records(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield header, number of bases before the start site, and sequence of FASTA records around start sites.

    The file's name has the positions of the first and last base, as in `x_m249_p50.fa.gz`.
    """
    ends = re.search(r"_m(\d+)_p(\d+)\.", path.name)
    if ends is None:
        raise DataError(f"{path}: the name has no positions such as _m249_p50")

    header, text, count = "", "", 0
    for _, line in [*read_lines(path), (0, ">")]:
        if not line.startswith(">"):
            text += line.strip()
            continue

        if header:
            where = f"{path}: record {quoted(header)}"
            length = int(ends[1]) + int(ends[2]) + 1
            if len(text) != length:
                raise DataError(f"{where} has {len(text):,} bp, not {length:,}")

            yield header, int(ends[1]), clean(text, where)
            count += 1

        header, text = line[1:].strip(), ""

    if not count:
        raise DataError(f"{path}: the file contains no FASTA records with a header")


def read_windows(
    paths: Iterable[Path], start_sites: Iterable[Locus], assembly: str
) -> dict[Locus, Piece]:
    """Return the sequence around each start site, the longest one that agrees with all shorter ones.

    Others are of another copy of the promoter. Headers are `NAME CHROM:POSITION(STRAND)`, with positions from
    1. `DataError`: a sequence is not around a start site.
    """
    sites = {(x.contig, x.position, str(x.strand)): x for x in start_sites}
    found: defaultdict[Locus, list[Piece]] = defaultdict(list)
    for path in paths:
        for header, upstream, text in read_records(path):
            match = re.match(r"\S+ (\S+):(\d+)\(([+-])\)", header)
            locus = (
                sites.get((match[1], int(match[2]) - 1, match[3])) if match else None
            )
            if locus is None:
                raise DataError(
                    f"{path}: record {quoted(header)} is not at a start site: expected NAME "
                    "CHROM:POSITION(STRAND), the position counted from 1"
                )

            start = window_around(locus, upstream, len(text) - upstream).start
            forward = text if locus.strand == "+" else reverse_complement(text)
            found[locus].append(Piece(assembly, locus.contig, start, forward))

    longest: dict[Locus, Piece] = {}
    for locus, pieces in found.items():
        for piece in sorted(pieces, key=lambda x: len(x.sequence)):
            if locus not in longest or not piece.differs(longest[locus]):
                longest[locus] = piece

    return longest


def select(
    windows: Mapping[Locus, Piece],
    pieces: Sequence[Piece],
    held_out: Sequence[Piece],
    exclude: Sequence[str],
    sites: PlacedLoci,
    over: LiftOver,
) -> tuple[list[Piece], dict[str, int]]:
    """Return the windows for training, and the number of others by reason.

    Windows are shorter than pieces: they overlap a piece if one of their ends is on it, in either assembly.
    Those without a base of a piece are still left out if the promoter of one of their start sites is similar
    to that of a held-out one.
    """
    promoters = [window.around(locus, *PROMOTER) for locus, window in windows.items()]
    for piece in held_out:
        promoters += [piece.around(locus, *PROMOTER) for locus in piece.loci(sites)]

    groups = similar_groups(promoters, SIMILAR).tolist()
    of_held_out = set(groups[len(windows) :])
    copies = {
        x for x, group in zip(windows, groups, strict=False) if group in of_held_out
    }

    different = set()
    ordered = sorted(windows.items(), key=lambda x: x[1])
    for number, (locus, window) in enumerate(ordered):
        for other, next_window in ordered[number + 1 :]:
            if next_window[:2] != window[:2] or next_window.start >= window.end:
                break

            if window.differs(next_window):
                different |= {locus, other}

    def pieces_at(assembly: str, end: Locus) -> list[Piece]:
        return [
            piece
            for piece in pieces
            if piece[:2] == (assembly, end.contig)
            and piece.start <= end.position < piece.end
        ]

    ends = [
        Locus(window.chrom, position, "+", "")
        for window in windows.values()
        for position in (window.start, window.end - 1)
    ]
    touched = [
        pieces_at(over.home, end) + (pieces_at(over.other, lifted) if lifted else [])
        for end, lifted in zip(ends, over.lift(ends), strict=True)
    ]
    kept = []
    dropped: Counter[str] = Counter()
    for number, (locus, window) in enumerate(windows.items()):
        overlapped = touched[2 * number] + touched[2 * number + 1]
        if window.chrom in exclude:
            dropped["excluded_chromosome"] += 1
        elif any(piece in held_out for piece in overlapped):
            dropped["overlap_held_out_piece"] += 1
        elif overlapped:
            dropped["overlap_training_piece"] += 1
        elif locus in different:
            dropped["differ_from_overlapping_window"] += 1
        elif copies.intersection(window.loci(sites)):
            dropped["similar_to_held_out_promoter"] += 1
        else:
            kept.append(window)

    return kept, dict(dropped)


def read_other(path: Path, source: OtherSitesConfig) -> list[Locus]:
    """Return the start sites of a file by UCSC's names of contigs; their names begin with the source's.

    A `.txt` file has transcripts in SpliceAI's columns: gene, paralog, contig, strand, first and last base,
    counted from 1.
    """
    if path.name.removesuffix(".gz").endswith(".txt"):
        loci = []
        for number, line in read_lines(path):
            try:
                gene, _, contig, strand, first, last = line.split("\t")[:6]
                position = int(first if strand == "+" else last) - 1
                loci.append(Locus(contig, position, strand, gene))  # type: ignore[arg-type]
            except ValueError as error:
                raise DataError(f"{path}: line {number}: {error}") from None
    elif source.centered:
        loci = []
        for number, fields, start, end in read_bed(path):
            try:
                strand = strand_column(fields)
                loci.append(Locus(fields[0], (start + end) // 2, strand, fields[3]))  # type: ignore[arg-type]
            except (ValueError, IndexError) as error:
                raise DataError(f"{path}: line {number}: {error}") from None
    else:
        loci = read_promoters(path)

    named = (replace(x, name=f"{source.name}:{x.name}") for x in loci)
    return unique(named, source.assembly)


def without_neighbors(
    loci: Iterable[Locus], start_sites: Iterable[Locus], distance: int
) -> list[Locus]:
    """Return the loci that are more than `distance` bp from start sites and earlier loci of their strand."""
    near: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for locus in sorted(start_sites, key=lambda x: x.position):
        near[locus.contig, locus.strand].append(locus.position)

    kept = []
    for locus in loci:
        positions = near[locus.contig, locus.strand]
        number = bisect_left(positions, locus.position - distance)
        if number == len(positions) or positions[number] > locus.position + distance:
            insort(positions, locus.position)
            kept.append(locus)

    return kept


def on_contigs(pieces: Iterable[Piece], loci: PlacedLoci) -> list[Locus]:
    """Return the loci on pieces, by the names of their contigs and at positions on these."""
    return [
        Locus(piece.name, x.position - piece.start, x.strand, x.name)
        for piece in pieces
        for x in piece.loci(loci)
    ]


def composition(pieces: Iterable[Piece]) -> dict[str, float]:
    """Return the number of bases, the fraction of N, and the GC content of the other bases."""
    text = "".join(piece.sequence for piece in pieces)
    gc = (text.count("G") + text.count("C")) / max(len(text) - text.count("N"), 1)
    return {"bp": len(text), "n": round(fraction_n(text), 4), "gc": round(gc, 4)}


def agreement(
    sites: Iterable[tuple[Locus, Piece]], bases: Mapping[str, tuple[int, str]]
) -> dict[str, int]:
    """Return the number of start sites, and of those with and without the published bases around them."""
    counts = {"start_sites": 0, "agree": 0, "disagree": 0}
    for locus, piece in sites:
        counts["start_sites"] += 1
        if locus.name in bases:
            upstream, text = bases[locus.name]
            same = piece.around(locus, upstream, len(text) - upstream) == text
            counts["agree" if same else "disagree"] += 1

    return counts
