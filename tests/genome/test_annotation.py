"""Start sites of annotations: 5' ends of transcripts, or of genes, in GFF3 and GTF."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.genome.annotation import read_coding
from bigbird_dna.genome.promoters import read_promoters
from bigbird_dna.genome.sequence import Locus
from tests.genome.formats import gff
from tests.toys import written

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
        Locus(contig, range(start, start + length)[0 if strand == "+" else -1], strand, f"t{number}")
        for number, (contig, start, length, strand) in enumerate(rows)
    ]


@given(rows=intervals, kind=st.sampled_from(["mRNA", "transcript"]), packed=st.booleans())
def test_every_format_of_intervals_gives_their_first_bases(tmp_path, rows, kind, packed):
    gff3, gtf, bed6, bed12 = "##gff-version 3\n", "#!genome-build x\n", "", "track name=x\n"
    for number, (contig, start, length, strand) in enumerate(rows):
        place = (contig, start, start + length, strand)
        gff3 += gff("gene", *place, f"ID=g{number}") + gff("exon", *place, f"Parent=t{number}")
        gff3 += gff(kind, *place, f"ID=t{number};Parent=g{number};Name=other")
        gtf += gff("gene", *place, f'gene_id "g{number}";')
        gtf += gff("transcript", *place, f'gene_id "g{number}"; transcript_id "t{number}"; note "a; b";')
        bed6 += f"{contig}\t{start}\t{start + length}\tt{number}\t0\t{strand}\n"
        middle = start + length // 2
        bed12 += bed6.splitlines()[-1] + f"\t{middle}\t{middle}\t0\t1\t{length},\t0,\n"
    expected = first_bases(rows)
    for suffix, text in ((".gff3", gff3), (".gff", gff3), (".gtf", gtf), (".bed", bed6), (".bed", bed12)):
        path = written(tmp_path / (f"x{suffix}.gz" if packed else f"x{suffix}"), text, packed)
        assert read_promoters(path) == expected


def test_the_log_says_by_which_rule(tmp_path, capsys):
    path = written(
        tmp_path / "x.gff3",
        gff("mRNA", "c", 5, 9, "+", "ID=a")
        + gff("mRNA", "c", 15, 19, "-", "ID=b")
        + gff("tRNA", "c", 25, 29, "+", "ID=t")
        + gff("mRNA", "c", 35, 39, ".", "ID=d")
        + gff("pseudogenic_transcript", "c", 45, 49, "+", "ID=p"),
    )
    assert [locus.position for locus in read_promoters(path)] == [5, 18, 25]
    said = capsys.readouterr().err
    assert f"warning: {path}: 1 of mRNA and tRNA have no strand: left out" in said
    assert f"{path}: the start site is the 5' end of each mRNA (2), the 5' end of each tRNA (1)" in said
    (tmp_path / "x.bed").write_text("c\t5\t9\ta\t0\t+\nc\t5\t65\tb\t0\t+\t55\t65\n")
    read_promoters(tmp_path / "x.bed")
    said = capsys.readouterr().err
    assert (
        "is the 5' end of the interval (1), the 5' end of the interval's thick part (EPD's BED) (1)" in said
    )
    (tmp_path / "x.sga").write_text("c\tTSS\t5\t+\t1\ta\n")
    read_promoters(tmp_path / "x.sga")
    assert "the start site is as the file gives it (1)" in capsys.readouterr().err


def test_genes_stand_for_the_transcripts_that_bacteria_s_files_leave_out(tmp_path, capsys):
    path = tmp_path / "x.gff3"
    rows = "".join(
        gff("gene", "NC_1.1", start, start + 90, "+", f"ID=gene-{start};locus_tag=x")
        + gff(kind, "NC_1.1", start, start + 90, "+", f"ID={kind}-{start};Parent=gene-{start}")
        for start, kind in ((100, "CDS"), (300, "tRNA"), (500, "rRNA"))
    )
    path.write_text(rows + "###\n##FASTA\n>NC_1.1\nACGT\n")
    assert read_promoters(path) == [Locus("NC_1.1", start, "+", f"gene-{start}") for start in (100, 300, 500)]
    assert "5' end of each gene, as the file has no mRNA or transcript (3)" in capsys.readouterr().err


def test_what_is_made_from_a_transcript_starts_none(tmp_path):
    path = written(
        tmp_path / "x.gff3",
        gff("miRNA", "c", 30, 50, "+", "ID=m;Parent=p")  # before its parent
        + gff("primary_transcript", "c", 5, 90, "+", "ID=p;Parent=g")
        + gff("gene", "c", 5, 90, "+", "ID=g"),
    )
    assert read_promoters(path) == [Locus("c", 5, "+", "p")]


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        ("Name=b;ID=a", "a"),
        ("gene=g;Name=n%3Bx y", "n;x y"),
        ("transcript_id=t;gene=g", "t"),
        ("gene=g", "g"),
        ("note=x", "mRNA_1"),
        (".", "mRNA_1"),
        ('gene_id "g"; transcript_id "t t"; transcript_id "u"', "t t"),
        ('gene_id "g"; transcript_id ""; exon 3', "g"),
        ("gene_id g; transcript_id t;", "t"),
    ],
)
def test_names(tmp_path, attributes, name):
    path = written(tmp_path / "x.gff", gff("mRNA", "chr%201", 5, 9, "+", attributes))
    assert read_promoters(path) == [Locus("chr 1", 5, "+", name)]


@pytest.mark.parametrize("word", ["x", 'x"', " ", 'x "', '" '])
def test_time_grows_with_the_attributes_not_with_their_square(tmp_path, word):
    path = written(tmp_path / "x.gtf", gff("gene", "c", 5, 9, "+", f'gene_id "g"; {word * 500_000}!'))
    started = time.process_time()
    assert read_promoters(path) == [Locus("c", 5, "+", "g")]
    assert time.process_time() - started < 5


# Coding bases


def covered(path):
    """The coding bases of a file by contig."""
    return {
        contig: {base for one in zip(*spans, strict=True) for base in range(*map(int, one))}
        for contig, spans in read_coding(path).items()
    }


@given(rows=intervals, packed=st.booleans())
def test_gff3_and_gtf_have_the_same_coding_bases(tmp_path, rows, packed):
    """GTF's CDS ends before the stop codon, which GFF3's includes."""
    gff3, gtf, expected = "##gff-version 3\n", "#!genome-build x\n", {}
    for number, (contig, start, length, strand) in enumerate(rows):
        length += 3
        end, stop = start + length, (start + length - 3 if strand == "+" else start)
        inner = (start, end - 3) if strand == "+" else (start + 3, end)
        gff3 += gff("mRNA", contig, start, end + 50, strand, f"ID=t{number}")
        gff3 += gff("CDS", contig.replace("I", "%49"), start, end, strand, f"ID=c{number};Parent=t{number}")
        gtf += gff("exon", contig, start, end + 50, strand, f'transcript_id "t{number}";')
        gtf += gff("CDS", contig, *inner, strand, f'transcript_id "t{number}";')
        gtf += gff("stop_codon", contig, stop, stop + 3, strand, f'transcript_id "t{number}";')
        expected.setdefault(contig, set()).update(range(start, end))
    for suffix, text in ((".gff3", gff3 + "##FASTA\n>x\nACGT\n"), (".gtf", gtf)):
        path = written(tmp_path / (f"x{suffix}.gz" if packed else f"x{suffix}"), text, packed)
        assert covered(path) == expected


def test_coding_bases_of_yeast(shared_data):
    """Open reading frames cover about 73 % of the genome of 12.2 Mb."""
    path = shared_data / "yeast/Saccharomyces_cerevisiae.R64-1-1.96.gtf.gz"
    found = covered(path)
    assert len(found) == 17 and {1801, 2952} <= found["IV"] and 2953 not in found["IV"]
    assert 0.70 < sum(map(len, found.values())) / 12_157_105 < 0.76


def test_real_annotations(shared_data):
    """Ensembl's genes of yeast start where their transcripts do; Xu's are 5,171 transcripts."""
    genes = read_promoters(shared_data / "yeast/Saccharomyces_cerevisiae.R64-1-1.96.gtf.gz")
    assert len(genes) == 7_036
    assert Locus("IV", 1801, "+", "YDL248W_mRNA") in genes
    assert len(read_promoters(shared_data / "yeast/Xu_2009_ORF-Ts_V64.gff3.gz")) == 5_171
