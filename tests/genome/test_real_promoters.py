"""Real promoters against the 60 bp that EPD publishes around each of them."""

import gzip

import pytest

from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.fasta import scan_fasta
from bigbird_dna.genome.promoters import lift, place, read_promoters
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Locus, inside, window_around


@pytest.fixture(scope="module")
def human(shared_data):
    return read_promoters(shared_data / "epdnew/Hs_EPDnew_006_hg38.sga")


@pytest.fixture(scope="module")
def lifted(shared_data, human):
    chain = shared_data / "hg19/hg38ToHg19.over.chain.gz"
    return lift(human, chain, load_assembly("GRCh38").match)


@pytest.fixture(scope="module")
def published(shared_data):
    """The 60 bp from −10 to +49 of every human promoter, by name."""
    with gzip.open(shared_data / "epdnew/Hs_EPDnew_006_m10_p49.fa.gz", "rt") as stream:
        records = stream.read().split(">")[1:]
    sequences = {}
    for record in records:
        header, *lines = record.splitlines()
        sequences[header.split()[1]] = "".join(lines).upper()
    return sequences


@pytest.fixture(scope="module")
def chr22(shared_data, tmp_path_factory):
    path = tmp_path_factory.mktemp("chr22") / "22.fa.gz"
    prepare_reference(shared_data / "hg19/chr22_1-22000000.fa.gz", path)
    with Reference(path) as reference:
        yield reference


def test_all_but_a_few_human_promoters_lift_to_grch37(human, lifted):
    assert len(human) == 29_598
    assert len(lifted.loci) >= 29_590
    assert len(lifted.loci) + len(lifted.unmapped) == len(human)


def test_lifted_promoters_have_the_sequence_that_epd_publishes(lifted, published, chr22):
    """Full windows of −5000…+3000 on the first 22 Mb of chromosome 22, each against EPD's 60 bp."""
    placed = place(lifted.loci, chr22.contigs, load_assembly("GRCh37"), "EPDnew")
    full = [x for x in placed.loci if inside(window_around(x, 5000, 3000), chr22.contigs)]
    windows = {x.name: chr22.fetch(window_around(x, 5000, 3000)) for x in full}
    equal = [name for name, window in windows.items() if window[4990:5050] == published[name]]
    assert all(len(window) == 8000 for window in windows.values())
    assert len(equal) >= 105
    assert {x.strand for x in full if x.name in equal} == {"+", "-"}


@pytest.mark.parametrize("shift", [-1, 1])
def test_one_base_off_would_be_noticed(lifted, published, chr22, shift):
    placed = place(lifted.loci, chr22.contigs, load_assembly("GRCh37"), "EPDnew")
    moved = [Locus(x.contig, x.position + shift, x.strand, x.name) for x in placed.loci]
    equal = [x for x in moved if chr22.fetch(window_around(x, 10, 50)) == published[x.name]]
    assert len(equal) <= 2


def test_every_yeast_promoter_lies_on_the_genome(shared_data):
    loci = read_promoters(shared_data / "yeast/Sc_EPDnew_002_sacCer3.sga")
    genome = shared_data / "yeast/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz"
    contigs = scan_fasta(genome)
    yeast = load_assembly("sacCer3")
    yeast.check_lengths(contigs)
    placed = place(loci, contigs, yeast, "EPDnew")
    assert len(placed.loci) == len(loci) == 5_117
    assert {x.contig for x in placed.loci} == set(contigs)
