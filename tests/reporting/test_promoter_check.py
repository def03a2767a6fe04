"""The check of lists of start sites: planted faults are found, and nothing in good lists."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.disk.tables import read_table
from bigbird_dna.errors import DataError
from bigbird_dna.genome.promoters import read_promoters
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.reporting.promoter_check import MATRIX, SHIFTS, check_promoters
from tests.golden.messages import fails, message

STRANDS = ("+", "-")
Site = tuple[int, str]


def genome(home: Path, seed: int, count: int = 240) -> tuple[Path, list[Site]]:
    """A contig with start sites on both strands: C or T and then A or G, often, and TATAA before."""
    rng = np.random.default_rng(seed)
    letters, sites = rng.choice(list("ACGT"), 300 * (count + 2)), list[Site]()
    for number in range(count):
        text = "".join(rng.choice(list("ACGT"), 40))
        text = text[:8] + ("TATAA" if rng.random() < 0.6 else text[8:13]) + text[13:]
        text += ("CA", "TG", "AT")[int(rng.choice(3, p=[0.5, 0.3, 0.2]))]
        strand, first = STRANDS[number % 2], 300 * (number + 1)
        letters[first : first + 42] = list(
            text if strand == "+" else reverse_complement(text)
        )
        sites.append((first + 41 if strand == "+" else first, strand))
    (home / "x.fa").write_text(">c\n" + "".join(letters) + "\n")
    prepare_reference(home / "x.fa", home / "x.fa.gz")
    return home / "x.fa.gz", sites


def listed(
    path: Path, sites: list[Site], moved: dict[str, int], swapped: bool = False
) -> Path:
    """The sites, those of each strand moved downstream, as BED."""
    with path.open("w") as stream:
        for place, strand in sites:
            at = place + moved.get(strand, 0) * (1 if strand == "+" else -1)
            shown = STRANDS[STRANDS.index(strand) - 1] if swapped else strand
            stream.write(f"c\t{at}\t{at + 1}\ts{place}\t0\t{shown}\n")
    return path


@pytest.mark.parametrize("shift", [shift for shift in SHIFTS if shift])
@pytest.mark.parametrize("strand", STRANDS)
def test_a_strand_that_is_off_is_found(tmp_path: Path, strand: str, shift: int) -> None:
    reference, sites = genome(tmp_path, 1)
    path = listed(tmp_path / "x.bed", sites, {strand: shift})
    found = check_promoters(path, reference, tmp_path / "x.tsv")
    message("\n".join(found))
    assert f"those on {strand} are" in found[1]
    table = read_table(tmp_path / "x.tsv", MATRIX)
    own = table[
        (table["strand"] == strand) & (table["orientation"] == "as listed")
    ].set_index("shift")
    assert own["log_odds"].idxmax() == -shift and own.loc[-shift, "difference_low"] > 0
    assert own.loc[0, "difference"] == 0


def test_nothing_is_found_in_good_lists(tmp_path: Path) -> None:
    texts = set()
    for seed in range(20):
        home = tmp_path / f"{seed}"
        home.mkdir()
        reference, sites = genome(home, seed)
        fits, _ = check_promoters(listed(home / "x.bed", sites, {}), reference)
        texts.add(fits)
    assert len(texts) == 1


@pytest.mark.parametrize("swapped", [False, True])
def test_faults_of_both_strands(tmp_path: Path, swapped: bool) -> None:
    """Which fit each other: the start sites all one base off, or the strands exchanged."""
    reference, sites = genome(tmp_path, 2, 600)
    moved = {} if swapped else {"+": 1, "-": 1}
    _, found = check_promoters(
        listed(tmp_path / "x.bed", sites, moved, swapped), reference
    )
    message(found)


def test_too_few_start_sites(tmp_path: Path) -> None:
    reference, sites = genome(tmp_path, 3, 60)
    path = listed(tmp_path / "x.bed", sites, {})
    with fails(DataError, path):
        check_promoters(path, reference)


def test_the_published_list_of_yeast(shared_data: Path, tmp_path: Path) -> None:
    """EPDnew's is right; with one strand off by one, as in RegulonDB, it is found."""
    fasta = next((shared_data / "yeast").glob("*.toplevel.fa.gz"))
    prepare_reference(fasta, tmp_path / "genome.fa.gz")
    path = next((shared_data / "yeast").glob("*.sga"))
    good = check_promoters(
        path, tmp_path / "genome.fa.gz", tmp_path / "x.tsv", assembly="sacCer3"
    )
    assert len(good) == 2
    table = pd.read_csv(tmp_path / "x.tsv", sep="\t")
    assert (table.loc[table["log_odds"] > 0, "shift"] == 0).all()
    with (tmp_path / "off.bed").open("w") as stream:
        for locus in read_promoters(path):
            at = locus.position + (locus.strand == "-")
            stream.write(f"{locus.contig}\t{at}\t{at + 1}\tn\t0\t{locus.strand}\n")
    found = check_promoters(
        tmp_path / "off.bed", tmp_path / "genome.fa.gz", assembly="sacCer3"
    )
    assert "those on - are" in found[1]
