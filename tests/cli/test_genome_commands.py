"""`prepare reference` and `prepare promoters` from the command line."""

import gzip
import json

import pytest

from bigbird_dna.genome.fasta import scan_fasta
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.genome.sequence import Locus
from tests.cli.command import refused
from tests.golden.messages import message
from tests.toys import BROKEN_FASTA


@pytest.fixture
def reference(tmp_path):
    path = tmp_path / "reference.fa.gz"
    write_fasta(path, [("I", "ACGT" * 100), ("II", "GGCA" * 100)])
    return path


def test_prepare_reference_writes_an_indexed_genome(run, tmp_path):
    source, output = tmp_path / "in.fa", tmp_path / "results" / "reference.fa.gz"
    source.write_text(">I\nacgtRN\n>II\nAC\n")
    code, out, err = run("prepare reference", source, "-o", output)
    assert (code, out) == (0, "")
    assert "2 contigs, 8 bp, 2 N (1 of them IUPAC codes)" in err
    assert scan_fasta(output) == {"I": 6, "II": 2}
    assert sorted(path.name for path in output.parent.iterdir()) == [
        "reference.fa.gz",
        "reference.fa.gz.fai",
        "reference.fa.gz.gzi",
    ]


def test_prepare_reference_reads_genbank_and_knows_its_accessions(run, tmp_path):
    source, output = tmp_path / "in.gbff.gz", tmp_path / "reference.fa.gz"
    record = "LOCUS       NC_001133 6 bp DNA linear PLN 01-JAN-2020\nACCESSION   NC_001133\n"
    record += "VERSION     NC_001133.9\nORIGIN\n        1 acgtrn\n//\n"
    source.write_bytes(gzip.compress(record.encode()))
    command = ["prepare reference", source, "-o", output, "--assembly"]
    code, out, err = run(*command, "sacCer3")
    assert (code, out) == (0, "")
    assert "contig 'NC_001133.9' has 6 bp, in sacCer3 230,218" in err
    assert "1 contigs, 6 bp, 2 N (1 of them IUPAC codes)" in err
    assert scan_fasta(output) == {"NC_001133.9": 6}
    refused(run(*command, "GRCh37"), 1, source)
    source.write_bytes(gzip.compress(record.replace("ORIGIN", "CONTIG")[:-18].encode()))
    refused(run(*command, "sacCer3"), 1, source)


TRUNCATED = gzip.compress(b">a\n" + b"ACGTTGCAAC\n" * 1000)[:-20]
BROKEN = {**BROKEN_FASTA, "truncated": (TRUNCATED, "truncated")}


@pytest.mark.parametrize("case", BROKEN)
def test_prepare_reference_refuses_bad_input_in_one_line(run, tmp_path, case):
    content, _ = BROKEN[case]
    source, output = tmp_path / "in.fa", tmp_path / "out" / "reference.fa.gz"
    source.write_bytes(content)
    output.parent.mkdir()
    refused(run("prepare reference", source, "-o", output), 1, source)
    assert list(output.parent.iterdir()) == []


def test_prepare_reference_refuses_other_files_and_assemblies(run, tmp_path, reference):
    output = tmp_path / "out.fa.gz"
    refused(run("prepare reference", tmp_path / "absent.fa", "-o", output), 1, tmp_path / "absent.fa")
    refused(run("prepare reference", tmp_path, "-o", output), 1)
    command = ["prepare reference", reference, "-o", output, "--assembly"]
    for name, code in (("GRCh37", 1), ("hg19", 1), ("hg99", 2)):
        refused(run(*command, name), code)
        assert not output.exists()
    code, _, err = run(*command, "sacCer3")
    assert code == 0
    message(err, "sacCer3", "230,218")


def test_prepare_promoters_renames_and_counts(run, tmp_path, reference):
    source, output = tmp_path / "x.sga", tmp_path / "out" / "promoters.tsv"
    source.write_text(
        "NC_001134.8\tTSS\t8\t-\t1\tb\n"
        "NC_001133.9\tTSS\t5\t+\t1\ta\n"
        "chrI\tTSS\t5\t+\t1\ta2\n"
        "NC_001135.5\tTSS\t5\t+\t1\tc\n"
    )
    code, out, err = run(
        "prepare promoters", source, "--reference", reference, "--assembly", "sacCer3", "-o", output
    )
    assert (code, out) == (0, "")
    assert read_loci(output) == [Locus("I", 4, "+", "a"), Locus("II", 7, "-", "b")]
    assert json.loads(output.with_suffix(".json").read_text()) == {
        "read": 4,
        "lifted": None,
        "unmapped": None,
        "off_reference": 1,
        "duplicates": 1,
        "promoters": 2,
        "dropped_contigs": {"NC_001135.5": 1},
        "beyond_contigs": {},
    }
    message(err, source, "1 of 4 promoters (25.0%)", "NC_001135.5 1\n", "4 read, 1 off reference")


def test_prepare_promoters_with_an_alias_file(run, tmp_path, reference):
    source, output, aliases = tmp_path / "x.gff3", tmp_path / "promoters.tsv", tmp_path / "aliases.tsv"
    source.write_text("one\tx\tmRNA\t5\t9\t.\t+\t.\tID=a\n" + "two\tx\tmRNA\t5\t9\t.\t-\t.\tID=b\n" * 2)
    command = ["prepare promoters", source, "--reference", reference, "--assembly", "custom", "-o", output]
    refused(run(*command), 1, after_log=True)
    aliases.write_text("I\tone\n")
    code, _, err = run(*command, "--aliases", aliases)
    assert code == 0
    message(err, source, "2 of 3 promoters (66.7%)", "two 2")
    assert json.loads(output.with_suffix(".json").read_text())["dropped_contigs"] == {"two": 2}
    aliases.write_text("I\tone\nII\ttwo\n")
    code, _, err = run(*command, "--aliases", aliases)
    assert code == 0 and "warning" not in err
    assert read_loci(output) == [Locus("I", 4, "+", "a"), Locus("II", 8, "-", "b")]
    aliases.write_text("I\tone\nI\ttwo\n")
    refused(run(*command, "--aliases", aliases), 1, aliases)
    refused(run("prepare reference", reference, "-o", output, "--aliases", tmp_path / "gone"), 1)


def test_prepare_promoters_lifts_along_a_chain(run, tmp_path):
    reference, chain = tmp_path / "22.fa.gz", tmp_path / "x.chain"
    source, output = tmp_path / "x.bed", tmp_path / "promoters.tsv"
    write_fasta(reference, [("22", "ACGT" * 100)])
    chain.write_text("chain 1 chr22 50818468 + 100 200 chr22 51304566 + 150 250 1\n100\n\n")
    source.write_text("NC_000022.11\t120\t121\ta\t0\t+\nNC_000022.11\t20\t21\tb\t0\t+\n")
    command = ["prepare promoters", source, "--reference", reference, "--assembly", "GRCh37"]
    command += ["-o", output, "--chain", chain]
    code, _, err = run(*command, "--from-assembly", "hg38")
    assert code == 0
    assert "2 read, 1 lifted, 1 unmapped, 0 off reference" in err
    assert read_loci(output) == [Locus("22", 170, "+", "a")]
    refused(run(*command), 2)


def test_prepare_promoters_refuses_a_bed_of_other_contigs_and_a_plain_reference(run, tmp_path, reference):
    source, output = tmp_path / "x.bed", tmp_path / "out" / "promoters.tsv"
    output.parent.mkdir()
    source.write_text("NC_000001.11\t5\t6\ta\t0\t+\n")
    command = ["prepare promoters", source, "--reference", reference, "--assembly", "sacCer3"]
    for words, name in ((command, "sacCer3"), (command[:-2], "custom")):
        parts = (source, "NC_000001.11", "I, II", name, "GRCh38")
        refused(run(*words, "-o", output), 1, *parts, after_log=True)
    plain = tmp_path / "plain.fa.gz"  # can't be read from anywhere but its start
    plain.write_bytes(gzip.compress(b">I\nACGT\n"))
    refused(run("prepare promoters", source, "--reference", plain, "-o", output), 1)
    assert list(output.parent.iterdir()) == []
