"""Contigs fall into splits under any of their names, and so do regions of them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.config import GenomeConfig, load_config
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.splits import Split, Splits, Stretch, fitting_contigs
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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"test": ("chrV",)}, r"genome\.test: no contig of the reference is 'chrV'.*I, II, III"),
        ({"valid": ("banana",)}, r"genome\.valid: no contig of the reference is 'banana'"),
        ({"valid": ("I",), "test": ("chrI",)}, r"genome\.test: 'chrI' is contig 'I'"),
        ({"test": ("I", "II", "III"), "exclude": ("IV", "Mito")}, "none is left to train on"),
    ],
)
def test_a_wrong_division_is_refused(values, message):
    with fails(ConfigError):
        Splits.from_config(GenomeConfig(**values), CONTIGS, YEAST)


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


@pytest.mark.parametrize("key", ["valid", "test"])
def test_a_held_out_pattern_that_fits_nothing_is_refused(key):
    with fails(ConfigError, key):
        Splits.from_config(GenomeConfig(**{key: ("scaffold_*",)}), CONTIGS, YEAST)


def test_a_name_with_the_signs_of_a_pattern_is_that_contig():
    contigs = dict.fromkeys(["HLA-A*01:01", "HLA-A*01:01:02", "a[1]", "a1"], 100)
    config = GenomeConfig(exclude=("HLA-A*01:01",), test=("a[1]",))
    splits = Splits.from_config(config, contigs, DEMO)
    assert [*assigned(splits).values()] == [None, "train", "test", "train"]
    assert fitting_contigs("HLA-A*", contigs, DEMO) == [*contigs][:2]


def test_the_patterns_of_grch37_exclude_what_its_list_of_names_did():
    """The names that the configuration had before it took patterns."""
    listed = {"chrM", *(f"chrUn_gl{number:06}" for number in range(211, 250))}
    listed |= {"chr4_ctg9_hap1", "chr6_apd_hap1", "chr6_cox_hap2", "chr6_dbb_hap3", "chr6_mann_hap4"}
    listed |= {"chr6_mcf_hap5", "chr6_qbl_hap6", "chr6_ssto_hap7", "chr17_ctg5_hap1"}
    chromosomes = [1, 1, 4, 4, 7, 8, 8, 9, 9, 9, 9, 11, 17, 17, 17, 17, 18, 19, 19, 21]
    listed |= {
        f"chr{chromosome}_gl{number:06}_random" for number, chromosome in enumerate(chromosomes, start=191)
    }
    config = load_config(REPOSITORY / "workflow/config/grch37.yaml").genome
    before = config.model_copy(update={"exclude": tuple(sorted(listed))})
    table = load_assembly("GRCh37")
    chromosomes = [f"chr{name}" for name in (*range(1, 23), "X", "Y")]
    for other in (0, 1, 2):  # UCSC's names of hg19, Ensembl's, and GenBank's
        names = [sorted(table.names_of(name), key=len)[-1 - other] for name in chromosomes]
        contigs = dict.fromkeys([*names, *listed], 1)
        found = assigned(Splits.from_config(config, contigs, table))
        assert found == assigned(Splits.from_config(before, contigs, table))
        assert [contig for contig in contigs if found[contig] is not None] == names
        assert len(contigs) == 93  # all of hg19
    contigs = {contig.name: 1 for contig in table.contigs}
    before = config.model_copy(update={"exclude": ("chrM",)})
    found = assigned(Splits.from_config(config, contigs, table))
    assert found == assigned(Splits.from_config(before, contigs, table))


def test_what_regions_do_not_cover_is_for_training():
    config = GenomeConfig(valid=("chrI:101-200",), test=("I:801-",), exclude=("NC_001133.9:1-50", "Mito"))
    splits = Splits.from_config(config, CONTIGS, YEAST, test_regions=["I:750-820", "II"])
    ends = [50, 100, 200, 749, 1000]
    assert splits.by_contig["I"] == tuple(
        Stretch(Interval("I", start, end), split)
        for start, end, split in zip(
            [0, *ends], ends, [None, "train", "valid", "train", "test"], strict=False
        )
    )
    assert splits.intervals("test") == [Interval("I", 749, 1000), Interval("II", 0, 1000)]
    assert splits.contigs("train") == ["I", "III", "IV"]
    assert [stretch.split for stretch in splits.over(Interval("I", 99, 201))] == ["train", "valid", "train"]
    assert [stretch.split for stretch in splits.over(Interval("I", -9, 50))] == [None]


KINDS = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from([None, "valid", "test"])), min_size=1, max_size=9
)


@given(KINDS)
def test_stretches_are_what_each_base_is_for(drawn):
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
    (*own, last) = splits.stretches
    assert last == Stretch(Interval("d", 0, 5), "train")
    assert [base for stretch in own for base in [stretch.split] * len(stretch.interval)] == expected
    edges = [stretch.interval.start for stretch in own] + [own[-1].interval.end]
    assert edges[0] == 0 and edges[-1] == 60 and (np.diff(edges) > 0).all()
    assert all(one.split != other.split for one, other in pairwise(own))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"test": ("V:1-5",)}, r"genome\.test: no contig or region \(as 22:1,001-2,000\) .* is 'V:1-5'"),
        ({"test": ("I:5-4",)}, r"genome\.test: 'I:5-4': a region of I goes from 1 to at most 1,000"),
        ({"valid": ("I:990-1,001",)}, r"genome\.valid: 'I:990-1,001': a region of I goes from 1 to at most"),
        (
            {"valid": ("I:1-200",), "exclude": ("chrI:200-300",)},
            r"genome\.exclude: 'chrI:200-300' overlaps 'I:1-200' of genome\.valid|"
            r"genome\.valid: 'I:1-200' overlaps 'chrI:200-300' of genome\.exclude",
        ),
        (
            {"valid": ("I:1-200",), "test": ("chrI",)},
            r"genome\.valid: 'I:1-200' is a region of contig 'I', which 'chrI' of genome\.test names whole",
        ),
        (
            {"valid": ("I:1-200", "I")},
            r"genome\.valid: 'I:1-200' is a region of contig 'I', which 'I' of genome\.valid names whole",
        ),
        (
            {"valid": ("I:1-200",), "exclude": ("chrI*",)},
            r"genome\.valid: 'I:1-200' is a region of contig 'I', which 'chrI\*' of genome\.exclude names",
        ),
        ({"valid": ("chrI*:1-5",)}, r"genome\.valid: 'chrI\*:1-5' fits no contig of the reference"),
        (
            {"test": ("I", "II", "III"), "exclude": ("IV", "Mito:1-400"), "valid": ("Mito:401-",)},
            "exclude, valid and test name every base, none is left to train on",
        ),
    ],
)
def test_wrong_regions_are_refused(values, message):
    with fails(ConfigError):
        Splits.from_config(GenomeConfig(**values), CONTIGS, YEAST)


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ({"valid_regions": ["V"]}, r"chromatin\.data\.valid_regions: 'V' is not a contig or region"),
        (
            {"test_regions": ["I:5-9"]},
            r"genome\.valid: 'I' overlaps 'I:5-9' of chromatin\.data\.test_regions",
        ),
        (
            {"valid_regions": ["II:1-9"], "test_regions": ["II:9-12"]},
            r"chromatin\.data\.valid_regions: 'II:1-9' overlaps 'II:9-12' of chromatin\.data\.test_regions",
        ),
    ],
)
def test_wrong_regions_of_bins_are_refused(regions, message):
    with fails(ConfigError):
        Splits.from_config(GenomeConfig(valid=("I",)), CONTIGS, YEAST, **regions)
