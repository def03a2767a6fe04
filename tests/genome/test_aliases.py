"""Alias files: every name on a line finds the others, and every fault has its line."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import open_assembly
from tests.golden.messages import fails

REPORT = (
    "# Assembly name:  R64\n"
    "# Sequence-Name\tSequence-Role\tAssigned-Molecule\tAssigned-Molecule-Location/Type\tGenBank-Accn\t"
    "Relationship\tRefSeq-Accn\tAssembly-Unit\tSequence-Length\tUCSC-style-name\r\n"
    "I\tassembled-molecule\tI\tChromosome\tBK006935.2\t=\tNC_001133.9\tPrimary\t230218\tchrI\r\n"
    "s1\tunplaced-scaffold\tI\tChromosome\tKB1.1\t<>\tNW_1.1\tPrimary\t77\tna\r\n"
    "s2\tunplaced-scaffold\tna\tna\tKB2.1\t<>\tna\tPrimary\t78\tna\r\n"
)
names = st.text("abcXYZ019._:|*-", min_size=1, max_size=12)
tables = st.lists(st.sets(names, min_size=1, max_size=5), min_size=1, max_size=6).map(
    lambda rows: [row - set().union(*rows[:number]) for number, row in enumerate(rows)]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    path = tmp_path / "GCF_x_assembly_report.txt"
    path.write_text(REPORT)
    assembly = open_assembly("custom", path)
    assert assembly.names_of("chrI") == {"I", "BK006935.2", "NC_001133.9", "chrI"}
    # Accessions whose sequences differ are not both the scaffold's; where RefSeq has none, GenBank's is.
    assert assembly.names_of("s1") == {"s1", "NW_1.1"}
    assert assembly.names_of("s2") == {"s2", "KB2.1"}
    assert assembly.lengths["NC_001133.9"] == 230_218 and assembly.lengths["s2"] == 78
    with fails(DataError):
        assembly.check_lengths({"chrI": 230_219})


def test_a_known_assembly_gets_more_names_and_keeps_its_lengths(tmp_path):
    path = tmp_path / "aliases.tsv"
    path.write_text("chr1\tfirst\n2\tsecond\nplasmid\tp1\nCM000663.2\tuno\n")
    assembly = open_assembly("GRCh38", path)
    assert assembly.match("first", ["NC_000001.11"]) == "NC_000001.11"
    assert assembly.match("uno", ["first"]) == "first"
    assert assembly.match("chr2", ["second"]) == "second"
    assert assembly.match("p1", ["plasmid"]) == "plasmid"
    assert assembly.lengths["second"] == 242_193_529
    assembly.check_lengths({"first": 248_956_422, "p1": 5})
    assert open_assembly("GRCh38").match("first", ["1"]) is None


BROKEN = {
    "twice": ("a\tb\nc\nb\td\n", "line 3: 'b' stands in line 1 too: all names of a contig belong on one"),
    "blanks": ("chrI NC_001133.9\n", "line 1: contig 'chrI NC_001133.9' has a space: names are separated by"),
    "control": ("a\tb\x85c\n", "line 1: "),
    "hash": ("a\t#b\n", "line 1: contig '#b' begins with '#'"),
    "nothing": ("# only\n\n", "no names of contigs in the file"),
    "empty": ("", "the file is empty"),
    "columns": (REPORT + "x\ty\n", "line 6: has 2 columns, not the 10"),
    "nameless": (REPORT + "na\t" * 9 + "na\n", "line 6: a sequence without a name"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_gives_one_clear_line(tmp_path, case):
    text, message = BROKEN[case]
    path = tmp_path / "aliases.tsv"
    path.write_text(text)
    with fails(DataError) as caught:
        open_assembly("custom", path)
    assert str(caught.value).startswith(str(path))


def test_one_line_for_two_contigs_of_a_known_assembly_is_refused(tmp_path):
    path = tmp_path / "aliases.tsv"
    path.write_text("chrI\tchrII\n")
    with fails(DataError):
        open_assembly("sacCer3", path)


def test_a_table_of_other_contigs_is_refused(tmp_path):
    path = tmp_path / "aliases.tsv"
    path.write_text("chrI\tone\n")
    with fails(DataError):
        open_assembly("custom", path, "mine").check_lengths({"scaffold": 5}, "x.fa")
