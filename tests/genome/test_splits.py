"""Contigs fall into splits under any of their names."""

import pytest

from bigbird_dna.config import GenomeConfig, load_config
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.splits import Splits, fitting_contigs
from tests.conftest import REPOSITORY

YEAST = load_assembly("sacCer3")
CONTIGS = ["I", "II", "III", "IV", "Mito"]


def test_contigs_that_are_not_named_are_for_training():
    config = GenomeConfig(exclude=("chrM",), valid=("NC_001135.5",), test=("chr4",))
    splits = Splits.from_config(config, CONTIGS, YEAST)
    assert splits.contigs("train") == ["I", "II"]
    assert splits.contigs("valid") == ["III"]
    assert splits.contigs("test") == ["IV"]
    assert [splits.of(contig) for contig in CONTIGS] == ["train", "train", "valid", "test", None]
    assert splits.of("nowhere") is None


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
    with pytest.raises(ConfigError, match=message):
        Splits.from_config(GenomeConfig(**values), CONTIGS, YEAST)


def test_without_a_table_names_stand_for_themselves():
    demo = load_assembly("demo")
    assert Splits.from_config(GenomeConfig(test=("c2",)), ["c1", "c2"], demo).of("c2") == "test"
    with pytest.raises(ConfigError, match="chrc2"):
        Splits.from_config(GenomeConfig(test=("chrc2",)), ["c1", "c2"], demo)


def test_patterns_fit_any_name_and_a_written_name_wins_over_them(capsys):
    config = GenomeConfig(exclude=("chr?", "*_random"), valid=("NC_00113[56]*",), test=("chrII",))
    with pytest.raises(
        ConfigError, match=r"contig 'III' fits 'chr\?' of exclude and 'NC_00113\[56\]\*' of valid"
    ):
        Splits.from_config(config, CONTIGS, YEAST)
    config = GenomeConfig(exclude=("chrM", "*_random"), valid=("NC_00113[56]*",), test=("chrII", "IV"))
    splits = Splits.from_config(config, CONTIGS, YEAST)
    assert [splits.of(contig) for contig in CONTIGS] == ["train", "test", "valid", "test", None]
    assert capsys.readouterr().err.endswith("genome.exclude: '*_random' fits no contig of the reference\n")


@pytest.mark.parametrize("key", ["valid", "test"])
def test_a_held_out_pattern_that_fits_nothing_is_refused(key):
    with pytest.raises(ConfigError, match=rf"genome\.{key}: 'scaffold_\*' fits no contig.*I, II, III"):
        Splits.from_config(GenomeConfig(**{key: ("scaffold_*",)}), CONTIGS, YEAST)


def test_a_name_with_the_signs_of_a_pattern_is_that_contig():
    contigs = ["HLA-A*01:01", "HLA-A*01:01:02", "a[1]", "a1"]
    config = GenomeConfig(exclude=("HLA-A*01:01",), test=("a[1]",))
    splits = Splits.from_config(config, contigs, load_assembly("demo"))
    assert [splits.of(contig) for contig in contigs] == [None, "train", "test", "train"]
    assert fitting_contigs("HLA-A*", contigs, load_assembly("demo")) == contigs[:2]


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
        contigs = [*names, *listed]
        found = Splits.from_config(config, contigs, table).assignment
        assert found == Splits.from_config(before, contigs, table).assignment
        assert [contig for contig in contigs if found[contig] is not None] == names
        assert len(contigs) == 93  # all of hg19
    contigs = [contig.name for contig in table.contigs]
    before = config.model_copy(update={"exclude": ("chrM",)})
    found = Splits.from_config(config, contigs, table).assignment
    assert found == Splits.from_config(before, contigs, table).assignment
