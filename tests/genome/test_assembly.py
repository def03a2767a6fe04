"""Names of contigs: tables that are consistent in themselves and with public files, and alias files."""

import gzip
import re
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.genome.assembly import ASSEMBLIES, load_assembly, open_assembly, shown
from tests.genome.formats import REPORT
from tests.golden.messages import fails
from tests.toys import written


@pytest.mark.parametrize("name", ASSEMBLIES)
def test_names_stand_for_one_contig_and_are_accessions_beside_others(name):
    contigs = load_assembly(name).contigs
    names = [alias for contig in contigs for alias in contig.names]
    assert len(names) == len(set(names)) and all(contig.length > 0 for contig in contigs)
    for form in (r"NC_\d{6}\.\d+", r"[A-Z]{1,2}\d{5,6}\.\d"):
        assert all(any(re.fullmatch(form, alias) for alias in contig.names) for contig in contigs)


def test_chromosomes_of_grch38_are_the_next_versions_of_those_of_grch37():
    old, new = load_assembly("GRCh37").contigs, load_assembly("GRCh38").contigs
    for before, after in zip(old[:24], new[:24], strict=True):
        (earlier,) = (alias for alias in before.names if alias.startswith("NC_"))
        (later,) = (alias for alias in after.names if alias.startswith("NC_"))
        accession, version = earlier.split(".")
        assert later == f"{accession}.{int(version) + 1}"
        assert before.length != after.length


@pytest.mark.parametrize(
    ("assembly", "names"),
    [
        ("sacCer3", ["I", "chrI", "chr1", "NC_001133.9", "BK006935.2"]),
        ("sacCer3", ["X", "chrX", "chr10", "NC_001142.9"]),
        ("sacCer3", ["Mito", "chrM", "NC_001224.1"]),
        ("GRCh37", ["22", "chr22", "NC_000022.10", "CM000684.1"]),
        ("GRCh38", ["X", "chrX", "NC_000023.11", "CM000685.2"]),
        ("GRCh38", ["MT", "chrM", "NC_012920.1"]),
    ],
)
def test_all_names_of_a_contig_find_each_other(assembly, names):
    table = load_assembly(assembly)
    for name in names:
        for other in names:
            assert table.match(name, ["elsewhere", other]) == other


@pytest.mark.parametrize(
    ("assembly", "name", "contigs", "found"),
    [
        ("GRCh37", "chrM", ["MT"], None),  # UCSC's chrM of hg19 is another sequence
        ("GRCh37", "NC_000001.11", ["1"], None),  # GRCh38's
        ("GRCh38", "chrUn_KI270302v1", ["1"], None),
        ("demo", "chr1", ["1"], None),
        ("sacCer3", "I", ["II"], None),
        ("GRCh38", "scaffold_7", ["scaffold_7"], "scaffold_7"),
        ("demo", "c1", ["c1"], "c1"),
    ],
)
def test_a_name_is_that_contig_or_nothing(assembly, name, contigs, found):
    assert load_assembly(assembly).match(name, contigs) == found


def test_two_names_of_one_contig_in_a_reference_are_an_error():
    with fails(DataError):
        load_assembly("GRCh38").match("NC_000001.11", ["1", "chr1"])


def test_right_lengths_pass_in_silence_with_scaffolds_beside_them(capsys):
    load_assembly("GRCh37").check_lengths({"chr22": 51_304_566, "scaffold": 17})
    load_assembly("demo").check_lengths({"anything": 1})
    assert not capsys.readouterr().err


def test_a_shorter_contig_is_taken_for_a_piece_with_a_warning(capsys):
    load_assembly("GRCh37").check_lengths({"22": 22_000_000})
    warning = capsys.readouterr().err
    assert "warning: reference: contig '22' has 22,000,000 bp, in GRCh37 51,304,566" in warning


@pytest.mark.parametrize("contigs", [{"22": 51_304_567}, {"chr22": 50_818_468}, {"c1": 5, "c2": 6}])
def test_another_assembly_is_an_error(contigs):
    with fails(DataError):
        load_assembly("GRCh37").check_lengths(contigs, "x.fa")


def test_an_unknown_assembly_is_an_error_that_lists_the_known():
    with fails(ConfigError):
        load_assembly("hg99")


@pytest.mark.parametrize(("other", "name"), [("hg19", "GRCh37"), ("hg38", "GRCh38"), ("R64-1-1", "sacCer3")])
def test_an_assembly_by_another_name_is_that_assembly(other, name):
    assert load_assembly(other) == load_assembly(name)
    assert open_assembly(other).name == name


@pytest.mark.parametrize(
    ("assembly", "contig", "length", "is_right"),
    [
        *(("hg19", "chrM", 16_571, True), ("hg19", "chrM", 16_569, False), ("hg19", "MT", 16_569, True)),
        *(("hg19", "MT", 16_571, False), ("hg38", "chrM", 16_569, True), ("hg38", "chrM", 16_571, False)),
    ],
)
def test_no_mitochondrion_is_taken_for_the_other(assembly, contig, length, is_right):
    with nullcontext() if is_right else fails(DataError):
        load_assembly(assembly).check_lengths({contig: length})


def test_shown_is_short():
    assert shown("abcdefg") == "a, b, c, d, … 7 in all"
    assert shown("ab") == "a, b"


def test_yeast_agrees_with_the_genome_and_the_promoters(shared_data):
    table = load_assembly("sacCer3")
    lengths = {}
    genome = shared_data / "yeast/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz"
    with gzip.open(genome, "rt") as stream:
        for line in stream:
            if line.startswith(">"):
                name, _, place = line[1:].split()[:3]
                lengths[name] = int(place.split(":")[4])
    assert lengths == {contig.name: contig.length for contig in table.contigs}
    sga = (shared_data / "yeast/Sc_EPDnew_002_sacCer3.sga").read_text().splitlines()
    accessions = list(dict.fromkeys(line.split("\t")[0] for line in sga))
    matched = [table.match(accession, lengths) for accession in accessions]
    assert set(matched) == set(lengths)


def test_human_agrees_with_the_chain_and_the_promoters(shared_data):
    sizes = {"GRCh37": {}, "GRCh38": {}}
    with gzip.open(shared_data / "hg19/hg38ToHg19.over.chain.gz", "rt") as stream:
        for line in stream:
            if line.startswith("chain"):
                fields = line.split()
                sizes["GRCh38"][fields[2]] = int(fields[3])
                sizes["GRCh37"][fields[7]] = int(fields[8])
    for assembly, known in sizes.items():
        table = load_assembly(assembly)
        found = [(contig, table.match(contig.name, known)) for contig in table.contigs]
        lengths = {name: contig.length for contig, name in found if name is not None}
        assert len(lengths) == 25
        assert lengths == {name: known[name] for name in lengths}
    sga = (shared_data / "epdnew/Hs_EPDnew_006_hg38.sga").read_text().splitlines()
    accessions = list(dict.fromkeys(line.split("\t")[0] for line in sga))
    primary = [f"chr{number}" for number in [*range(1, 23), "X", "Y"]]
    assert [load_assembly("GRCh38").match(name, sizes["GRCh38"]) for name in accessions] == primary


alias_names = st.text("abcXYZ019._:|*-", min_size=1, max_size=12)
tables = st.lists(st.sets(alias_names, min_size=1, max_size=5), min_size=1, max_size=6).map(
    lambda rows: [row - set().union(*rows[:number]) for number, row in enumerate(rows)]
)


@given(rows=tables, data=st.data())
def test_names_find_each_other_within_a_line_and_none_of_another(tmp_path, rows, data):
    path = tmp_path / "aliases.tsv"
    lines = ["\t".join(data.draw(st.permutations([*row, ""]))) for row in rows]
    path.write_text("# made up\n" + "\n".join(["", *lines, ""]))
    assembly = open_assembly("custom", path, "mine")
    assert assembly.name == "mine"
    for row in rows:
        for name in row:
            assert assembly.names_of(name) == row
            for other in rows:
                contigs = [min(other)] if other else []
                expected = contigs[0] if contigs and row is other else None
                assert assembly.match(name, contigs) == expected
    assert not assembly.lengths


def test_ncbi_s_report_tells_names_and_lengths(tmp_path):
    path = written(tmp_path / "GCF_x_assembly_report.txt", REPORT)
    assembly = open_assembly("custom", path)
    assert assembly.names_of("chrI") == {"I", "BK006935.2", "NC_001133.9", "chrI"}
    # Accessions whose sequences differ are not both the scaffold's; where RefSeq has none, GenBank's is.
    assert assembly.names_of("s1") == {"s1", "NW_1.1"}
    assert assembly.names_of("s2") == {"s2", "KB2.1"}
    assert assembly.lengths["NC_001133.9"] == 230_218 and assembly.lengths["s2"] == 78
    with fails(DataError):
        assembly.check_lengths({"chrI": 230_219})


def test_a_known_assembly_gets_more_names_and_keeps_its_lengths(tmp_path):
    path = written(tmp_path / "aliases.tsv", "chr1\tfirst\n2\tsecond\nplasmid\tp1\nCM000663.2\tuno\n")
    assembly = open_assembly("GRCh38", path)
    assert assembly.match("first", ["NC_000001.11"]) == "NC_000001.11"
    assert assembly.match("uno", ["first"]) == "first"
    assert assembly.match("chr2", ["second"]) == "second"
    assert assembly.match("p1", ["plasmid"]) == "plasmid"
    assert assembly.lengths["second"] == 242_193_529
    assembly.check_lengths({"first": 248_956_422, "p1": 5})
    assert open_assembly("GRCh38").match("first", ["1"]) is None


def test_one_line_for_two_contigs_of_a_known_assembly_is_refused(tmp_path):
    path = written(tmp_path / "aliases.tsv", "chrI\tchrII\n")
    with fails(DataError):
        open_assembly("sacCer3", path)


def test_a_table_of_other_contigs_is_refused(tmp_path):
    path = written(tmp_path / "aliases.tsv", "chrI\tone\n")
    with fails(DataError):
        open_assembly("custom", path, "mine").check_lengths({"scaffold": 5}, "x.fa")
