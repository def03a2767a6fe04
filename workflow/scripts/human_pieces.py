"""Build a training genome from pieces of human chromosomes and published sequences around start sites.

    python workflow/scripts/human_pieces.py workflow/config/human_pieces.yaml --set data_dir=DIRECTORY -o OUTPUT

Start sites are compared in one assembly (`home`) and lifted for the pieces of the other one. Contigs are named
`ASSEMBLY.CHROM_START_END`, 0-based and half-open, and are read on the forward strand.
"""

import argparse
import re
import sys
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pysam

from bigbird_dna.config.reading import checked, load_config
from bigbird_dna.config.run import Config
from bigbird_dna.config.section import ContigName, FileName, Section, field
from bigbird_dna.console import log
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import BigBirdDnaError, ConfigError, DataError
from bigbird_dna.genome.assembly import CUSTOM, load_assembly, open_assembly
from bigbird_dna.genome.download import fetch
from bigbird_dna.genome.fasta import read_fasta
from bigbird_dna.genome.fields import write_rows
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
from bigbird_dna.genome.sources import load_sources, locate, searched
from bigbird_dna.genome.splits import Splits

PROMOTER = 249, 51
"""Bases before a start site, and from it on, that are compared with those of held-out start sites."""

HumanAssembly = Literal["GRCh37", "GRCh38"]


class FileSettings(Section):
    file: FileName = field(..., "file in data_dir or the working directory")
    assembly: HumanAssembly = field(..., "assembly of its chromosomes")


class OtherSitesSettings(FileSettings):
    name: str = field(..., "name of the source, which begins the names of its sites")


class Settings(Section):
    """The section `pieces` of a configuration."""

    genomes: tuple[FileSettings, ...] = field(
        ..., "FASTA; records are named chr1, chr1_999_2000 or chr1:1000-2000"
    )
    assembly: HumanAssembly = field(..., "assembly of start sites and windows")
    sites: FileName = field(..., "start sites: key in resources/sources.yaml, or file")
    chain: FileName = field(..., "liftOver chain to the other assembly, as sites")
    site_sequences: FileName = field(
        ..., "FASTA of the bases around each site, for a check, such as x_m10_p49.fa.gz"
    )
    windows: tuple[FileName, ...] = field(
        ...,
        "FASTA files around sites, the shortest first, such as x_m249_p50.fa.gz; headers: NAME CHROM:POSITION(STRAND)",
    )
    exclude: tuple[ContigName, ...] = field((), "chromosomes without windows")
    shortest: int = field(
        0,
        "length of the shortest windows that are kept, after joining, bp: where training windows are longer, "
        "the length of a sequence would show that it has a start site",
        ge=0,
    )
    other_sites: tuple[OtherSitesSettings, ...] = field(
        (), "start sites that are neither positives nor negatives"
    )
    clearance: int = field(
        500, "distance within which a site of a strand is the same, bp", ge=0
    )


def load_settings(
    config: Config, source: str = "configuration"
) -> tuple[Settings, dict[str, Path]]:
    """Return the section `pieces`, and its files by the names that it has; `ConfigError` if one is missing.

    Public files are those of the run's downloads, which need not exist yet.
    """
    settings = checked(Settings, config.pieces or {}, f"{source}: pieces")
    known = load_sources()
    files = {}
    for name in (
        *(x.file for x in (*settings.genomes, *settings.other_sites)),
        *(settings.sites, settings.chain, settings.site_sequences),
        *settings.windows,
    ):
        files[name] = locate(name, config.data_dir)
        if name in known:
            files[name] = config.paths.download(known[name].file)
        elif not files[name].is_file():
            raise ConfigError(
                f"{source}: pieces: {name!r} is not a file {searched(config)}, nor a known source"
            )

    return settings, files


class Piece(NamedTuple):
    """A part of a chromosome."""

    assembly: str
    chrom: str  # UCSC's name, as in liftOver chains
    start: int
    sequence: str

    @property
    def end(self) -> int:
        return self.start + len(self.sequence)

    @property
    def name(self) -> str:
        return f"{self.assembly}.{self.chrom}_{self.start}_{self.end}"

    def around(self, locus: Locus, upstream: int, downstream: int) -> str:
        """Return the bases around a locus in its direction, without those beyond the piece."""
        window = window_around(locus, upstream, downstream)
        first, last = (max(x - self.start, 0) for x in (window.start, window.end))
        text = self.sequence[first:last]
        return text if locus.strand == "+" else reverse_complement(text)

    def differs(self, other: "Piece") -> bool:
        """Return whether the bases in common with another piece of the chromosome differ."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        here, there = (
            x.sequence[start - x.start : end - x.start] for x in (self, other)
        )
        return start < end and here != there


class Loci:
    """Loci by assembly and chromosome, sorted by position."""

    def __init__(self, loci: Iterable[tuple[str, Locus]]) -> None:
        self.placed: defaultdict[tuple[str, str], list[Locus]] = defaultdict(list)
        for assembly, locus in sorted(loci, key=lambda x: x[1].position):
            self.placed[assembly, locus.contig].append(locus)

    def on(self, piece: Piece) -> list[Locus]:
        """Return the loci on a piece, at their positions on the chromosome."""
        loci = self.placed[piece.assembly, piece.chrom]
        first = bisect_left(loci, piece.start, key=lambda x: x.position)
        return loci[first : bisect_left(loci, piece.end, key=lambda x: x.position)]

    def on_contigs(self, pieces: Iterable[Piece]) -> list[Locus]:
        """Return the loci on pieces, at their positions on these."""
        return [
            Locus(piece.name, x.position - piece.start, x.strand, x.name)
            for piece in pieces
            for x in self.on(piece)
        ]


@dataclass
class LiftOver:
    """Lifts loci of the assembly `home` to the other one, and back."""

    home: str
    other: str
    chain: Path

    def lift(self, loci: Sequence[Locus]) -> list[Locus | None]:
        """Return each locus on the other assembly; None without a unique counterpart."""
        if not loci:
            return []

        numbered = [replace(x, name=str(number)) for number, x in enumerate(loci)]
        lifted, _ = lift(numbered, self.chain, load_assembly(self.home).match)
        found = {int(x.name): x for x in lifted}
        return [
            replace(found[number], name=x.name) if number in found else None
            for number, x in enumerate(loci)
        ]

    def place(self, loci: Sequence[Locus]) -> Loci:
        """Return loci of `home` on both assemblies."""
        lifted = [(self.other, x) for x in self.lift(loci) if x is not None]
        return Loci([(self.home, x) for x in loci] + lifted)

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
                direction = locus.strand if same else OPPOSITE[locus.strand]
                if guess >= 0:
                    guesses.append(Locus(anchor.contig, guess, direction, locus.name))
                    sources.append(locus)

        again = self.lift(guesses)
        tried = zip(sources, guesses, again, strict=True)
        return list(
            {source: guess for source, guess, x in tried if x == source}.values()
        )


def prepare(
    config: Config, settings: Settings, files: Mapping[str, Path], output: Path
) -> dict[str, Any]:
    """Write the data set to the directory `output`, and return its counts, which are in pieces.json.

    genome.fa.gz has the pieces, and the sequences around start sites, joined where they overlap, which are
    for training; promoters.tsv has all start sites on both. other_promoters.tsv has start sites of other
    sources on the pieces that are not near a start site of their strand; ignore.bed has the intervals around
    these on all contigs.
    """
    pieces = read_pieces((files[x.file], x.assembly) for x in settings.genomes)
    split_of = assign_splits(config, pieces)
    held_out = [piece for piece in pieces if split_of[piece.name] != "train"]

    home = settings.assembly
    other = "GRCh37" if home == "GRCh38" else "GRCh38"
    liftover = LiftOver(home, other, files[settings.chain])
    start_sites = unique(read_promoters(files[settings.sites]), home)
    sites = liftover.place(start_sites)
    bases = {}
    for _, comment, upstream, text in read_records(files[settings.site_sequences]):
        bases["".join(comment.split()[:1])] = upstream, text

    windows = read_windows([files[x] for x in settings.windows], start_sites, home)
    kept, dropped = select(windows, pieces, held_out, settings.exclude, sites, liftover)
    sequences = [x for x in join(kept) if len(x.sequence) >= settings.shortest]
    contigs = [*pieces, *sequences]
    splits = assign_splits(config, contigs)
    for piece in sequences:
        if splits[piece.name] != "train":
            raise ConfigError(
                f"genome: {piece.name}, a sequence around start sites, must not be held out"
            )

    others: list[Locus] = []
    for source in settings.other_sites:
        loci = read_other(files[source.file], source.name, source.assembly)
        at_home = source.assembly == home
        others += loci if at_home else liftover.lift_back(loci, start_sites)

    others = without_neighbors(others, start_sites, settings.clearance)
    other_sites = liftover.place(others)
    lengths = {piece.name: len(piece.sequence) for piece in contigs}
    ignored = []
    for x in other_sites.on_contigs(contigs):
        start = max(x.position - settings.clearance, 0)
        end = min(x.position + settings.clearance + 1, lengths[x.contig])
        ignored.append((x.contig, start, end, x.name, 0, x.strand))

    output.mkdir(parents=True, exist_ok=True)
    write_fasta(output / "genome.fa.gz", ((x.name, x.sequence) for x in contigs))
    write_loci(output / "promoters.tsv", sites.on_contigs(contigs))
    write_loci(output / "other_promoters.tsv", other_sites.on_contigs(pieces))
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
            "start_sites": len(sites.on_contigs(sequences)),
        },
        "pieces": {
            piece.name: {
                "split": split_of[piece.name],
                **composition([piece]),
                **agreement(((x, piece) for x in sites.on(piece)), bases),
                "other_promoters": len(other_sites.on(piece)),
            }
            for piece in pieces
        },
    }
    write_json(output / "pieces.json", counts)
    return counts


def assign_splits(config: Config, pieces: Iterable[Piece]) -> dict[str, str | None]:
    """Return the split of each piece by the configuration's section `genome`."""
    lengths = {piece.name: len(piece.sequence) for piece in pieces}
    assembly = open_assembly(CUSTOM, title=config.genome.title)
    by_contig = Splits.from_config(config.genome, lengths, assembly).by_contig
    return {name: by_contig[name][0].split for name in lengths}


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
            where = f"{path}: record {name!r}"
            if not load_assembly(assembly).knows(chrom):
                raise DataError(f"{where}: {assembly} has no contig {chrom!r}")

            if end is not None and end - start != len(text):
                raise DataError(f"{where} has {len(text):,} bp, not {end - start:,}")

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


def read_records(path: Path) -> Iterator[tuple[str, str, int, str]]:
    """Yield name, comment, bases before the start site, and sequence of FASTA records around start sites.

    The file's name has the positions of the first and last base, as in `x_m249_p50.fa.gz`.
    """
    ends = re.search(r"_m(\d+)_p(\d+)\.", path.name)
    if ends is None:
        raise DataError(f"{path}: the name has no positions such as _m249_p50")

    upstream = int(ends[1])
    length = upstream + int(ends[2]) + 1
    record = None
    with pysam.FastxFile(str(path)) as records:
        for record in records:
            where = f"{path}: record {record.name!r}"
            if len(record.sequence) != length:
                raise DataError(
                    f"{where} has {len(record.sequence):,} bp, not {length:,}"
                )

            text = clean(record.sequence, where)
            yield record.name, record.comment or "", upstream, text

    if record is None:
        raise DataError(f"{path}: the file contains no FASTA records")


def read_windows(
    paths: Iterable[Path], start_sites: Iterable[Locus], assembly: str
) -> dict[Locus, Piece]:
    """Return the sequence around each start site, of files with longer and longer sequences.

    It is the last one that agrees with all before; others are of another copy of the promoter. Headers are
    `NAME CHROM:POSITION(STRAND)`, with positions from 1. `DataError`: a sequence is not around a start site.
    """
    sites = {(x.contig, x.position, str(x.strand)): x for x in start_sites}
    windows: dict[Locus, Piece] = {}
    for path in paths:
        for name, comment, upstream, text in read_records(path):
            match = re.match(r"(\S+):(\d+)\(([+-])\)", comment)
            locus = (
                sites.get((match[1], int(match[2]) - 1, match[3])) if match else None
            )
            if locus is None:
                raise DataError(
                    f"{path}: record '{name} {comment}' is not at a start site: expected NAME "
                    "CHROM:POSITION(STRAND), the position counted from 1"
                )

            start = window_around(locus, upstream, len(text) - upstream).start
            forward = text if locus.strand == "+" else reverse_complement(text)
            window = Piece(assembly, locus.contig, start, forward)
            if locus not in windows or not window.differs(windows[locus]):
                windows[locus] = window

    return windows


def select(
    windows: Mapping[Locus, Piece],
    pieces: Sequence[Piece],
    held_out: Sequence[Piece],
    exclude: Sequence[str],
    sites: Loci,
    liftover: LiftOver,
) -> tuple[list[Piece], dict[str, int]]:
    """Return the windows for training, and the number of others by reason.

    Windows are shorter than pieces: they overlap a piece if one of their ends is on it, in either assembly.
    Those without a base of a piece are still left out if the promoter of one of their start sites is similar
    to that of a held-out one.
    """
    promoters = [window.around(locus, *PROMOTER) for locus, window in windows.items()]
    for piece in held_out:
        promoters += [piece.around(locus, *PROMOTER) for locus in sites.on(piece)]

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

    def piece_at(assembly: str, end: Locus) -> list[Piece]:
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
        piece_at(liftover.home, end) + (piece_at(liftover.other, x) if x else [])
        for end, x in zip(ends, liftover.lift(ends), strict=True)
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
        elif copies.intersection(sites.on(window)):
            dropped["similar_to_held_out_promoter"] += 1
        else:
            kept.append(window)

    return kept, dict(dropped)


def read_other(path: Path, source: str, assembly: str) -> list[Locus]:
    """Return the start sites of another source, with its name before theirs.

    They are the centers of a BED file's intervals. A `.txt` file has transcripts in SpliceAI's columns: gene,
    paralog, contig, strand, first and last base, counted from 1.
    """
    is_table = path.name.removesuffix(".gz").endswith(".txt")
    loci = []
    for number, *fields in read_lines(path) if is_table else read_bed(path):
        try:
            if is_table:
                name, _, contig, strand, first, last = fields[0].split("\t")[:6]
                position = int(first if strand == "+" else last) - 1
            else:
                columns, start, end = fields
                contig, name, strand = columns[0], columns[3], strand_column(columns)
                position = (start + end) // 2

            loci.append(Locus(contig, position, strand, f"{source}:{name}"))
        except (ValueError, IndexError) as error:
            raise DataError(f"{path}: line {number}: {error}") from None

    return unique(loci, assembly)


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path, metavar="CONFIG", help="configuration")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", required=True)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="another value"
    )
    arguments = parser.parse_args()
    try:
        config = load_config(arguments.config, arguments.set)
        settings, files = load_settings(config, str(arguments.config))
        for name in (settings.sites, settings.chain):
            if not files[name].exists():
                data_dir = None if config.data_dir is None else Path(config.data_dir)
                fetch(name, files[name], data_dir)

        counts = prepare(config, settings, files, arguments.output)
    except BigBirdDnaError as error:
        sys.exit(f"error: {error}")

    log(f"{arguments.output}: {counts['windows']}, {counts['sequences']}")


if __name__ == "__main__":
    main()
