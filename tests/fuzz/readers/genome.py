"""Readers of sequences and of places on them: FASTA, its indices, flat files, BED, chains, VCF, promoters."""

import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from bigbird_dna.data.negatives import open_coding
from bigbird_dna.genome import fasta_index as proofs
from bigbird_dna.genome.assembly import load_assembly, open_assembly
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.genome.fasta import scan_fasta, stream_fasta
from bigbird_dna.genome.intervals import place_peaks, read_peaks
from bigbird_dna.genome.promoters import lift, place, read_loci, read_promoters
from bigbird_dna.genome.records import common_length, find_copies, read_records, read_splits, similar_groups
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Interval, Locus
from bigbird_dna.genome.variants import find_change, open_vcf, scan_vcf
from bigbird_dna.reporting.variants import read_known_effects
from bigbird_dna.scoring.regions import bed_regions
from tests.fuzz.containers import GZIP
from tests.fuzz.reader import Container, Reader
from tests.genome.formats import EMBL, GENBANK
from tests.toys import texts

SEQUENCES = {"chr1": "ACGTTGCAGGATCCATTAGCN" * 12, "chr2": "gattacaRY" * 9}
CONTIGS = {"chr1": 248, "chr2": 81}
NUMBERS = (
    *(b"-1", b"+5", b"1_000", "٣".encode(), b"9" * 5000, b"2147483648", b"18446744073709551616"),
    *(b"1e5", b"nan"),
)
TEXT = (b"\t", b"\r", b"\0", b"\x85", "\u2028".encode(), b"#", b" ", b"..", b"%0A", b"%00")


def _fasta(width: int = 50, newline: str = "\n") -> bytes:
    text = ""
    for name, bases in SEQUENCES.items():
        lines = [bases[start : start + width] for start in range(0, len(bases), width)]
        text += f">{name} described\n" + "\n".join(lines) + "\n"
    return text.replace("\n", newline).encode()


def _bgzip(text: bytes) -> bytes:
    packed = b""
    for start in [*range(0, len(text), 100), len(text)]:
        content = text[start : start + 100]
        deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
        data = deflate.compress(content) + deflate.flush()
        header = b"\x1f\x8b\x08\4\0\0\0\0\0\xff\6\0BC\2\0" + struct.pack("<H", len(data) + 25)
        packed += header + data + struct.pack("<II", zlib.crc32(content), len(content))
    return packed


BGZIP = Container(lambda data: [gzip.decompress(data)], lambda data, members: _bgzip(members[0]))


def _check_reference(path: Path) -> dict[str, str]:
    """The bases of a reference; they must be those that a reading from the start finds."""
    with patch.object(proofs, "TICK", 0), Reference(path) as reference:  # nothing changes it meanwhile
        found = {name: reference.fetch(Interval(name, 0, size)) for name, size in reference.contigs.items()}
        for name, size in reference.contigs.items():
            middle = Interval(name, size // 3, size // 2, "-")
            assert len(reference.fetch(middle)) == len(middle)
    read: dict[str, str] = {}
    for chunk in stream_fasta(path, 1000):
        read[chunk.contig] = read.get(chunk.contig, "") + chunk.sequence
    assert found == read, "wrong bases"
    return found


def _beside(suffix: str) -> Callable[[Path], object]:
    """An index beside a good reference."""

    def read(path: Path) -> object:
        fasta = path.with_name("x.fa" if suffix == ".fai" else "x.fa.gz")
        fasta.write_bytes(_fasta() if suffix == ".fai" else _bgzip(_fasta()))
        path.rename(fasta.with_name(fasta.name + suffix))
        found = _check_reference(fasta)
        assert list(found) == list(SEQUENCES), "other contigs"
        return found

    return read


def _gzip(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


def _read_regions(path: Path) -> object:
    return list(bed_regions(path, texts(**SEQUENCES)))


def _read_flat(path: Path) -> object:
    return prepare_reference(path, path.with_name("out.fa.gz"))


def _read_peaks(path: Path) -> object:
    return place_peaks(read_peaks(path), CONTIGS, load_assembly("demo"), widen=5)


def _read_promoters(path: Path) -> object:
    return place(read_promoters(path), CONTIGS, load_assembly("demo"), str(path))


def _read_coding(path: Path) -> object:
    found = open_coding(path, CONTIGS, load_assembly("demo"))
    for contig, (starts, ends) in found.items():
        assert (starts < ends).all() and (ends[:-1] < starts[1:]).all() and starts[0] >= 0, "not disjoint"
        assert ends[-1] <= CONTIGS[contig], "beyond the contig"
    return found


def _read_aliases(path: Path) -> object:
    assembly = open_assembly("GRCh38", path)
    names = [name for contig in assembly.contigs for name in contig.names]
    assert len(names) == len(set(names)), "a name of two contigs"
    return assembly.match("NC_1.1", ["chr1"])


def _read_sequences(path: Path) -> object:
    records = read_records(path)
    common_length([records])
    find_copies(records.sequences, {})
    return similar_groups([*records.sequences.values()], 0.2)


def _lift(path: Path) -> object:
    loci = [Locus("s", position, "+", "a") for position in range(0, 200, 7)]
    lifted = lift(loci, path, lambda name, names: name if name in names else None)
    assert all(locus.position >= 0 for locus in lifted.loci), "below 0"
    return lifted


def _read_vcf(path: Path) -> object:
    reference = texts(**{name: bases.upper().replace("R", "N") for name, bases in SEQUENCES.items()})
    found = []
    with open_vcf(path) as vcf:
        for record in vcf.records:
            contig = record.contig if record.contig in CONTIGS else None
            reference.contigs = CONTIGS
            found += [find_change(contig, record.start, record.ref, alt, reference) for alt in record.alts]
    return scan_vcf(path), found


def _scored_table(path: Path) -> object:
    truth = path.with_name("truth.vcf")
    truth.write_bytes(SCORED_VCF)
    return read_known_effects(path, truth)


BED = b"track name=x\n#comment\nchr1\t5\t90\tone\t0\t+\nchr2\t0\t81\ttwo\t1000\t-\nchr1 7 8 three\n"
NARROW = b"chr1\t5\t90\t.\t0\t.\t4.5\t3.2\t-1\t20\nchr2\t1\t30\t.\t0\t.\t1\t1\t1\t5\n"
PROMOTERS_BED = b"chr1\t5\t65\tA_1\t900\t+\t55\t65\nchr2\t7\t8\tB_1\t900\t-\n"
SGA = b"chr1\tTSS\t55\t+\t1\tA_1\nchr2\tTSS\t8\t-\t1\n"
FPS = b"ID   x\nFP   %-20s:+S  EU:%-18s 1+%10d; 00000.000\n//\n" % (b"A_1", b"chr1", 55)
PROMOTERS_BED12 = (
    b"chr1\t5\t65\tA_1\t900\t+\t5\t5\t0\t1\t60,\t0,\nchr2\t7\t19\tB_1\t9\t-\t7\t7\t0\t1\t12,\t0,\n"
)
GFF3 = (
    b"##gff-version 3\nchr1\tx\tgene\t5\t90\t.\t+\t.\tID=g;Name=n%20x\n"
    b"chr1\tx\tmRNA\t5\t90\t.\t-\t.\tID=t;Parent=g\nchr2\tx\ttRNA\t1\t9\t.\t+\t.\tgene=y\n##FASTA\n>chr1\nAC\n"
)
GTF = (
    b'#!build x\nchr1\tx\tgene\t5\t90\t.\t+\t.\tgene_id "g"; note "a; b";\n'
    b'chr1\tx\ttranscript\t5\t90\t.\t+\t.\tgene_id "g"; transcript_id "t"; level 2;\n'
)
CODING = (
    b"##gff-version 3\nchr1\tx\tCDS\t5\t90\t.\t+\t0\tID=c\nchr2\tx\tCDS\t1\t9\t.\t-\t0\tParent=t\n"
    b'chr1\tx\tstop_codon\t91\t93\t.\t+\t0\tgene_id "g";\n'
)
ALIASES = b"# names\nchr1\tI\tNC_1.1\nchr2\t\tII\n\nchrM\n"
ASSEMBLY_REPORT = (
    b"# Sequence-Name\tSequence-Role\tAssigned-Molecule\tGenBank-Accn\tRelationship\tRefSeq-Accn\t"
    b"Sequence-Length\tUCSC-style-name\nI\tassembled-molecule\tI\tBK1.1\t=\tNC_1.1\t248\tchr1\n"
    b"s\tunplaced-scaffold\tna\tBK2.1\t<>\tna\t81\tna\n"
)
FRAGMENTS = b">c:11-20\nACGTACGTAC\n>c:1,041-1,044\nACGT\n>d\nAC\n"
SPLITS = b"# mine\nname\tsplit\tgroup\na\ttrain\t0\nb\tvalid\t1\nc\ttest\t1\n"
RECORDS = (
    b">a x\nACGTTGCAGGATCCATTAGCNACGTTG\n>b\nacgttgcaggatccattagcnaCGTTT\n>c\nGGGGGGGGGGGGGGGGGGGGGGGGGGR\n"
)
LOCI = b"contig\tposition\tstrand\tname\nchr1\t54\t+\tA_1\nchr2\t7\t-\tB_1\n"
CHAIN = (
    b"chain 1000 s 200 + 10 40 t 300 - 5 37 1\n10\t5\t7\n15\n\n"
    b"chain 900 s 200 + 100 120 u 90 + 5 25 2\n20\n\n"
)
VCF = (
    b"##fileformat=VCFv4.2\n##contig=<ID=chr1,length=248>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
    b"chr1\t5\trs1\tT\tC,<DEL>,*\t10\tPASS\tAF=0.5;DB\nchr1\t9\t.\tGG\tG\t.\t.\t.\nchr2\t0\t.\tN\t.\t.\t.\t.\n"
)
SCORED_VCF = (
    b"##fileformat=VCFv4.2\n##INFO=<ID=BBD_DELTA,Number=.,Type=Float,"
    b'Description="x: for each ALT the tracks a,b%7C2">\n'
    b"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
    b"chr1\t5\t.\tT\tC,G\t.\t.\tEFFECT=gain,none;TRACK=a;PLACE=x%20y;BBD_DELTA=0.1,-0.2,0.3,4e-3;"
    b"BBD_LOGODDS=1,2,3,4;BBD_NOTE=.,.\n"
    b"chr1\t9\t.\tG\tA\t.\t.\tEFFECT=loss;TRACK=b%7C2;BBD_DELTA=0.1,0.2;BBD_LOGODDS=1,2\n"
)
SCORED_TABLE = (
    b"## bigbird-dna 0.1.0\n#contig\tposition\tid\tref\talt\tnote\ta:delta\ta:logodds\t"
    b"b|2:delta\tb|2:logodds\nchr1\t5\t.\tT\tC\t.\t0.1\t1\t-0.2\t-2.5\n"
    b"chr1\t9\t.\tG\tA\t.\t0.1\t1\t0.2\t2e-1\nchr1\t9\t.\tG\tC\tX\tNA\tNA\tNA\tNA\n"
)
TRACKS = (
    b"# comment\ntrack\tgroup\tcell\ttarget\tfile\tpublished_auroc\tmore\n"
    b"K562|CTCF\tTF\tK562\tCTCF\ta.bed\t0.91\tx\nK562|DNase\tDHS\tK562\tDNase\t\tNA\t\n"
)
INDEXED = (
    b"index\tclass\tcell\ttarget\ttreatment\tfile\turl\tauc_deepsea\n"
    b"0\tDNase\t8988T\tDNase\tNone\tf\tu\t0.88\n1\tTF\tA549\tCTCF\tNone\tf\tu\t0.95\n"
)
SUPPLEMENT = (
    b"Cell Type\tTF/DNase/HistoneMark\tTreatment\tFile accession\tAUC\tAUPRC\tAUPRC Baseline\n"
    b"8988T\tDNase\tNone\tf\t0,88\t0,4\t0,02\nA549\tH3K27ac\tNone\tg\t0,95\t0,5\t0,01\n"
)
FAI = b"chr1\t252\t16\t50\t51\nchr2\t81\t290\t50\t51\n"


WORDS = NUMBERS + TEXT


def _of(
    name: str,
    suffix: str,
    read: Callable[[Path], object],
    *seeds: bytes,
    tokens: tuple[bytes, ...] = WORDS,
    container: Container | None = None,
) -> Reader:
    return Reader(name, suffix, read, lambda: [*seeds], container, tokens)


READERS = [
    _of("fasta", ".fa", scan_fasta, _fasta(), _fasta(60, "\r\n"), tokens=(b">", b"\n>", *TEXT)),
    _of("reference", ".fa", _check_reference, _fasta(), _fasta(60, "\r\n"), tokens=(b"\n>", *TEXT)),
    _of(
        *("reference-bgzip", ".fa.gz", _check_reference, _bgzip(_fasta())),
        tokens=(b"\n>x", *TEXT),
        container=BGZIP,
    ),
    _of("fai", ".fai", _beside(".fai"), FAI, tokens=NUMBERS),
    _of("gzi", ".gzi", _beside(".gzi"), struct.pack("<5Q", 2, 60, 100, 120, 200), tokens=()),
    _of("genbank", ".gb", _read_flat, GENBANK.encode(), tokens=(b"LOCUS       ", b"//\n", b"ORIGIN", *TEXT)),
    _of("embl", ".embl", _read_flat, EMBL.encode(), tokens=(b"ID   ", b"//\n", b"SQ   ", *TEXT)),
    _of("bed", ".bed", _read_peaks, BED),
    _of("narrowpeak", ".narrowPeak.gz", _read_peaks, _gzip(NARROW), tokens=NUMBERS, container=GZIP),
    _of("regions", ".bed", _read_regions, b"chr1\t5\t90\tone\nchr2 3 40\n"),
    _of("promoters-bed", ".bed", _read_promoters, PROMOTERS_BED, PROMOTERS_BED12),
    _of("promoters-sga", ".sga", _read_promoters, SGA),
    _of("promoters-fps", ".fps", _read_promoters, FPS),
    _of("loci", ".tsv", read_loci, LOCI),
    _of("splits", ".tsv", read_splits, SPLITS),
    _of("records", ".fa", _read_sequences, RECORDS, tokens=(b">", b"\n>", *TEXT)),
    _of("chain", ".chain", _lift, CHAIN, tokens=(b"chain ", b"\n\n", *WORDS)),
    _of("vcf", ".vcf", _read_vcf, VCF),
    _of("vcf-bgzip", ".vcf.gz", _read_vcf, _bgzip(VCF), tokens=NUMBERS, container=BGZIP),
    _of("scored-vcf", ".vcf", read_known_effects, SCORED_VCF),
    _of("scored-table", ".tsv", _scored_table, SCORED_TABLE),
    _of("gff3", ".gff3", _read_promoters, GFF3),
    _of("gtf", ".gtf.gz", _read_promoters, _gzip(GTF), container=GZIP),
    _of("coding", ".gff3", _read_coding, CODING),
    _of("aliases", ".tsv", _read_aliases, ALIASES, ASSEMBLY_REPORT, tokens=TEXT),
    _of("fragments", ".fa", _read_flat, FRAGMENTS, tokens=(b"\n>", b":", b"-", b",", *WORDS)),
    _of("tracks", ".tsv", read_tracks, TRACKS, INDEXED, SUPPLEMENT),
]
