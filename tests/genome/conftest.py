"""Fixtures of the genome tests."""

import json

import pysam
import pytest

from bigbird_dna.genome.simulate import simulate
from tests.genome.simulated import MEGABASES, Demo, lines


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    directory = tmp_path_factory.mktemp("demo")
    simulate(directory, seed=3, megabases=MEGABASES)
    with pysam.FastaFile(str(directory / "genome.fa.gz")) as fasta:
        sequences = {name: fasta.fetch(name) for name in fasta.references}
    loci: dict[str, list[tuple[int, int, str, str]]] = {name: [] for name in sequences}
    for contig, start, end, name, _, strand in lines(directory / "loci.bed.gz"):
        loci[contig].append((int(start), int(end), name, strand))
    return Demo(directory, sequences, loci, json.loads((directory / "truth.json").read_text()))
