"""Pieces of two assemblies and sequences around start sites, against a hidden genome that has all of them."""

from pathlib import Path
from typing import Any

import pytest
from human_pieces import load_settings, prepare

from bigbird_dna.config.reading import load_config, parse_config
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.genome.fasta import read_fasta
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.sequence import Locus, reverse_complement
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.toys import random_dna, written

SIZE = 60_000
SHIFT = 700  # of GRCh37's chromosome 22
GRCH38 = {
    name: random_dna(SIZE, seed) for seed, name in enumerate(("chr1", "chr2", "chr22"))
}
COPY = GRCH38["chr1"][47_000 - 249 : 47_000 + 51]  # the promoter of a test site
GRCH38["chr2"] = GRCH38["chr2"][:9751] + COPY + GRCH38["chr2"][10_051:]
GRCH37 = {
    "chr1": reverse_complement(GRCH38["chr1"]),
    "chr22": random_dna(SHIFT, 9) + GRCH38["chr22"],
}
GENOMES = {"GRCh38": GRCH38, "GRCh37": GRCH37}
REFSEQ = {"chr1": "NC_000001.11", "chr2": "NC_000002.12", "chr22": "NC_000022.11"}
CHAIN = (
    f"chain 9 chr1 {SIZE} + 0 {SIZE} chr1 {SIZE} - 0 {SIZE} 1\n{SIZE}\n\n"
    f"chain 9 chr22 {SIZE} + 0 {SIZE} chr22 {SIZE + SHIFT} + {SHIFT} {SIZE + SHIFT} 2\n{SIZE}\n\n"
)
SITES = [  # on GRCh38
    Locus(chrom, position, strand, f"{chrom}_{position}{strand}")
    for chrom, position, strand in [
        *[("chr1", x, "+-"[x % 2]) for x in range(5003, 57_000, 3001)],
        *[("chr1", 47_000, "+"), ("chr1", 25_600, "-")],
        *[("chr2", x, "+") for x in (10_000, 10_400, 20_000, 21_500, 40_000)],
        *[("chr2", x, "+") for x in (50_000, 50_100)],
        *[("chr2", x, "-") for x in (20_300, 39_900)],
        *[("chr22", x, "-") for x in (8000, 20_000, 35_000)],
    ]
]
OTHERS = [  # of CAGE on GRCh38: two near a start site of their strand, and one on the other strand
    *[Locus("chr1", 12_000, "+", "g1"), Locus("chr1", 25_200, "-", "g2")],
    *[Locus("chr1", 46_900, "-", "g3"), Locus("chr2", 20_050, "+", "g4")],
    *[Locus("chr2", 19_700, "-", "g5"), Locus("chr22", 26_000, "+", "g6")],
]
BY_NAME = {x.name: x for x in SITES}
LONGER, WRONG = BY_NAME["chr2_40000+"], BY_NAME["chr2_50100+"]
ENSEMBL = Locus("chr1", 31_500, "-", "e1")  # on GRCh38; "+" on GRCh37
CONFIG: dict[str, Any] = {
    "genome": {
        **{"assembly": "custom", "name": "toy"},
        "test": ["GRCh38.chr1_45000_55000", "GRCh37.chr22_*"],
    },
    "pieces": {
        "genomes": [
            {"file": "pieces.fa.gz", "assembly": "GRCh38"},
            {"file": "GRCh37.fa", "assembly": "GRCh37"},
        ],
        **{"assembly": "GRCh38", "sites": "sites.sga", "chain": "chain"},
        "site_sequences": "x_m10_p49.fa.gz",
        "windows": ["x_m249_p50.fa.gz", "x_m1000_p999.fa"],
        "exclude": ["chr22"],
        "other_sites": [
            {"file": "cage.bed", "assembly": "GRCh38", "name": "C"},
            {"file": "genes.txt", "assembly": "GRCh37", "name": "E"},
        ],
    },
}


def around(x: Locus, upstream: int, downstream: int) -> str:
    """Bases from `upstream` before a site to `downstream` after it, both inclusive."""
    text = GRCH38[x.contig]
    if x.strand == "+":
        return text[x.position - upstream : x.position + downstream + 1]
    return reverse_complement(text[x.position - downstream : x.position + upstream + 1])


def windows(sites: list[Locus], upstream: int, downstream: int) -> str:
    return "".join(
        f">{x.name} {x.contig}:{x.position + 1}({x.strand}) hg38\n{around(x, upstream, downstream)}\n"
        for x in sites
    )


def write_inputs(home: Path) -> None:
    """The files, in their public forms: soft-masked, names of contigs by source, N, 0- and 1-based."""
    one = GRCH38["chr1"]
    pieces = (
        f">chr1_10000_26000\n{one[10_000:20_000].lower()}{one[20_000:26_000]}\n"
        f">chr1:25001-33000\n{one[25_000:33_000]}\n>chr1_45000_55000\n{one[45_000:55_000]}\n"
    )
    long = windows([x for x in SITES if x.position % 2 == 0], 1000, 999)
    short = windows(SITES, 249, 50)
    # Of another place: a longer sequence, and all sequences of a site.
    long = long.replace(around(LONGER, 1000, 999), random_dna(2000, 7))
    long = long.replace(around(WRONG, 1000, 999), random_dna(2000, 8))
    short = short.replace(around(WRONG, 249, 50), random_dna(2000, 8)[751:1051])
    ensembl = SIZE - ENSEMBL.position  # counted from 1
    bases = "".join(
        f">FP{number:06} {x.name}   :+U  EU:NC; range\n{around(x, 10, 49)[:40]}\n{around(x, 10, 49)[40:]}\n"
        for number, x in enumerate(SITES)
    )
    texts: dict[str, str] = {
        "pieces.fa.gz": pieces,
        "GRCh37.fa": f">22\n{'N' * 5000}{GRCH37['chr22'][5000:25_000]}{'N' * 9}\n"
        f">1_0_4000\n{GRCH37['chr1'][:4000]}\n",
        "sites.sga": "".join(
            f"{REFSEQ[x.contig]}\tTSS\t{x.position + 1}\t{x.strand}\t1\t{x.name}\n"
            for x in SITES
        ),
        "x_m10_p49.fa.gz": bases,
        "x_m1000_p999.fa": long,
        "x_m249_p50.fa.gz": short,
        "cage.bed": "".join(
            f"{x.contig[3:]}\t{x.position - 100}\t{x.position + 100}\t{x.name}\t0\t{x.strand}\n"
            for x in OTHERS
        ),
        "genes.txt": f"e1\t0\tchr1\t+\t{ensembl}\t{ensembl + 900}\t1,\t2,\n",
        "chain": CHAIN,
    }
    for name, text in texts.items():
        written(home / name, text, packed=name.endswith(".gz"))


def run(home: Path) -> dict[str, Any]:
    config = parse_config(CONFIG | {"data_dir": str(home)})
    return prepare(config, *load_settings(config), home / "out")


def place_of(contig: str) -> tuple[str, str, int, int]:
    """Assembly, chromosome, start and end of a contig, from its name."""
    place, start, end = contig.rsplit("_", 2)
    assembly, chrom = place.split(".")
    return assembly, chrom, int(start), int(end)


def on_contig(locus: Locus, contig: str) -> Locus | None:
    """A locus of GRCh38 on a contig of either assembly."""
    assembly, chrom, start, end = place_of(contig)
    position, strand = locus.position, locus.strand
    if assembly == "GRCh37" and chrom == "chr1":
        position, strand = SIZE - 1 - position, "-" if strand == "+" else "+"
    elif assembly == "GRCh37":
        position += SHIFT
    if locus.contig != chrom or not start <= position < end:
        return None
    return Locus(contig, position - start, strand, locus.name)


def on_contigs(loci: list[Locus], contigs: list[str]) -> list[Locus]:
    """Loci of GRCh38 on contigs, in their order and by position."""
    placed = [on_contig(x, contig) for contig in contigs for x in loci]
    return sorted(
        (x for x in placed if x is not None),
        key=lambda x: (contigs.index(x.contig), x.position),
    )


def test_all_files_are_those_of_the_hidden_genome(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    counts = run(tmp_path)
    out = tmp_path / "out"
    records = dict(read_fasta(out / "genome.fa.gz"))
    for contig, letters in records.items():
        assembly, chrom, start, end = place_of(contig)
        assert letters.decode() == GENOMES[assembly][chrom][start:end]

    contigs = [*records]
    pieces, sequences = contigs[:4], contigs[4:]
    assert pieces == [
        *("GRCh37.chr1_0_4000", "GRCh37.chr22_5000_25000"),
        *("GRCh38.chr1_10000_33000", "GRCh38.chr1_45000_55000"),
    ]
    promoters = read_loci(out / "promoters.tsv")
    assert promoters == on_contigs(SITES, contigs)
    assert {x.contig for x in promoters} == {*contigs}

    # Windows: not on pieces (56,000 on is one of GRCh37) or chr22, no copy of a test promoter, none of WRONG.
    expected: set[tuple[str, int]] = set()
    for x in SITES:
        is_long = x.position % 2 == 0 and x != LONGER
        upstream, downstream = (1000, 999) if is_long else (249, 50)
        first = x.position - (upstream if x.strand == "+" else downstream)
        bases = {(x.contig, y) for y in range(first, first + upstream + downstream + 1)}
        covered = [*range(10_000, 33_000), *range(45_000, 55_000), *range(56_000, SIZE)]
        on_piece = any(("chr1", y) in bases for y in covered)
        copies = ("chr2", 10_000) in bases
        near_wrong = x.contig == "chr2" and x.position >= 50_000
        if not (x.contig == "chr22" or on_piece or copies or near_wrong):
            expected |= bases

    found = [place_of(contig) for contig in sequences]
    assert expected == {(x[1], y) for x in found for y in range(x[2], x[3])}
    assert len(expected) == sum(end - start for *_, start, end in found)

    others = [Locus(x.contig, x.position, x.strand, f"C:{x.name}") for x in OTHERS]
    others += [Locus(ENSEMBL.contig, ENSEMBL.position, ENSEMBL.strand, "E:e1")]
    new = [
        x
        for x in others
        if all(
            (x.contig, x.strand) != (y.contig, y.strand)
            or abs(x.position - y.position) > 500
            for y in SITES
        )
    ]
    assert 3 < len(new) < len(others)
    assert read_loci(out / "other_promoters.tsv") == on_contigs(new, pieces)
    ignored = on_contigs(new, contigs)
    rows = [row.split("\t") for row in (out / "ignore.bed").read_text().splitlines()]
    assert [(x[0], x[3], x[5]) for x in rows] == [
        (x.contig, x.name, x.strand) for x in ignored
    ]
    for row, x in zip(rows, ignored, strict=True):
        start, end = int(row[1]), int(row[2])
        length = place_of(x.contig)[3] - place_of(x.contig)[2]
        assert (start, end) == (max(x.position - 500, 0), min(x.position + 501, length))

    of_pieces = counts["pieces"].values()
    assert sum(x["agree"] for x in of_pieces) == len(on_contigs(SITES, pieces))
    assert [x["split"] for x in of_pieces] == ["train", "test", "train", "test"]
    of_windows = counts["windows"]
    assert of_windows["agree"] == len(SITES) - 1 and of_windows["disagree"] == 1
    assert of_windows["similar_to_held_out_promoter"] == 2
    assert of_windows["differ_from_overlapping_window"] == 2


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        (
            "x_m249_p50.fa.gz",
            "chr2:10001(+)",
            "chr2:10000(+)",
            "'chr2_10000+ chr2:10000",
        ),
        ("x_m249_p50.fa.gz", "hg38\n", "hg38\nA", "has 301 bp, not 300"),
        (
            "pieces.fa.gz",
            "_26000",
            "_26001",
            "'chr1_10000_26001' has 16,000 bp, not 16,001",
        ),
        ("pieces.fa.gz", "chr1:25001", "chr0:25001", "no contig 'chr0'"),
        (
            "pieces.fa.gz",
            "chr1:25001-33000",
            "chr1:25002-33001",
            "differ where they overlap",
        ),
        ("x_m1000_p999.fa", ">", "", "no FASTA records"),
        ("genes.txt", "\t+\t", "\t.\t", "line 1: strand"),
        ("cage.bed", "\t0\t+", "", "line 1"),
    ],
    ids=[
        "not-a-site",
        "length",
        "name",
        "contig",
        "overlap",
        "headers",
        "strand",
        "column",
    ],
)
def test_what_does_not_fit_is_one_error(
    tmp_path: Path, file: str, old: str, new: str, named: str
) -> None:
    write_inputs(tmp_path)
    text = "".join(f"{line}\n" for _, line in read_lines(tmp_path / file))
    assert old in text
    changed = text.replace(old, new, -1 if old == ">" else 1)
    written(tmp_path / file, changed, packed=file.endswith(".gz"))
    with fails(DataError, named):
        run(tmp_path)
    assert not (tmp_path / "out").exists()


def test_settings_are_checked(tmp_path: Path) -> None:
    pieces = CONFIG["pieces"]
    for changed, named in (
        (pieces | {"clearence": 9}, "pieces: unknown key 'clearence'"),
        (pieces, "pieces: 'pieces.fa.gz' is not a file"),
    ):
        config = parse_config(CONFIG | {"pieces": changed, "data_dir": str(tmp_path)})
        with fails(ConfigError, named):
            load_settings(config)


def test_real_sites_have_the_bases_that_epd_publishes(
    shared_data: Path, tmp_path: Path
) -> None:
    config = load_config(
        REPOSITORY / "workflow/config/human_pieces.yaml", [f"data_dir={shared_data}"]
    )
    settings, files = load_settings(config)
    files["GRCh38.promoters"] = shared_data / "epdnew/Hs_EPDnew_006_hg38.sga"
    files["GRCh37.chain"] = shared_data / "hg19/hg38ToHg19.over.chain.gz"
    chosen = [x for x in settings.genomes if "chr9" in x.file or "chr19" in x.file]
    settings = settings.model_copy(
        update={"genomes": tuple(chosen), "windows": (), "other_sites": ()}
    )
    genome = config.genome.model_copy(update={"valid": (), "test": ("*chr9*",)})
    config = config.model_copy(update={"genome": genome})
    counts = prepare(config, settings, files, tmp_path / "out")["pieces"]
    assert {name: (x["start_sites"], x["agree"]) for name, x in counts.items()} == {
        "GRCh37.chr19_60000_1500000": (82, 82),
        "GRCh38.chr9_10000_1000000": (13, 13),
    }
