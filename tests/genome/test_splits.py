"""Contigs and regions of them fall into splits under any of their names."""

import gzip
import re
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.config.data import GenomeConfig
from bigbird_dna.config.reading import load_config
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.genome.assembly import ASSEMBLIES, load_assembly, open_assembly, shown
from bigbird_dna.genome.intervals import find_region
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.splits import (
    Segment,
    Split,
    Splits,
    format_named_region,
    name_parts,
    read_named_region,
)
from tests.conftest import REPOSITORY
from tests.genome.formats import REPORT
from tests.golden.messages import fails, message
from tests.toys import written

YEAST = load_assembly("sacCer3")
DEMO = load_assembly("demo")
CONTIGS = dict.fromkeys(["I", "II", "III", "IV", "Mito"], 1000)


def contigs_of(splits: Splits, split: Split) -> list[str]:
    return list(dict.fromkeys(one.contig for one in splits.intervals(split)))


def assigned(splits: Splits) -> dict[str, Split | None]:
    """The split of each contig; every one is whole."""
    return {contig: split for contig, ((_, split),) in splits.by_contig.items()}


def test_contigs_that_are_not_named_are_for_training():
    config = GenomeConfig(exclude=("chrM",), valid=("NC_001135.5",), test=("chr4",))
    splits = Splits.from_config(config, CONTIGS, YEAST)
    assert contigs_of(splits, "train") == ["I", "II"]
    assert contigs_of(splits, "valid") == ["III"]
    assert contigs_of(splits, "test") == ["IV"]
    assert [*assigned(splits).values()] == ["train", "train", "valid", "test", None]
    assert splits.intervals("test") == [Interval("IV", 0, 1000)]
    assert splits.over(Interval("nowhere", 0, 5)) == []


def test_without_a_table_names_stand_for_themselves():
    contigs = dict.fromkeys(
        ["HLA-A*01:01", "HLA-A*01:01:02", "a[1]", "a1"], 100
    )  # with a pattern's signs
    config = GenomeConfig(exclude=("HLA-A*01:01",), test=("a[1]",))
    splits = Splits.from_config(config, contigs, DEMO)
    assert [*assigned(splits).values()] == [None, "train", "test", "train"]
    contigs = {"c1": 5, "c2": 6}
    splits = Splits.from_config(GenomeConfig(test=("c2",)), contigs, DEMO)
    assert contigs_of(splits, "test") == ["c2"]
    with fails(ConfigError):
        Splits.from_config(GenomeConfig(test=("chrc2",)), contigs, DEMO)


def test_patterns_fit_any_name_and_a_written_name_wins_over_them(capsys):
    config = GenomeConfig(
        exclude=("chr?", "*_random"), valid=("NC_00113[56]*",), test=("chrII",)
    )
    with fails(ConfigError):
        Splits.from_config(config, CONTIGS, YEAST)
    config = GenomeConfig(
        exclude=("chrM", "*_random"), valid=("NC_00113[56]*",), test=("chrII", "IV")
    )
    splits = Splits.from_config(config, CONTIGS, YEAST)
    assert [*assigned(splits).values()] == ["train", "test", "valid", "test", None]
    assert capsys.readouterr().err.endswith(
        "genome.exclude: '*_random' matches no contig of the reference\n"
    )


def test_the_patterns_of_grch37_leave_the_chromosomes():
    """Of hg19's 93 contigs, under UCSC's, Ensembl's and GenBank's names of chromosomes."""
    others = [
        "chrM",
        "chr4_ctg9_hap1",
        "chr6_apd_hap1",
        "chr17_ctg5_hap1",
        "chr1_gl000191_random",
    ]
    others += [f"chrUn_gl{number:06}" for number in range(211, 250)]
    config = load_config(REPOSITORY / "workflow/config/grch37.yaml").genome
    table = load_assembly("GRCh37")
    chromosomes = [f"chr{name}" for name in (*range(1, 23), "X", "Y")]
    for other in (0, 1, 2):
        names = [
            sorted(table.names_of(name), key=len)[-1 - other] for name in chromosomes
        ]
        found = assigned(
            Splits.from_config(config, dict.fromkeys([*names, *others], 1), table)
        )
        assert [contig for contig, split in found.items() if split is not None] == names


def test_what_regions_do_not_cover_is_for_training():
    config = GenomeConfig(
        valid=("chrI:101-200",), test=("I:801-",), exclude=("NC_001133.9:1-50", "Mito")
    )
    splits = Splits.from_config(
        config, CONTIGS, YEAST, test_regions=["I:750-820", "II"]
    )
    ends = [50, 100, 200, 749, 1000]
    assert tuple(splits.by_contig["I"]) == tuple(
        Segment(Interval("I", start, end), split)
        for start, end, split in zip(
            [0, *ends], ends, [None, "train", "valid", "train", "test"], strict=False
        )
    )
    assert splits.intervals("test") == [
        Interval("I", 749, 1000),
        Interval("II", 0, 1000),
    ]
    assert contigs_of(splits, "train") == ["I", "III", "IV"]
    assert [segment.split for segment in splits.over(Interval("I", 99, 201))] == [
        "train",
        "valid",
        "train",
    ]
    assert [segment.split for segment in splits.over(Interval("I", -9, 50))] == [None]


KINDS = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from([None, "valid", "test"])),
    min_size=1,
    max_size=9,
)


@given(KINDS)
def test_segments_are_what_each_base_is_for(drawn):
    """Regions that are laid side by side: a base is for what its region says, else for training."""
    expected: list[str | None] = ["train"] * 60
    texts: dict[str, list[str]] = {"exclude": [], "valid": [], "test": []}
    for start, kind in drawn:
        end = min(60, start + 1 + start % 7)
        if {*expected[start:end]} <= {"train", kind}:
            expected[start:end] = [kind] * (end - start)
            texts[kind or "exclude"].append(f"c:{start + 1}-{end}")
    config = GenomeConfig(
        **{key: tuple(dict.fromkeys(own)) for key, own in texts.items()}
    )
    splits = Splits.from_config(config, {"c": 60, "d": 5}, DEMO)
    (*own, last) = [one for some in splits.by_contig.values() for one in some]
    assert last == Segment(Interval("d", 0, 5), "train")
    assert [
        base for segment in own for base in [segment.split] * len(segment.interval)
    ] == expected
    edges = [segment.interval.start for segment in own] + [own[-1].interval.end]
    assert edges[0] == 0 and edges[-1] == 60 and (np.diff(edges) > 0).all()
    assert all(one.split != other.split for one, other in pairwise(own))


@pytest.mark.parametrize(
    ("values", "regions"),
    [
        *(
            (values, {})
            for values in (
                *(
                    {"test": (text,)}
                    for text in ("chrV", "scaffold_*", "V:1-5", "I:5-4", "I:0-5")
                ),
                *(
                    {"valid": texts}
                    for texts in (("banana",), ("scaffold_*",), ("I:990-1,001",))
                ),
                {"valid": ("chrI*:1-5",)},
                *(
                    {"valid": ("I",), "test": ("chrI",)},
                    {"valid": ("I:1-200",), "test": ("chrI",)},
                ),
                *(
                    {"valid": ("I:1-200",), "exclude": (text,)}
                    for text in ("chrI:200-300", "chrI*")
                ),
                {"test": ("I", "II", "III"), "exclude": ("IV", "Mito")},
                {
                    "test": ("I", "II", "III"),
                    "exclude": ("IV", "Mito:1-400"),
                    "valid": ("Mito:401-",),
                },
            )
        ),
        ({"valid": ("I",)}, {"valid_regions": ["V"]}),
        ({"valid": ("I",)}, {"test_regions": ["I:5-9"]}),
        ({"valid": ("I",)}, {"valid_regions": ["II:1-9"], "test_regions": ["II:9-12"]}),
    ],
)
def test_a_wrong_division_is_refused(values, regions):
    with fails(ConfigError):
        Splits.from_config(GenomeConfig(**values), CONTIGS, YEAST, **regions)


HUMAN = load_assembly("GRCh37")
HUMAN_CONTIGS = {"22": 51_304_566, "21": 48_129_895, "odd:1-5": 100}


@pytest.mark.parametrize(
    ("text", "region"),
    [
        *(("22", ("22", 0, 51_304_566)), ("chr22:1-1", ("22", 0, 1))),
        ("NC_000022.10:18,000,001-19,000,000", ("22", 18_000_000, 19_000_000)),
        *(
            ("22:51304566", ("22", 51_304_565, 51_304_566)),
            ("21:48,000,001-", ("21", 48_000_000, 48_129_895)),
        ),
        *(("odd:1-5", ("odd:1-5", 0, 100)), ("odd:1-5:2-3", ("odd:1-5", 1, 3))),
    ],
)
def test_regions_are_read_as_samtools_does(text, region):
    def match(name: str) -> str | None:
        return HUMAN.match(name, HUMAN_CONTIGS)

    found = find_region(text, HUMAN_CONTIGS, match)
    assert found == Interval(*region)
    assert find_region(format_named_region(found), HUMAN_CONTIGS, match) == found
    assert read_named_region(format_named_region(found)) == found


def test_what_was_not_written_is_not_read_back_and_whole_contigs_have_no_parts():
    for text in (
        "22",
        "22:5",
        "22:5-",
        "22:0-3",
        "22:5-4",
        ":1-2",
        "",
    ):
        with fails(ValueError):
            read_named_region(text)
    segments = [
        Interval("22", 0, 51_304_566),
        Interval("odd:1-5", 0, 40),
        Interval("odd:1-5", 60, 100),
    ]
    assert name_parts(segments, HUMAN_CONTIGS) == ["odd:1-5:1-40", "odd:1-5:61-100"]


# Names of contigs: tables that are consistent in themselves and with public files, and alias files


@pytest.mark.parametrize("name", ASSEMBLIES)
def test_names_stand_for_one_contig_and_are_accessions_beside_others(name):
    contigs = load_assembly(name).contigs
    names = [alias for contig in contigs for alias in contig.names]
    assert len(names) == len(set(names)) and all(
        contig.length > 0 for contig in contigs
    )
    for form in (r"NC_\d{6}\.\d+", r"[A-Z]{1,2}\d{5,6}\.\d"):
        assert all(
            any(re.fullmatch(form, alias) for alias in contig.names)
            for contig in contigs
        )


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
        *(
            ("sacCer3", "I chrI chr1 NC_001133.9 BK006935.2"),
            ("sacCer3", "X chrX chr10 NC_001142.9"),
        ),
        *(
            ("sacCer3", "Mito chrM NC_001224.1"),
            ("GRCh37", "22 chr22 NC_000022.10 CM000684.1"),
        ),
        *(
            ("GRCh38", "X chrX NC_000023.11 CM000685.2"),
            ("GRCh38", "MT chrM NC_012920.1"),
        ),
    ],
)
def test_all_names_of_a_contig_find_each_other(assembly, names):
    table = load_assembly(assembly)
    for name, other in product(names.split(), repeat=2):
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


def test_right_lengths_pass_in_silence_and_a_shorter_contig_with_a_warning(capsys):
    load_assembly("GRCh37").check_lengths({"chr22": 51_304_566, "scaffold": 17})
    load_assembly("demo").check_lengths({"anything": 1})
    assert not capsys.readouterr().err
    load_assembly("GRCh37").check_lengths({"22": 22_000_000})
    message(
        capsys.readouterr().err, "contig '22' has 22,000,000 bp, in GRCh37 51,304,566"
    )


def test_another_assembly_is_an_error():
    for contigs in ({"22": 51_304_567}, {"chr22": 50_818_468}, {"c1": 5, "c2": 6}):
        with fails(DataError):
            load_assembly("GRCh37").check_lengths(contigs, "x.fa")
    with fails(DataError):
        load_assembly("GRCh38").match("NC_000001.11", ["1", "chr1"])
    with fails(ConfigError):
        load_assembly("hg99")
    message(shown("abcdefg"))
    assert shown("ab") == "a, b"


def test_an_assembly_by_another_name_is_that_assembly():
    for other, name in (("hg19", "GRCh37"), ("hg38", "GRCh38"), ("R64-1-1", "sacCer3")):
        assert load_assembly(other) == load_assembly(name)
        assert open_assembly(other).name == name


@pytest.mark.parametrize(
    ("assembly", "contig", "length", "other"),
    [
        ("hg19", "chrM", 16_571, 16_569),
        ("hg19", "MT", 16_569, 16_571),
        ("hg38", "chrM", 16_569, 16_571),
    ],
)
def test_no_mitochondrion_is_taken_for_the_other(assembly, contig, length, other):
    load_assembly(assembly).check_lengths({contig: length})
    with fails(DataError):
        load_assembly(assembly).check_lengths({contig: other})


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
    assert [
        load_assembly("GRCh38").match(name, sizes["GRCh38"]) for name in accessions
    ] == primary


alias_names = st.text("abcXYZ019._:|*-", min_size=1, max_size=12)
tables = st.lists(
    st.sets(alias_names, min_size=1, max_size=5), min_size=1, max_size=6
).map(
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
    path = written(
        tmp_path / "aliases.tsv",
        "chr1\tfirst\n2\tsecond\nplasmid\tp1\nCM000663.2\tuno\n",
    )
    assembly = open_assembly("GRCh38", path)
    assert assembly.match("first", ["NC_000001.11"]) == "NC_000001.11"
    assert assembly.match("uno", ["first"]) == "first"
    assert assembly.match("chr2", ["second"]) == "second"
    assert assembly.match("p1", ["plasmid"]) == "plasmid"
    assert assembly.lengths["second"] == 242_193_529
    assembly.check_lengths({"first": 248_956_422, "p1": 5})
    assert open_assembly("GRCh38").match("first", ["1"]) is None


def test_one_line_for_two_contigs_and_a_table_of_others_are_refused(tmp_path):
    path = written(tmp_path / "aliases.tsv", "chrI\tchrII\n")
    with fails(DataError):
        open_assembly("sacCer3", path)
    with fails(DataError):
        open_assembly("custom", path, "mine").check_lengths({"scaffold": 5}, "x.fa")
