"""Start sites: EPDnew's formats, other BED and annotations, liftOver, and their place on a reference."""

import gzip
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome.annotation import read_genes
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.fasta import scan_fasta
from bigbird_dna.genome.promoters import (
    lift,
    place,
    read_loci,
    read_promoters,
    write_loci,
)
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Locus, inside, window_around
from tests.genome.formats import gff
from tests.golden.messages import fails
from tests.toys import written

names = st.text("ABCXYZ019._-", min_size=1, max_size=20)
loci_lists = st.lists(
    st.builds(
        Locus,
        contig=st.sampled_from(["NC_001133.9", "NC_001134.8", "chrI"]),
        position=st.integers(100, 200_000),
        strand=st.sampled_from("+-"),
        name=names,
    ),
    min_size=1,
    max_size=8,
)


def as_sga(loci):
    return "".join(
        f"{x.contig}\tTSS\t{x.position + 1}\t{x.strand}\t1\t{x.name}\n" for x in loci
    )


def as_bed(loci):
    """EPD's layout: 49 bp before the start site are thin, the site and 10 bp after it thick."""
    text = ""
    for x in loci:
        if x.strand == "+":
            start, end = x.position - 49, x.position + 11
            thick = (x.position, end)
        else:
            start, end = x.position - 10, x.position + 50
            thick = (start, x.position + 1)
        text += f"{x.contig}\t{start}\t{end}\t{x.name}\t900\t{x.strand}\t{thick[0]}\t{thick[1]}\n"
    return text


@given(loci=loci_lists, packed=st.booleans(), newline=st.sampled_from(["\n", "\r\n"]))
def test_the_three_formats_say_the_same(tmp_path, loci, packed, newline):
    def with_spaces(loci):
        return as_bed(loci).replace("\t", " ")

    for suffix, write in (
        (".sga", as_sga),
        (".bed", as_bed),
        (".bed", with_spaces),
    ):
        content = write(loci).replace("\n", newline).encode()
        path = written(
            tmp_path / (f"x{suffix}.gz" if packed else f"x{suffix}"), content, packed
        )
        assert read_promoters(path) == loci


@given(loci=loci_lists)
def test_the_table_gives_back_what_went_in(tmp_path, loci):
    write_loci(tmp_path / "x.tsv", loci)
    assert read_loci(tmp_path / "x.tsv") == loci


@pytest.mark.parametrize(
    "stem",
    ["epdnew/Hs_EPDnew_006_hg38", "yeast/Sc_EPDnew_002_sacCer3"],
    ids=["human", "yeast"],
)
def test_real_sga_and_bed_agree(shared_data, tmp_path, stem):
    sga = read_promoters(shared_data / f"{stem}.sga")
    assert read_promoters(written(tmp_path / "x.bed", as_bed(sga))) == sga
    if stem == "epdnew/Hs_EPDnew_006_hg38":  # rows as EPD published them
        rows = (
            "track name=EPDnew\n"
            "chr1\t166166977\t166167037\tFAM78B_1\t900\t-\t166166977\t166166988\n"
            "chr1\t166839300\t166839360\tPOGK_2\t900\t+\t166839349\t166839360\n"
        )
        found = {
            (x.name, x.position, x.strand)
            for x in read_promoters(written(tmp_path / "y.bed", rows))
        }
        assert len(found) == 2 and found <= {
            (x.name, x.position, x.strand) for x in sga
        }


def test_placing_renames_sorts_counts_and_drops():
    loci = [
        Locus("NC_001134.8", 10, "+", "a"),
        Locus("chrI", 50, "+", "b"),
        Locus("chr1", 50, "+", "b again"),
        Locus("chrI", 50, "-", "c"),
        Locus("chrI", 230_218, "+", "beyond"),
        Locus("NC_001135.5", 1, "+", "elsewhere"),
        Locus("unheard", 1, "+", "of"),
    ]
    placed, counts = place(
        loci, {"I": 230_218, "II": 813_184}, load_assembly("sacCer3"), "x.sga"
    )
    assert placed == [
        Locus("I", 50, "+", "b"),
        Locus("I", 50, "-", "c"),
        Locus("II", 10, "+", "a"),
    ]
    assert counts["duplicates"] == 1
    assert counts["dropped_contigs"] == {"NC_001135.5": 1, "unheard": 1}
    assert counts["beyond_contigs"] == {"chrI": 1}
    loci = [Locus("NC_000022.11", 5, "+", "a")]
    with fails(DataError, "NC_000022.11", "chr22", "GRCh37"):
        place(loci, {"chr22": 100}, load_assembly("GRCh37"), "x.sga")


# Blocks of (size, gap in the source, gap in the target); the last has no gaps.
blocks = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 5), st.integers(0, 5)),
    min_size=1,
    max_size=4,
)


def chain_text(blocks, source_start, target_start, direction, number=1):
    """A chain of contig s (200 bp) onto contig t (300 bp)."""
    source = sum(size + gap for size, gap, _ in blocks) - blocks[-1][1]
    target = sum(size + gap for size, _, gap in blocks) - blocks[-1][2]
    header = (
        f"chain 1000 s 200 + {source_start} {source_start + source} "
        f"t 300 {direction} {target_start} {target_start + target} {number}\n"
    )
    lines = [f"{size}\t{gap}\t{other}\n" for size, gap, other in blocks[:-1]]
    return header + "".join(lines) + f"{blocks[-1][0]}\n\n"


def base_by_base(blocks, source_start, target_start, direction):
    """Source position → (target position, direction), as the format's description has it."""
    mapping = {}
    for size, gap, other in blocks:
        for offset in range(size):
            target = target_start + offset
            mapping[source_start + offset] = (
                target if direction == "+" else 300 - 1 - target
            )
        source_start += size + gap
        target_start += size + other
    return mapping


def same(contig, contigs):
    return contig if contig in contigs else None


@settings(deadline=None)  # the first call imports liftover
@given(
    blocks,
    st.integers(0, 100),
    st.integers(0, 100),
    st.sampled_from("+-"),
    st.booleans(),
)
def test_every_base_goes_where_the_chain_says(
    tmp_path, blocks, source_start, target_start, direction, packed
):
    text = chain_text(blocks, source_start, target_start, direction).encode()
    path = written(tmp_path / ("x.chain.gz" if packed else "x.chain"), text, packed)
    expected = base_by_base(blocks, source_start, target_start, direction)
    loci = [
        Locus("s", position, "+-"[position % 2], f"n{position}")
        for position in range(200)
    ]
    lifted, unmapped = lift(loci, path, same)
    flipped = {"+": "-", "-": "+"}
    assert lifted == [
        Locus(
            "t",
            expected[x.position],
            x.strand if direction == "+" else flipped[x.strand],
            x.name,
        )
        for x in loci
        if x.position in expected
    ]
    assert unmapped == [x for x in loci if x.position not in expected]


def test_two_counterparts_or_none_and_other_names_of_contigs(tmp_path):
    chains = chain_text([(10, 0, 0)], 0, 0, "+") + chain_text(
        [(5, 0, 0)], 5, 50, "+", number=2
    )
    path = written(tmp_path / "x.chain", chains)
    loci = [
        Locus("alias", 4, "+", "a"),
        Locus("alias", 5, "+", "two"),
        Locus("other", 1, "+", "none"),
    ]
    found = lift(loci, path, lambda name, names: names[0] if name == "alias" else None)
    assert found == ([Locus("t", 4, "+", "a")], loci[1:])
    with fails(DataError):
        lift([loci[2]], path, same)


def test_human_promoters_lift_to_grch37_and_have_the_sequence_that_epd_publishes(
    shared_data, tmp_path
):
    """Full windows of −5000…+3000 on the first 22 Mb of chromosome 22, each against EPD's 60 bp from −10."""
    human = read_promoters(shared_data / "epdnew/Hs_EPDnew_006_hg38.sga")
    lifted, unmapped = lift(
        human,
        shared_data / "hg19/hg38ToHg19.over.chain.gz",
        load_assembly("GRCh38").match,
    )
    assert len(human) == len(lifted) + len(unmapped) == 29_598
    assert len(lifted) >= 29_590
    published = {}
    with gzip.open(shared_data / "epdnew/Hs_EPDnew_006_m10_p49.fa.gz", "rt") as stream:
        for record in stream.read().split(">")[1:]:
            header, *lines = record.splitlines()
            published[header.split()[1]] = "".join(lines).upper()
    prepare_reference(
        shared_data / "hg19/chr22_1-22000000.fa.gz", tmp_path / "22.fa.gz"
    )
    with Reference(tmp_path / "22.fa.gz") as chr22:
        placed, _ = place(lifted, chr22.contigs, load_assembly("GRCh37"), "EPDnew")
        full = [
            x for x in placed if inside(window_around(x, 5000, 3000), chr22.contigs)
        ]
        windows = {x.name: chr22.fetch(window_around(x, 5000, 3000)) for x in full}
    equal = [
        name for name, window in windows.items() if window[4990:5050] == published[name]
    ]
    assert all(len(window) == 8000 for window in windows.values())
    assert len(equal) >= 105
    assert {x.strand for x in full if x.name in equal} == {"+", "-"}


def test_real_promoters_and_annotations_of_yeast(shared_data):
    """12 of Ensembl's 7,036 genes are pseudogenes; Xu's are 5,171 transcripts."""
    home, yeast = shared_data / "yeast", load_assembly("sacCer3")
    loci = read_promoters(home / "Sc_EPDnew_002_sacCer3.sga")
    contigs = scan_fasta(home / "Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz")
    yeast.check_lengths(contigs)
    placed, _ = place(loci, contigs, yeast, "EPDnew")
    assert len(placed) == len(loci) == 5_117
    assert {x.contig for x in placed} == set(contigs)
    annotation = home / "Saccharomyces_cerevisiae.R64-1-1.96.gtf.gz"
    genes = read_promoters(annotation)
    assert len(genes) == 7_024 and Locus("IV", 1801, "+", "YDL248W_mRNA") in genes
    assert len(read_promoters(home / "Xu_2009_ORF-Ts_V64.gff3.gz")) == 5_171


# Start sites of annotations: 5' ends of transcripts, or of genes, in GFF3 and GTF.

intervals = st.lists(
    st.tuples(
        st.sampled_from(["chrI", "NC_001134.8"]),
        st.integers(0, 100_000),
        st.integers(1, 5_000),
        st.sampled_from("+-"),
    ),
    min_size=1,
    max_size=8,
)


def first_bases(rows):
    """Oracle: the first base that is transcribed."""
    return [
        Locus(
            contig,
            range(start, start + length)[0 if strand == "+" else -1],
            strand,
            f"t{number}",
        )
        for number, (contig, start, length, strand) in enumerate(rows)
    ]


@given(
    rows=intervals, kind=st.sampled_from(["mRNA", "transcript"]), packed=st.booleans()
)
def test_every_format_of_intervals_gives_their_first_bases(
    tmp_path, rows, kind, packed
):
    gff3, gtf, bed6, bed12 = (
        "##gff-version 3\n",
        "#!genome-build x\n",
        "",
        "track name=x\n",
    )
    for number, (contig, start, length, strand) in enumerate(rows):
        place = (contig, start, start + length, strand)
        gff3 += gff("gene", *place, f"ID=g{number}") + gff(
            "exon", *place, f"Parent=t{number}"
        )
        gff3 += gff(kind, *place, f"ID=t{number};Parent=g{number};Name=other")
        gtf += gff("gene", *place, f'gene_id "g{number}";')
        gtf += gff(
            "transcript",
            *place,
            f'gene_id "g{number}"; transcript_id "t{number}"; note "a; b";',
        )
        bed6 += f"{contig}\t{start}\t{start + length}\tt{number}\t0\t{strand}\n"
        middle = start + length // 2
        bed12 += bed6.splitlines()[-1] + f"\t{middle}\t{middle}\t0\t1\t{length},\t0,\n"
    expected = first_bases(rows)
    for suffix, text in (
        (".gff3", gff3),
        (".gff", gff3),
        (".gtf", gtf),
        (".bed", bed6),
        (".bed", bed12),
    ):
        path = written(
            tmp_path / (f"x{suffix}.gz" if packed else f"x{suffix}"), text, packed
        )
        assert read_promoters(path) == expected


def test_genes_stand_for_the_transcripts_that_bacteria_s_files_leave_out(tmp_path):
    path = tmp_path / "x.gff3"
    rows = "".join(
        gff("gene", "NC_1.1", start, start + 90, "+", f"ID=gene-{start};locus_tag=x")
        + gff(
            kind,
            "NC_1.1",
            start,
            start + 90,
            "+",
            f"ID={kind}-{start};Parent=gene-{start}",
        )
        for start, kind in ((100, "CDS"), (300, "tRNA"), (500, "rRNA"))
    )
    path.write_text(rows + "###\n##FASTA\n>NC_1.1\nACGT\n")
    expected = [(100, "gene-100"), (300, "tRNA-300"), (500, "rRNA-500")]
    assert read_promoters(path) == [
        Locus("NC_1.1", start, "+", name) for start, name in expected
    ]
    # What is made from a transcript starts none, here before its parent.
    rows = gff("miRNA", "c", 30, 50, "+", "ID=m;Parent=p") + gff(
        "gene", "c", 5, 90, "+", "ID=g"
    )
    path.write_text(rows + gff("primary_transcript", "c", 5, 90, "+", "ID=p;Parent=g"))
    assert read_promoters(path) == [Locus("c", 5, "+", "p")]


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        *(
            ("Name=b;ID=a", "a"),
            ("gene=g;Name=n%3Bx y", "n;x y"),
            ("transcript_id=t;gene=g", "t"),
        ),
        *(
            ("gene=g", "g"),
            ("note=x", "mRNA_1"),
            (".", "mRNA_1"),
            ("gene_id g; transcript_id t;", "t"),
        ),
        ('gene_id "g"; transcript_id "t t"; transcript_id "u"', "t t"),
        ('gene_id "g"; transcript_id ""; exon 3', "g"),
    ],
)
def test_names(tmp_path, attributes, name):
    path = written(tmp_path / "x.gff", gff("mRNA", "chr%201", 5, 9, "+", attributes))
    assert read_promoters(path) == [Locus("chr 1", 5, "+", name)]


@pytest.mark.parametrize("word", ["x", 'x"', " ", 'x "', '" '])
def test_time_grows_with_the_attributes_not_with_their_square(tmp_path, word):
    path = written(
        tmp_path / "x.gtf",
        gff("gene", "c", 5, 9, "+", f'gene_id "g"; {word * 500_000}!'),
    )
    started = time.process_time()
    assert read_promoters(path) == [Locus("c", 5, "+", "g")]
    assert time.process_time() - started < 5


@given(rows=intervals)
def test_gff3_and_gtf_have_the_same_genes(tmp_path, rows):
    gff3, gtf = "##gff-version 3\n", ""
    for number, (contig, start, length, strand) in enumerate(rows):
        place = contig, start, start + length, strand
        gff3 += gff("gene", *place, f"ID=g{number};Name=N{number}") + gff(
            "gene", *place[:3], ".", "ID=x"
        )
        gtf += gff(
            "gene", *place, f'gene_id "g{number}"; gene_name "N{number}";'
        ) + gff("exon", *place, "")
    expected = [
        (*row[:2], row[1] + row[2], row[3], f"N{number}")
        for number, row in enumerate(rows)
    ]
    for suffix, text in ((".gff3", gff3), (".gtf", gtf)):
        assert read_genes(written(tmp_path / f"x{suffix}", text)) == expected


def test_a_file_without_genes_is_an_error(tmp_path):
    with fails(DataError):
        read_genes(written(tmp_path / "x.gff3", gff("gene", "I", 0, 9, ".", "ID=x")))
