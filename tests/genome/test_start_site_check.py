"""The check of lists of start sites: planted faults are found, and nothing in good lists."""

from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.genome.promoters import read_promoters
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import OPPOSITE, Locus, reverse_complement
from bigbird_dna.genome.start_site_check import SHIFTS, check_start_sites
from tests.cli.command import Run

STRANDS = ("+", "-")
Site = tuple[int, str]


def genome(home: Path, seed: int, count: int = 240) -> tuple[Reference, list[Site]]:
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
    return Reference(home / "x.fa.gz"), sites


def listed(
    sites: list[Site], moved: dict[str, int], swapped: bool = False
) -> list[Locus]:
    """The sites, those of each strand moved downstream."""
    loci = []
    for position, strand in sites:
        at = position + moved.get(strand, 0) * (1 if strand == "+" else -1)
        shown = OPPOSITE[strand] if swapped else strand
        loci.append(Locus("c", at, shown, f"s{position}"))
    return loci


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("strand", STRANDS)
def test_a_strand_that_is_off_is_found(tmp_path: Path, strand: str, shift: int) -> None:
    reference, sites = genome(tmp_path, 1)
    (found,) = check_start_sites(listed(sites, {strand: shift}), reference)
    where = f"{abs(shift)} bp {'upstream' if shift > 0 else 'downstream'}"
    assert f"on {strand} are probably off" in found and where in found


def test_nothing_is_found_in_good_lists(tmp_path: Path) -> None:
    for seed in range(20):
        home = tmp_path / f"{seed}"
        home.mkdir()
        reference, sites = genome(home, seed)
        assert check_start_sites(listed(sites, {}), reference) == []
        assert check_start_sites(listed(sites[:60], {"+": 1}), reference) == []


@pytest.mark.parametrize("swapped", [False, True])
def test_faults_of_both_strands(tmp_path: Path, swapped: bool) -> None:
    """Which fit each other: the start sites all one base off, or the strands exchanged."""
    reference, sites = genome(tmp_path, 2, 600)
    moved = {} if swapped else {"+": 1, "-": 1}
    found = check_start_sites(listed(sites, moved, swapped), reference)
    assert len(found) == 1 if swapped else 2
    assert all(("swapped" if swapped else "1 bp upstream") in text for text in found)


def test_the_published_list_of_yeast(
    shared_data: Path, tmp_path: Path, run: Run
) -> None:
    """EPDnew's is right; with one strand off by one, as in RegulonDB, it is found."""
    fasta = next((shared_data / "yeast").glob("*.toplevel.fa.gz"))
    genome = tmp_path / "genome.fa.gz"
    prepare_reference(fasta, genome)
    path = next((shared_data / "yeast").glob("*.sga"))
    options = ["--reference", genome, "--assembly", "sacCer3", "-o", tmp_path / "x.tsv"]
    good = run("prepare promoters", path, *options)
    assert good.code == 0 and "warning" not in good.err
    off = tmp_path / "off.bed"
    with off.open("w") as stream:
        for locus in read_promoters(path):
            at = locus.position + (locus.strand == "-")
            stream.write(f"{locus.contig}\t{at}\t{at + 1}\tn\t0\t{locus.strand}\n")
    found = run("prepare promoters", off, *options)
    assert found.code == 0 and "start sites on - are probably off" in found.err
