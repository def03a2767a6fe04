"""Contigs fall into splits under any of their names."""

import pytest

from bigbird_dna.config import GenomeConfig
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.splits import Splits

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
