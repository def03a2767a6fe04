"""Start sites of annotations, gene by gene, in the forms in which databases and programs publish them."""

import gzip
from pathlib import Path

import pandas as pd
import pytest

from bigbird_dna.errors import DataError
from bigbird_dna.genome.annotation import read_genes
from bigbird_dna.genome.promoters import read_promoters
from tests.golden.messages import fails, message


def rows(text: str) -> str:
    """Lines of an annotation from lines `type first last strand attributes`; others are kept as they are."""
    lines = []
    for line in text.strip().splitlines():
        words = line.split(maxsplit=4)
        if line.startswith(("#", ">")):
            lines.append(line)
        else:
            kind, first, last, strand, attributes = words
            lines.append(
                "\t".join(
                    ("NC_1.1", "x", kind, first, last, ".", strand, ".", attributes)
                )
            )
    return "\n".join(lines) + "\n"


def sites(path: Path, text: str) -> list[tuple[int, str]]:
    """1-based position and strand of each start site, in file order."""
    path.write_text(rows(text))
    return [(locus.position + 1, locus.strand) for locus in read_promoters(path)]


# A bacterium's genes: two of proteins, a tRNA, a regulatory RNA, and a pseudogene.
NCBI_GFF3 = """
##gff-version 3
##sequence-region NC_1.1 1 10000
region 1 10000 + ID=NC_1.1:1..10000;Is_circular=true;gbkey=Src
gene 101 200 + ID=gene-b1;Name=thrL;gene=thrL;gene_biotype=protein_coding;locus_tag=b1
CDS 101 200 + ID=cds-NP_1.1;Parent=gene-b1;gene=thrL;locus_tag=b1;protein_id=NP_1.1
gene 301 900 - ID=gene-b2;Name=thrA;gene=thrA;gene_biotype=protein_coding;locus_tag=b2
CDS 301 900 - ID=cds-NP_2.1;Parent=gene-b2;gene=thrA;locus_tag=b2;protein_id=NP_2.1
gene 1001 1076 + ID=gene-b3;Name=alaT;gene=alaT;gene_biotype=tRNA;locus_tag=b3
tRNA 1001 1076 + ID=rna-b3;Parent=gene-b3;gene=alaT;locus_tag=b3
exon 1001 1076 + ID=exon-b3-1;Parent=rna-b3;gene=alaT;locus_tag=b3
gene 1201 1300 - ID=gene-b4;Name=sokC;gene=sokC;gene_biotype=ncRNA;locus_tag=b4
ncRNA 1201 1300 - ID=rna-b4;Parent=gene-b4;gene=sokC;locus_tag=b4
exon 1201 1300 - ID=exon-b4-1;Parent=rna-b4;gene=sokC;locus_tag=b4
pseudogene 1501 1800 - ID=gene-b5;Name=yafU;gene=yafU;gene_biotype=pseudogene;locus_tag=b5;pseudo=true
CDS 1501 1600 - ID=cds-b5;Parent=gene-b5;gene=yafU;locus_tag=b5;pseudo=true
CDS 1702 1800 - ID=cds-b5;Parent=gene-b5;gene=yafU;locus_tag=b5;pseudo=true
"""
NCBI_GTF = """
#gtf-version 2.2
gene 101 200 + gene_id "b1"; transcript_id ""; gbkey "Gene"; gene "thrL"; gene_biotype "protein_coding";
CDS 101 197 + gene_id "b1"; transcript_id "unassigned_transcript_1"; gbkey "CDS"; gene "thrL";
start_codon 101 103 + gene_id "b1"; transcript_id "unassigned_transcript_1"; gbkey "CDS"; gene "thrL";
gene 301 900 - gene_id "b2"; transcript_id ""; gbkey "Gene"; gene "thrA"; gene_biotype "protein_coding";
CDS 304 900 - gene_id "b2"; transcript_id "unassigned_transcript_2"; gbkey "CDS"; gene "thrA";
gene 1001 1076 + gene_id "b3"; transcript_id ""; gbkey "Gene"; gene "alaT"; gene_biotype "tRNA";
transcript 1001 1076 + gene_id "b3"; transcript_id "unassigned_transcript_3"; gene "alaT";
exon 1001 1076 + gene_id "b3"; transcript_id "unassigned_transcript_3"; gene "alaT";
gene 1201 1300 - gene_id "b4"; transcript_id ""; gbkey "Gene"; gene "sokC"; gene_biotype "ncRNA";
transcript 1201 1300 - gene_id "b4"; transcript_id "unassigned_transcript_4"; gene "sokC";
exon 1201 1300 - gene_id "b4"; transcript_id "unassigned_transcript_4"; gene "sokC";
gene 1501 1800 - gene_id "b5"; transcript_id ""; gene_biotype "pseudogene"; pseudo "true";
CDS 1501 1800 - gene_id "b5"; transcript_id "unassigned_transcript_5"; gbkey "CDS"; pseudo "true";
"""
PROKKA = """
##gff-version 3
##sequence-region NC_1.1 1 10000
CDS 101 200 + ID=ABC_1;Name=thrL;gene=thrL;inference=ab initio prediction:Prodigal:002006;locus_tag=ABC_1
CDS 301 900 - ID=ABC_2;Name=thrA;gene=thrA;inference=ab initio prediction:Prodigal:002006;locus_tag=ABC_2
tRNA 1001 1076 + ID=ABC_3;inference=COORDINATES:profile:Aragorn:001002;locus_tag=ABC_3;product=tRNA-Ala(tgc)
ncRNA 1201 1300 - ID=ABC_4;locus_tag=ABC_4;product=sokC
##FASTA
>NC_1.1
"""
PROKKA_ADDGENES = """
##gff-version 3
gene 101 200 + ID=ABC_1_gene;Name=thrL;gene=thrL;locus_tag=ABC_1
mRNA 101 200 + ID=ABC_1_mRNA;Name=thrL;gene=thrL;locus_tag=ABC_1
CDS 101 200 + ID=ABC_1;Parent=ABC_1_gene,ABC_1_mRNA;Name=thrL;gene=thrL;locus_tag=ABC_1
gene 301 900 - ID=ABC_2_gene;Name=thrA;gene=thrA;locus_tag=ABC_2
CDS 301 900 - ID=ABC_2;Parent=ABC_2_gene;Name=thrA;gene=thrA;locus_tag=ABC_2
gene 1001 1076 + ID=ABC_3_gene;locus_tag=ABC_3
tRNA 1001 1076 + ID=ABC_3;Parent=ABC_3_gene;locus_tag=ABC_3;product=tRNA-Ala(tgc)
gene 1201 1300 - ID=ABC_4_gene;locus_tag=ABC_4
ncRNA 1201 1300 - ID=ABC_4;locus_tag=ABC_4
"""
# As in Ensembl's GFF3 of yeast up to release 98: transcripts have the ID of their gene.
ENSEMBL_SAME_ID = """
##gff-version 3
gene 101 200 + ID=YAL1W;biotype=protein_coding;gene_id=YAL1W;logic_name=sgd
mRNA 101 200 + ID=YAL1W;Parent=YAL1W;biotype=protein_coding;transcript_id=YAL1W
exon 101 200 + Parent=YAL1W;Name=YAL1W.1;exon_id=YAL1W.1;rank=1
CDS 101 200 + ID=YAL1W;Parent=YAL1W;protein_id=YAL1W
gene 301 900 - ID=YAL2C;biotype=protein_coding;gene_id=YAL2C
mRNA 301 900 - ID=YAL2C;Parent=YAL2C;biotype=protein_coding;transcript_id=YAL2C
CDS 301 900 - ID=YAL2C;Parent=YAL2C;protein_id=YAL2C
ncRNA_gene 1001 1076 + ID=tA(UGC)A;biotype=tRNA;gene_id=tA(UGC)A
tRNA 1001 1076 + ID=tA(UGC)A;Parent=tA(UGC)A;biotype=tRNA;transcript_id=tA(UGC)A
ncRNA_gene 1201 1300 - ID=snR1;biotype=snoRNA;gene_id=snR1
snoRNA 1201 1300 - ID=snR1;Parent=snR1;biotype=snoRNA;transcript_id=snR1
pseudogene 1501 1800 - ID=YAL5C;biotype=pseudogene;gene_id=YAL5C
pseudogenic_transcript 1501 1800 - ID=YAL5C;Parent=YAL5C;biotype=pseudogene;transcript_id=YAL5C
"""
ENSEMBL = """
##gff-version 3
gene 101 200 + ID=gene:YAL1W;biotype=protein_coding;gene_id=YAL1W;logic_name=sgd
mRNA 101 200 + ID=transcript:YAL1W_mRNA;Parent=gene:YAL1W;biotype=protein_coding;transcript_id=YAL1W_mRNA
exon 101 200 + Parent=transcript:YAL1W_mRNA;Name=YAL1W_mRNA-E1;exon_id=YAL1W_mRNA-E1;rank=1
CDS 101 200 + ID=CDS:YAL1W;Parent=transcript:YAL1W_mRNA;protein_id=YAL1W
gene 301 900 - ID=gene:YAL2C;biotype=protein_coding;gene_id=YAL2C
mRNA 301 900 - ID=transcript:YAL2C_mRNA;Parent=gene:YAL2C;biotype=protein_coding;transcript_id=YAL2C_mRNA
CDS 301 900 - ID=CDS:YAL2C;Parent=transcript:YAL2C_mRNA;protein_id=YAL2C
ncRNA_gene 1001 1076 + ID=gene:tA(UGC)A;biotype=tRNA;gene_id=tA(UGC)A
tRNA 1001 1076 + ID=transcript:tA(UGC)A_tRNA;Parent=gene:tA(UGC)A;biotype=tRNA
ncRNA_gene 1201 1300 - ID=gene:snR1;biotype=snoRNA;gene_id=snR1
snoRNA 1201 1300 - ID=transcript:snR1_snoRNA;Parent=gene:snR1;biotype=snoRNA
pseudogene 1501 1800 - ID=gene:YAL5C;biotype=pseudogene;gene_id=YAL5C
pseudogenic_transcript 1501 1800 - ID=transcript:YAL5C_p;Parent=gene:YAL5C;biotype=pseudogene
"""
BACTERIUM = [(101, "+"), (900, "-"), (1001, "+"), (1300, "-")]


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (
            ".gff3",
            NCBI_GFF3,
        ),
        (
            ".gtf",
            NCBI_GTF,
        ),
        (
            ".gff",
            PROKKA,
        ),
        (".gff", PROKKA_ADDGENES),
        (".gff3", ENSEMBL_SAME_ID),
        (".gff3", ENSEMBL),
    ],
    ids=[
        "NCBI GFF3",
        "NCBI GTF",
        "Prokka",
        "Prokka --addgenes --addmrna",
        "Ensembl, same ID",
        "Ensembl",
    ],
)
def test_each_form_of_an_annotation_has_the_same_start_sites(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    suffix: str,
    text: str,
) -> None:
    path = tmp_path / f"x{suffix}"
    assert sites(path, text) == BACTERIUM
    message(capsys.readouterr().err, "4 start sites")
    # Children before their parents, and without the type of the pseudogene.
    header, *lines = text.strip().splitlines()
    backwards = "\n".join(
        [header, *(line for line in lines[::-1] if line[0] not in "#>")]
    )
    assert (
        sites(path, backwards.replace("pseudogene 1501", "gene 1501"))
        == BACTERIUM[::-1]
    )


_PROCESSED = "processed_pseudogene"
_TRANSCRIBED = "transcribed_unprocessed_pseudogene"
GENCODE = f"""
##description: as in GENCODE
gene 1000 5000 + gene_id "ENSG1.1"; gene_type "protein_coding"; gene_name "A";
transcript 1000 5000 + gene_id "ENSG1.1"; transcript_id "ENST1.1"; transcript_type "protein_coding";
exon 1000 1100 + gene_id "ENSG1.1"; transcript_id "ENST1.1"; gene_type "protein_coding"; exon_number 1;
CDS 1050 1100 + gene_id "ENSG1.1"; transcript_id "ENST1.1"; gene_type "protein_coding"; exon_number 1;
transcript 1200 5000 + gene_id "ENSG1.1"; transcript_id "ENST2.1"; transcript_type "retained_intron";
gene 6000 7000 - gene_id "ENSG2.1"; gene_type "{_PROCESSED}"; gene_name "AP1";
transcript 6000 7000 - gene_id "ENSG2.1"; transcript_id "ENST3.1"; transcript_type "{_PROCESSED}";
gene 7500 8000 - gene_id "ENSG3.1"; gene_type "{_TRANSCRIBED}"; gene_name "AP2";
transcript 7500 8000 - gene_id "ENSG3.1"; transcript_id "T4"; gene_type "{_TRANSCRIBED}";
gene 9000 9500 - gene_id "ENSG4.1"; gene_type "lncRNA"; gene_name "L";
transcript 9000 9500 - gene_id "ENSG4.1"; transcript_id "ENST5.1"; transcript_type "lncRNA";
"""
REFSEQ = """
gene 1000 5000 + ID=gene-A;gene=A;gene_biotype=protein_coding
mRNA 1000 5000 + ID=rna-NM_1.1;Parent=gene-A;gene=A;transcript_id=NM_1.1
exon 1000 1100 + ID=exon-NM_1.1-1;Parent=rna-NM_1.1;gene=A;transcript_id=NM_1.1
CDS 1050 1100 + ID=cds-NP_1.1;Parent=rna-NM_1.1;gene=A
mRNA 1200 5000 + ID=rna-NM_2.1;Parent=gene-A;gene=A;transcript_id=NM_2.1
pseudogene 6000 7000 - ID=gene-AP1;gene=AP1;gene_biotype=pseudogene;pseudo=true
gene 7500 8000 - ID=gene-AP2;gene=AP2;gene_biotype=transcribed_pseudogene;pseudo=true
transcript 7500 8000 - ID=rna-NR_1.1;Parent=gene-AP2;gene=AP2;pseudo=true
exon 7500 8000 - ID=exon-NR_1.1-1;Parent=rna-NR_1.1;gene=AP2;pseudo=true
gene 8100 8200 - ID=gene-AP3;gene=AP3;pseudogene=unprocessed
gene 9000 9500 - ID=gene-L;gene=L;gene_biotype=miRNA
primary_transcript 9000 9500 - ID=rna-NR_2.1;Parent=gene-L;gene=L
miRNA 9100 9120 - ID=rna-MIR;Parent=rna-NR_2.1;gene=L
exon 9100 9120 - ID=exon-MIR;Parent=rna-MIR;gene=L
"""
EUKARYOTE = [(1000, "+"), (1200, "+"), (9500, "-")]


@pytest.mark.parametrize(
    ("suffix", "text"),
    [(".gtf", GENCODE), (".gff3", REFSEQ)],
    ids=["GENCODE", "RefSeq"],
)
def test_pseudogenes_and_derived_transcripts_have_no_start_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str, text: str
) -> None:
    path = tmp_path / f"x{suffix}"
    assert sites(path, text) == EUKARYOTE
    pseudogenes = 3 if text == REFSEQ else 2
    message(capsys.readouterr().err, "3 start sites")
    assert sites(path, "\n".join(text.strip().splitlines()[::-1])) == EUKARYOTE[::-1]
    # They are genes nevertheless, which calls can be in.
    assert len(read_genes(path)) == 2 + pseudogenes


@pytest.mark.parametrize(
    ("suffix", "text", "expected"),
    [
        # UCSC's table browser: neither genes nor transcripts.
        (
            ".gtf",
            """
            exon 100 200 + gene_id "A"; transcript_id "A";
            CDS 150 200 + gene_id "A"; transcript_id "A";
            exon 300 400 + gene_id "A"; transcript_id "A";
            CDS 300 350 + gene_id "A"; transcript_id "A";
            exon 600 700 - gene_id "B"; transcript_id "B";
            exon 800 900 - gene_id "B"; transcript_id "B";
            exon 100 250 + gene_id "A"; transcript_id "A_dup1";
            """,
            [(100, "+"), (900, "-"), (100, "+")],
        ),
        # Prodigal: CDS only. GenBank by way of BioPerl: neither ID nor Parent.
        (
            ".gff",
            "CDS 10 99 + ID=1_1;partial=00\nCDS 200 299 - ID=1_2;partial=00",
            [(10, "+"), (299, "-")],
        ),
        (
            ".gff",
            "gene 8 99 + locus_tag=x1\nCDS 10 99 + locus_tag=x1\nCDS 200 249 - gene=y\nCDS 260 299 - gene=y",
            [(8, "+"), (299, "-")],
        ),
        # A CDS on several lines is one; two of a gene, as by a frameshift, are one gene.
        (
            ".gff3",
            """
            CDS 500 600 - ID=c1;locus_tag=a
            CDS 700 800 - ID=c1;locus_tag=a
            CDS 550 600 - ID=c2;locus_tag=a
            CDS 10 30 + ID=c3
            CDS 50 70 + ID=c3
            """,
            [(800, "-"), (10, "+")],
        ),
        # A gene segment is a transcript, because its parent is a gene.
        (
            ".gff3",
            """
            gene 100 900 + ID=g;gene_biotype=V_segment
            V_gene_segment 110 900 + ID=v;Parent=g
            CDS 130 900 + ID=c;Parent=v
            exon 110 900 + ID=e;Parent=v
            """,
            [(110, "+")],
        ),
    ],
    ids=[
        "exons only",
        "CDS only",
        "locus_tag",
        "several lines",
        "gene segment",
    ],
)
def test_lines_of_a_gene_are_brought_together(
    tmp_path: Path, suffix: str, text: str, expected: list[tuple[int, str]]
) -> None:
    assert sites(tmp_path / f"x{suffix}", text) == expected


def test_a_gene_without_a_line_extends_over_its_transcripts_or_cds(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.gtf"
    copies = """
    transcript 100 200 + gene_id "A"; transcript_id "A";
    transcript 900 950 + gene_id "A"; transcript_id "B";
    """
    path.write_text(rows(copies))
    assert [(gene.start, gene.end, gene.name) for gene in read_genes(path)] == [
        (99, 200, "A"),
        (899, 950, "A"),
    ]
    path = tmp_path / "x.gff"
    path.write_text(rows(PROKKA))
    found = [
        (gene.start + 1, gene.end, gene.strand, gene.name) for gene in read_genes(path)
    ]
    assert (
        found[:2] == [(101, 200, "+", "thrL"), (301, 900, "-", "thrA")]
        and len(found) == 4
    )


def test_genes_without_a_strand_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
    gene 10 90 + ID=a
    gene 100 190 . ID=b;Name=nameless
    mRNA 100 190 . ID=b1;Parent=b
    gene 200 290 . ID=c
    mRNA 200 290 - ID=c1;Parent=c
    """
    assert sites(tmp_path / "x.gff3", text) == [(10, "+"), (290, "-")]
    message(capsys.readouterr().err, "1 genes or transcripts have no strand")
    with fails(DataError, "pseudogene"):
        sites(
            tmp_path / "x.gff3",
            "pseudogene 1 9 + ID=a\ngene 1 9 + ID=b;pseudo=true\ngene 1 9 ? ID=c",
        )


# Real files


def columns(path: Path) -> pd.DataFrame:
    names = [
        "contig",
        "source",
        "type",
        "first",
        "last",
        "score",
        "strand",
        "phase",
        "attributes",
    ]
    return pd.read_csv(path, sep="\t", comment="#", names=names, quoting=3)


def written(path: Path, table: pd.DataFrame) -> Path:
    table.to_csv(path, sep="\t", header=False, index=False, quoting=3)
    return path


def positions(path: Path) -> set[tuple[int, str]]:
    return {(locus.position + 1, locus.strand) for locus in read_promoters(path)}


def five_primes(table: pd.DataFrame) -> set[tuple[int, str]]:
    places = table["first"].where(table["strand"] == "+", table["last"])
    return set(zip(places, table["strand"], strict=True))


def test_escherichia_coli_has_the_same_start_sites_in_each_form(
    shared_data: Path, tmp_path: Path
) -> None:
    """4,494 genes, of which one has two RNAs, and 145 pseudogenes. GTF and Prokka's form are made from it."""
    source = shared_data / "ecoli/GCF_000005845.2_ASM584v2_genomic.gff.gz"
    table = columns(source)
    tag = table["attributes"].str.extract("locus_tag=([^;]+)")[0]
    genes, rnas = (
        table[table["type"] == "gene"],
        table[table["type"].isin(["tRNA", "rRNA", "ncRNA"])],
    )
    expected = five_primes(rnas) | five_primes(
        genes[~tag[genes.index].isin(tag[rnas.index])]
    )
    assert len(genes) == 4_494 and len(expected) == 4_495
    assert positions(source) == expected

    gtf = table[table["type"].isin(["gene", "pseudogene", "CDS", *rnas["type"]])].copy()
    pseudo = (
        gtf["attributes"]
        .str.contains("pseudo=true")
        .map({True: ' pseudo "true";', False: ""})
    )
    transcript = pd.Series(
        [f"unassigned_transcript_{number}" for number in gtf.index], gtf.index
    )
    transcript = transcript.where(~gtf["type"].str.endswith("gene"), "")
    gtf["attributes"] = (
        'gene_id "' + tag[gtf.index] + '"; transcript_id "' + transcript + '";' + pseudo
    )
    gtf["type"] = (
        gtf["type"]
        .replace("pseudogene", "gene")
        .where(~gtf["type"].isin(rnas["type"]), "transcript")
    )
    assert positions(written(tmp_path / "x.gtf", gtf)) == expected

    prokka = table[table["type"].isin(["CDS", *rnas["type"]])].copy()
    prokka = prokka[~prokka["attributes"].str.contains("pseudo=true")]
    prokka["attributes"] = prokka["attributes"].str.replace(
        "Parent=[^;]*;", "", regex=True
    )
    coding = prokka[prokka["type"] == "CDS"].assign(tag=tag)
    whole = coding.groupby("tag").agg(
        {"first": "min", "last": "max", "strand": "first"}
    )
    assert positions(written(tmp_path / "prokka.gff", prokka)) == five_primes(
        rnas
    ) | five_primes(whole)


def test_genes_of_yeast_by_biotype(shared_data: Path) -> None:
    """12 of Ensembl's 7,036 genes are pseudogenes."""
    path = shared_data / "yeast/Saccharomyces_cerevisiae.R64-1-1.96.gtf.gz"
    with gzip.open(path, "rt") as stream:
        lines = [
            line.split("\t")
            for line in stream
            if "\ttranscript\t" in line and "pseudogene" not in line
        ]
    expected = {
        (cells[0], int(cells[3 if cells[6] == "+" else 4]) - 1, cells[6])
        for cells in lines
    }
    found = read_promoters(path)
    assert len(found) == len(lines) == 7_024
    assert {(locus.contig, locus.position, locus.strand) for locus in found} == expected
