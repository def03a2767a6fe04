"""Files of every format of the genome that are damaged, cut or something else: one line, with the file."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from bigbird_dna.errors import BigBirdDnaError, ConfigError, DataError
from bigbird_dna.genome.annotation import read_coding
from bigbird_dna.genome.assembly import open_assembly
from bigbird_dna.genome.chromatin.tracks import read_tracks
from bigbird_dna.genome.intervals import read_peaks
from bigbird_dna.genome.promoters import lift, read_loci, read_promoters
from bigbird_dna.genome.records import read_splits
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.genome.sequence import Locus
from bigbird_dna.genome.sources.inputs import read_sources
from bigbird_dna.genome.variants import scan_vcf
from tests.genome.formats import (
    CHAIN,
    DEEPSEA,
    EMBL,
    GENBANK,
    REPORT,
    SUPPLEMENT,
    VCF_COLUMNS,
    VCF_HEADER,
    gff,
    vcf_text,
)
from tests.golden.messages import fails


def flat(path: Path) -> None:
    try:
        prepare_reference(path, path.parent / "out/x.fa.gz")
    finally:
        assert not [*path.parent.glob("out/*")]


def chain(path: Path) -> None:
    loci = [Locus("s", position, "+", "a") for position in range(200)]
    lift(loci, path, lambda name, names: name if name in names else None)


def aliases(path: Path) -> None:
    open_assembly("custom", path)


def changed(text: str, *pairs: tuple[str, str]) -> list[str]:
    """A good text with one part exchanged, for each pair."""
    assert all(text.count(before) == 1 for before, _ in pairs)
    return [text.replace(*pair) for pair in pairs]


GOOD = "c\t5\t.\tA\tC\t.\t.\t."
LOCI = "contig\tposition\tstrand\tname\n"
LINES = GENBANK[: GENBANK.index("ORIGIN")] + "//\n"
# Reader, name of the file, and the texts that it refuses.
TABLE: list[tuple[Callable[[Path], object], str, list[str | bytes]]] = [
    (read_promoters, "x.txt", ["anything"]),
    (
        read_promoters,
        "x.sga",
        [
            *("", "# nothing\n", "c\tTSS\t5\t+\n", "c\tTSS\t5\t0\t1\ta\n", "c\tTSS\t0\t+\t1\ta\n"),
            "c\tTSS\t5\t+\t1\ta\nc\tTSS\t-5\t+\t1\ta\n",
        ],
    ),
    (
        read_promoters,
        "x.bed",
        [
            *("c\t5\t5\ta\t0\t+\n", "c\t5\t65\ta\t0\t.\n", "c\t5\t65\n"),
            *("c\t5\t65\ta\t0\t+\t70\t75\n", "c\t5\t65\ta\t0\t+\t5\t5\n"),
        ],
    ),
    (
        read_promoters,
        "x.fps",
        [
            *("FP   a  somewhere\n", "c\tTSS\t5\t+\t1\ta\n"),
            f"FP   {'n':20}:+S  EU:{'#c':18} 1+{5:10d}; 00000.000\n",
            "FP   A_1                 :+S  EU:" + "chU:" * 500_000,
        ],
    ),
    (
        read_promoters,
        "x.gff3",
        [
            *("c\tx\tmRNA\t5\t9\t.\t+\t.\n", "##gff-version 3\n", gff("mRNA", "c", -1, 9, "+", "ID=a")),
            *(gff("gene", "c", 9, 5, "+", "ID=a"), gff("mRNA", "c", 4, "x", "+", "ID=a")),
            *(gff("mRNA", "c", 4, 9, "+", "ID=a%09b"), gff("exon", "c", 4, 9, "+", "ID=a") * 2),
            gff("gene", "c", 4, 9, "?", "ID=a"),
        ],
    ),
    (
        read_coding,
        "x.gff3",
        [
            *(gff("exon", "c", 4, 9, "+", "ID=a") * 2, gff("stop_codon", "c", 4, 7, "+", "x")),
            *("##gff-version 3\n", "c\tTSS\t5\t+\t1\ta\n", gff("CDS", "c", -1, 9, "+", "ID=a")),
            *(gff("CDS", "c", 9, 5, "+", "ID=a"), gff("CDS", "c", 4, "x", "+", "ID=a")),
            gff("CDS", "a%09b", 4, 9, "+", "ID=a"),
        ],
    ),
    (
        read_loci,
        "x.tsv",
        ["contig\tstart\n", f"{LOCI}c\t5\t+\n", f"{LOCI}c\tx\t+\ta\n", f"{LOCI}#c\t5\t+\tn\n", LOCI + LOCI],
    ),
    (
        flat,
        "x.gb",
        [
            *(GENBANK + GENBANK, LINES, GENBANK[:-20], GENBANK[: GENBANK.index("CDS")]),
            GENBANK.replace("   12 bp", "    0 bp").replace("        1 acgtacgtac gt\n", ""),
            *changed(GENBANK, ("1 acgta\n", "1 mkvla\n"), ("1 acgta\n", "1 acgua\n")),
            *changed(
                GENBANK, ("       61 catyctaaca ctacc\n", ""), ("LOCUS       contig_3", f"LOCUS{'':15}")
            ),
            *(GENBANK.split("\n")[0], "LOCUS       a b c\n", GENBANK + ">a\nACGT\n", EMBL[:-20]),
            "ID   TPA_HUMAN   Reviewed;   562 AA.\nAC   P00750;\n//\n",
            gzip.compress(GENBANK.encode(), mtime=0)[:-20],
        ],
    ),
    (
        read_tracks,
        "tracks.tsv",
        [
            *("", "# only this\n", "name\tgroup\nA\tTF\n", "track\nA\n", "track\tgroup\ttrack\nA\tTF\tA\n"),
            *("track\tgroup\n", "track\tgroup\nA\n", "track\tgroup\n\n# x\nA\tTF\nA\tTF\n"),
            *("track\tgroup\n\tTF\n", "track\tgroup\nA,B\tTF\n", "track\tgroup\nA\t\n"),
            *(
                f"track\tgroup\tpublished_auroc\nA\tTF\t{figure}\n"
                for figure in ("91", "good", "0_1", "٠", "1e-999999x", "nan", "1" * 5000)
            ),
            *changed(DEEPSEA, ("\n2\t", "\n7\t"), ("Histone", "RNA")),
            *changed(SUPPLEMENT, ("0,98", "9,8")),
        ],
    ),
    (
        read_peaks,
        "x.bed",
        [
            *(
                f"chr1\t1\t5\n{line}\n"
                for line in (
                    *("chr1\t9\t5", "chr1\t-3\t5", "chr1\t5\t5", "chrom\tstart\tend", "chr1\t1.5\t5"),
                    *("chr1\t1\t5e3", "chr1\t²\t5", "chr1\t--1\t5", "chr1\t5", "\t5\t9"),
                    "chr1\t5\t99999999999",
                )
            ),
            *(gzip.compress(b"chr1\t5\t9\n" * 1000, mtime=0)[:-20], b"\x87\xff\x00\x10"),
        ],
    ),
    (
        read_splits,
        "s.tsv",
        [
            *("", "name\tsplit\n", "a\ttrain\na train\n", "a\ttrain\nb\tvalidation\n"),
            "a\ttrain\n#\na\ttest\n",
        ],
    ),
    (
        aliases,
        "aliases.tsv",
        [
            *("a\tb\nc\nb\td\n", "chrI NC_001133.9\n", "a\tb\x85c\n", "a\t#b\n", "# only\n\n", ""),
            *(f"{REPORT}x\ty\n", REPORT + "na\t" * 9 + "na\n"),
        ],
    ),
    (
        scan_vcf,
        "x.vcf",
        [
            *(vcf_text(GOOD, "c\t5\t.\tA\tC"), vcf_text(f"{GOOD}\tGT\t0/1"), vcf_text("c 5 . A C . . .")),
            vcf_text(GOOD, columns=f"{VCF_COLUMNS}\tFORMAT\ta"),
            *(
                vcf_text(f"c\t{place}\t.\tA\tC\t.\t.\t.")
                for place in ("five", "-5", "²", "2147483648", "1" * 5000)
            ),
            *(
                vcf_text(f"{start}\t{alleles}\t.\t.\t.")
                for start, alleles in (
                    *(("c\t5\t.", "\tC"), ("c\t5\t.", ".\tC"), ("c\t5\t.", "A\t"), ("c\t5\t.", "A\tC,,G")),
                    ("\t5\t.", "A\tC"),
                )
            ),
            *(
                vcf_text(GOOD) + vcf_text(GOOD),
                f"{VCF_COLUMNS}\n{GOOD}\n",
                f"{VCF_HEADER}{GOOD}\n",
                VCF_HEADER,
            ),
            *(
                vcf_text(columns="#CHROM\tPOS\tID\tREF\tALT"),
                vcf_text(columns=VCF_COLUMNS.replace("\t", " ")),
            ),
            *("", "\ufeff", "\ufeff\ufeff" + vcf_text(GOOD), "\x00\x01" * 100),
            gzip.compress(vcf_text(*[GOOD] * 1000).encode(), mtime=0)[:-20],
        ],
    ),
    (
        chain,
        "x.chain",
        [
            *("root:x:0:0\n", "\n", b"\x00\x01\x02\x03", CHAIN + CHAIN.replace("t 300", "t 301")),
            gzip.compress(CHAIN.encode(), mtime=0)[:-12],
            *changed(
                CHAIN,
                *(("s 200", "s -200"), ("t 300", "t 30"), ("5 37", "-5 37"), ("5 37", "37 5")),
                *(("5 37", "5 99999999999999999999"), ("5 37", f"5 {'9' * 5000}"), ("5 37", "5 3_7")),
                *(
                    ("5 37", "+5 37"),
                    ("5 37", "5 ٣٧"),
                    ("5 37", "5 38"),
                    ("10 40", "9 40"),
                    ("\n15\n", "\n16\n"),
                ),
                *(("10\t5\t7", "10\t-5\t7"), ("10\t5\t7", "10\t5"), ("10\t5\t7", "4294967306\t5\t7")),
                *(("10\t5\t7", "1" * 5000), ("10\t5\t7\n", "10\t5\t7\n\n"), ("15\n\n", "")),
                *(("s 200 +", "s 200 -"), ("300 -", "300 *"), ("chain 1000", "chain x")),
                *(("chain 1000 s", "chain 1000"), ("t 300", "#t 300"), ("\n10", "\r10")),
            ),
        ],
    ),
    (
        read_sources,
        "sources.yaml",
        [
            *("a: [", b"\xff\xfe", "- a", "a: 7", "a: {}\na: {}", "#" * 300_000),
            "a: !!python/name:os.system x",
        ],
    ),
]
CASES = [
    pytest.param(read, name, text, id=f"{getattr(read, '__name__', '')}-{name}-{number}")
    for read, name, texts in TABLE
    for number, text in enumerate(texts)
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("read", "name", "text"), CASES)
def test_a_faulty_file_gives_one_clear_line(
    tmp_path: Path, read: Callable[[Path], object], name: str, text: str | bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    error: type[BigBirdDnaError] = ConfigError if name.endswith(".yaml") else DataError
    with fails(error, path) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ") and str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("read", "name"), dict.fromkeys((read, name) for read, name, _ in TABLE))
def test_a_missing_file_is_named(tmp_path: Path, read: Callable[[Path], object], name: str) -> None:
    error: type[BigBirdDnaError] = ConfigError if name.endswith(".yaml") else DataError
    with fails(error, tmp_path / name):
        read(tmp_path / name)
