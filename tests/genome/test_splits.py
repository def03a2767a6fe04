"""Contigs and regions of them fall into splits under any of their names."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.config import GenomeConfig, load_config
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.splits import (
    NamedRegion,
    Segment,
    Split,
    Splits,
    find_overlap,
    fitting_contigs,
    format_named_region,
    name_parts,
    parse_named_region,
    read_named_region,
)
from tests.conftest import REPOSITORY
from tests.golden.messages import fails

YEAST = load_assembly("sacCer3")
DEMO = load_assembly("demo")
CONTIGS = dict.fromkeys(["I", "II", "III", "IV", "Mito"], 1000)


def assigned(splits: Splits) -> dict[str, Split | None]:
    """The split of each contig; every one is whole."""
    return {contig: split for contig, ((_, split),) in splits.by_contig.items()}


def test_contigs_that_are_not_named_are_for_training():
    config = GenomeConfig(exclude=("chrM",), valid=("NC_001135.5",), test=("chr4",))
    splits = Splits.from_config(config, CONTIGS, YEAST)
    assert splits.contigs("train") == ["I", "II"]
    assert splits.contigs("valid") == ["III"]
    assert splits.contigs("test") == ["IV"]
    assert [*assigned(splits).values()] == ["train", "train", "valid", "test", None]
    assert splits.intervals("test") == [Interval("IV", 0, 1000)]
    assert splits.over(Interval("nowhere", 0, 5)) == []


def test_without_a_table_names_stand_for_themselves():
    contigs = {"c1": 5, "c2": 6}
    assert Splits.from_config(GenomeConfig(test=("c2",)), contigs, DEMO).contigs("test") == ["c2"]
    with fails(ConfigError):
        Splits.from_config(GenomeConfig(test=("chrc2",)), contigs, DEMO)


def test_patterns_fit_any_name_and_a_written_name_wins_over_them(capsys):
    config = GenomeConfig(exclude=("chr?", "*_random"), valid=("NC_00113[56]*",), test=("chrII",))
    with fails(ConfigError):
        Splits.from_config(config, CONTIGS, YEAST)
    config = GenomeConfig(exclude=("chrM", "*_random"), valid=("NC_00113[56]*",), test=("chrII", "IV"))
    splits = Splits.from_config(config, CONTIGS, YEAST)
    assert [*assigned(splits).values()] == ["train", "test", "valid", "test", None]
    assert capsys.readouterr().err.endswith("genome.exclude: '*_random' fits no contig of the reference\n")


def test_a_name_with_the_signs_of_a_pattern_is_that_contig():
    contigs = dict.fromkeys(["HLA-A*01:01", "HLA-A*01:01:02", "a[1]", "a1"], 100)
    config = GenomeConfig(exclude=("HLA-A*01:01",), test=("a[1]",))
    splits = Splits.from_config(config, contigs, DEMO)
    assert [*assigned(splits).values()] == [None, "train", "test", "train"]
    assert fitting_contigs("HLA-A*", contigs, DEMO) == [*contigs][:2]


def test_the_patterns_of_grch37_leave_the_chromosomes():
    """Of hg19's 93 contigs, under UCSC's, Ensembl's and GenBank's names of chromosomes."""
    others = ["chrM", "chr4_ctg9_hap1", "chr6_apd_hap1", "chr17_ctg5_hap1", "chr1_gl000191_random"]
    others += [f"chrUn_gl{number:06}" for number in range(211, 250)]
    config = load_config(REPOSITORY / "workflow/config/grch37.yaml").genome
    table = load_assembly("GRCh37")
    chromosomes = [f"chr{name}" for name in (*range(1, 23), "X", "Y")]
    for other in (0, 1, 2):
        names = [sorted(table.names_of(name), key=len)[-1 - other] for name in chromosomes]
        found = assigned(Splits.from_config(config, dict.fromkeys([*names, *others], 1), table))
        assert [contig for contig, split in found.items() if split is not None] == names


def test_what_regions_do_not_cover_is_for_training():
    config = GenomeConfig(valid=("chrI:101-200",), test=("I:801-",), exclude=("NC_001133.9:1-50", "Mito"))
    splits = Splits.from_config(config, CONTIGS, YEAST, test_regions=["I:750-820", "II"])
    ends = [50, 100, 200, 749, 1000]
    assert splits.by_contig["I"] == tuple(
        Segment(Interval("I", start, end), split)
        for start, end, split in zip(
            [0, *ends], ends, [None, "train", "valid", "train", "test"], strict=False
        )
    )
    assert splits.intervals("test") == [Interval("I", 749, 1000), Interval("II", 0, 1000)]
    assert splits.contigs("train") == ["I", "III", "IV"]
    assert [segment.split for segment in splits.over(Interval("I", 99, 201))] == ["train", "valid", "train"]
    assert [segment.split for segment in splits.over(Interval("I", -9, 50))] == [None]


KINDS = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from([None, "valid", "test"])), min_size=1, max_size=9
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
    config = GenomeConfig(**{key: tuple(dict.fromkeys(own)) for key, own in texts.items()})
    splits = Splits.from_config(config, {"c": 60, "d": 5}, DEMO)
    (*own, last) = splits.segments
    assert last == Segment(Interval("d", 0, 5), "train")
    assert [base for segment in own for base in [segment.split] * len(segment.interval)] == expected
    edges = [segment.interval.start for segment in own] + [own[-1].interval.end]
    assert edges[0] == 0 and edges[-1] == 60 and (np.diff(edges) > 0).all()
    assert all(one.split != other.split for one, other in pairwise(own))


@pytest.mark.parametrize(
    ("values", "regions"),
    [
        *(
            (values, {})
            for values in (
                {"test": ("chrV",)},
                {"valid": ("banana",)},
                {"valid": ("scaffold_*",)},
                {"test": ("scaffold_*",)},
                {"valid": ("I",), "test": ("chrI",)},
                {"test": ("I", "II", "III"), "exclude": ("IV", "Mito")},
                {"test": ("V:1-5",)},
                {"test": ("I:5-4",)},
                {"test": ("I:0-5",)},
                {"valid": ("I:990-1,001",)},
                {"valid": ("I:1-200",), "exclude": ("chrI:200-300",)},
                {"valid": ("I:1-200",), "test": ("chrI",)},
                {"valid": ("I:1-200", "I")},
                {"valid": ("I:1-200",), "exclude": ("chrI*",)},
                {"valid": ("chrI*:1-5",)},
                {"test": ("I", "II", "III"), "exclude": ("IV", "Mito:1-400"), "valid": ("Mito:401-",)},
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
        ("22", ("22", 0, 51_304_566)),
        ("chr22:1-1", ("22", 0, 1)),
        ("NC_000022.10:18,000,001-19,000,000", ("22", 18_000_000, 19_000_000)),
        ("22:51304566", ("22", 51_304_565, 51_304_566)),
        ("21:48,000,001-", ("21", 48_000_000, 48_129_895)),
        ("odd:1-5", ("odd:1-5", 0, 100)),
        ("odd:1-5:2-3", ("odd:1-5", 1, 3)),
    ],
)
def test_regions_are_read_as_samtools_does(text, region):
    found = parse_named_region(text, HUMAN_CONTIGS, HUMAN)
    assert found == Interval(*region)
    assert parse_named_region(format_named_region(found), HUMAN_CONTIGS, HUMAN) == found
    assert read_named_region(format_named_region(found)) == found


@pytest.mark.parametrize("text", ["22", "22:5", "22:5-", "22:0-3", "22:5-4", "22:1,000-2,000", ":1-2", ""])
def test_what_was_not_written_is_not_read_back(text):
    with fails(ValueError):
        read_named_region(text)


def test_whole_contigs_have_no_parts():
    segments = [Interval("22", 0, 51_304_566), Interval("odd:1-5", 0, 40), Interval("odd:1-5", 60, 100)]
    assert name_parts(segments, HUMAN_CONTIGS) == ["odd:1-5:1-40", "odd:1-5:61-100"]


ENDS = st.tuples(st.integers(0, 60), st.integers(1, 12))
REGIONS = st.lists(st.tuples(st.sampled_from("ab"), ENDS, st.sampled_from(["valid", "test", "exclude"])))


@given(REGIONS)
def test_regions_of_two_kinds_that_overlap_are_found(drawn):
    named = [
        NamedRegion(kind, kind, "", Interval(contig, start, start + size))
        for contig, (start, size), kind in drawn
    ]

    def overlap(one: NamedRegion, other: NamedRegion) -> bool:
        first, second = one.interval, other.interval
        same = one.kind == other.kind or first.contig != second.contig
        return not same and first.start < second.end and second.start < first.end

    found = find_overlap(named)
    assert (found is not None) == any(overlap(*pair) for pair in combinations(named, 2))
    if found is not None:
        assert overlap(*found) and found[0].interval.start <= found[1].interval.start
