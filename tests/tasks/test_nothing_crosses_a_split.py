"""Data sets as they are built: no pair, overlapping window or near-duplicate is in two splits."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.config import NEGATIVE_SETS, Config, load_config
from bigbird_dna.data.chromatin import prepare_data
from bigbird_dna.data.predictions import POSITIVE
from bigbird_dna.data.promoter_windows import prepare_windows, read_windows, window_sequences
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.promoters import prepare_promoters
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.sources.inputs import find_assembly
from tests.conftest import REPOSITORY
from tests.tasks.leaks import (
    by_split,
    crossing_copies,
    crossing_overlaps,
    crossing_pairs,
    near_duplicates,
    whole_splits,
)
from tests.toys import Demo, random_dna

SETS = [name for name in NEGATIVE_SETS if name != "user"]
CODING = [(contig, start) for contig in ("one", "two", "three") for start in range(360, 11_000, 600)]


def windows(
    config: Config, reference: Path, promoters: Path, home: Path, annotation: Path
) -> dict[str, tuple[pd.DataFrame, list[str]]]:
    """Rows and sequences of each negative set, with the positives."""
    prepare_windows(config, reference, promoters, home, annotation)
    found = {}
    for name in config.promoters.windows.negative_sets:
        rows = read_windows(home, name, further=True).rows
        sequences = window_sequences(Reference(reference), rows, config.seed)
        found[name] = rows.assign(split=whole_splits(rows)), sequences
    return found


def check(rows: pd.DataFrame, sequences: list[str], *, duplicates: bool = True) -> None:
    assert set(rows["split"]) == {"train", "valid", "test"}
    assert crossing_pairs(rows) == []
    assert crossing_overlaps(rows) == []
    if duplicates:
        assert near_duplicates(by_split(rows, sequences)) == []


@pytest.mark.parametrize("valid", ["[two]", "['two:1-6,000']"])
def test_promoter_windows_of_every_negative_set(tiny_config: Path, tmp_path: Path, valid: str) -> None:
    sets = f"promoters.windows.negative_sets=[{', '.join(SETS)}]"
    config = load_config(tiny_config, [sets, f"genome.valid={valid}", "promoters.calibration.negatives=2"])
    genes = tmp_path / "genes.gff3"
    genes.write_text(
        "".join(f"{contig}\tx\tCDS\t{start}\t{start + 30}\t.\t+\t0\t.\n" for contig, start in CODING)
    )
    paths = config.paths
    built = windows(config, paths.reference, paths.promoters, tmp_path / "windows", genes)
    assert set(built) == set(SETS)
    for rows, sequences in built.values():
        check(rows, sequences)


@pytest.mark.parametrize("held_out", [("[demo5]", "[demo6]"), ("['demo5:1-100,000']", "['demo5:100,001-']")])
def test_bins_of_the_demo(demo: Demo, tmp_path: Path, held_out: tuple[str, str]) -> None:
    valid, test = held_out
    changes = [f"genome.valid={valid}", f"genome.test={test}", "chromatin.data.min_positives_heldout=1"]
    changes += [
        "chromatin.data.min_positives_train=1",
        f"chromatin.data.tracks={demo.directory / 'tracks.tsv'}",
    ]
    config = load_config(REPOSITORY / "workflow/config/demo.yaml", [*changes, "chromatin.variants=null"])
    prepare_reference(demo.directory / "genome.fa.gz", tmp_path / "reference.fa.gz")
    prepare_data(
        config, tmp_path / "reference.fa.gz", tmp_path / "data", tracks=demo.directory / "tracks.tsv"
    )
    data = read_dataset(tmp_path / "data")
    genome = Reference(tmp_path / "reference.fa.gz")
    around = data.windows(config.chromatin.data.widest, np.arange(len(data.bins)))
    rows = pd.DataFrame(
        [(one.contig, max(one.start, 0), one.end) for one in around], columns=["contig", "start", "end"]
    ).assign(split=data.bins["split"].to_numpy())
    assert set(rows["split"]) == {"train", "valid", "test"} and crossing_overlaps(rows) == []
    own = data.bins
    texts = [
        genome.fetch(Interval(contig, start, start + data.bin_size))
        for contig, start in own[["contig", "start"]].itertuples(index=False)
    ]
    assert near_duplicates(by_split(own.reset_index(drop=True), texts)) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_promoter_windows_of_yeast(shared_data: Path, tmp_path: Path) -> None:
    """Real genomes have repeats: near-duplicates are few, and of families that are known for it.

    Intergenic windows have many more: Ensembl's annotation lists no CDS of Ty retrotransposons.
    """
    config = load_config(
        REPOSITORY / "workflow/config/yeast.yaml", [f"promoters.windows.negative_sets=[{', '.join(SETS)}]"]
    )
    prepare_reference(next((shared_data / "yeast").glob("*.fa.gz")), tmp_path / "reference.fa.gz")
    source = shared_data / "yeast/Sc_EPDnew_002_sacCer3.sga"
    prepare_promoters(source, tmp_path / "reference.fa.gz", tmp_path / "loci.tsv", find_assembly(config))
    genes = next((shared_data / "yeast").glob("*.gtf.gz"))
    reference, loci = tmp_path / "reference.fa.gz", tmp_path / "loci.tsv"
    built = windows(config, reference, loci, tmp_path / "windows", genes)
    for name, (rows, sequences) in built.items():
        check(rows, sequences, duplicates=False)
        found = near_duplicates(by_split(rows, sequences))
        print(name, len(rows), len(found))
        assert len(found) <= (0.26 if name == "intergenic" else 0.04) * len(rows)


def test_what_crosses_is_found() -> None:
    one, other = random_dna(300, 1), random_dna(300, 2)
    rows = pd.DataFrame(
        {
            "contig": ["a", "a", "a", "b"],
            "start": [0, 300, 900, 899],
            "end": [300, 600, 1200, 1199],
            "split": ["train", "test", "test", "train"],
            "negative_set": POSITIVE,
            "pair": [0, 1, 2, 3],
        }
    )
    assert crossing_pairs(rows) == [] and crossing_overlaps(rows) == []
    assert crossing_pairs(rows.assign(pair=[0, 1, 1, 0])) == []
    assert crossing_pairs(rows.assign(pair=[0, 0, 2, 3])) == [0]
    assert crossing_overlaps(rows.assign(start=[0, 299, 900, 899])) == [("a", 299)]
    assert crossing_overlaps(rows.assign(contig=["a", "a", "b", "b"])) == [("b", 900)]
    assert near_duplicates({"train": [one], "test": [other], "valid": ["N" * 300]}) == []
    turned = one[:140] + other[:160]
    texts = {"train": [one, other[::-1]], "test": [turned, one[60:] + other[:60]]}
    # Half of the first is one's and half the other's, which no one window has.
    assert crossing_copies(texts) == 1
    found = near_duplicates(texts)
    assert sorted(found) == [("test", "train", 1), ("train", "test", 0)]
