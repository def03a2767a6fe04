"""The convolutional baseline at every base: its symmetry, and its command on a small genome."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bigbird_dna.baselines import cnn_scan
from bigbird_dna.baselines.cnn_scan import DilatedCnn, scan_scores
from bigbird_dna.baselines.kmers import other_strand
from bigbird_dna.genome.promoters import write_loci
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.sequence import (
    Interval,
    Locus,
    base_codes,
    reverse_complement,
)
from tests.cli.command import invoke

SITE = "GTATGGTT"  # begins at a site, in its direction
SETTINGS = {
    "genome": {
        "assembly": "custom",
        "name": "small",
        "reference": "genome.fa.gz",
        "valid": ["valid"],
        "test": ["test:1001-1500"],
    },
    "promoters": {"dense": {"window": 300, "margin": 50}},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Contigs of A and C, in which each site is marked, also on held-out sequence."""
    home = tmp_path_factory.mktemp("cnn")
    rng = np.random.default_rng(4)
    records, sites = [], []
    for contig, size in (("first", 900), ("valid", 400), ("test", 2000)):
        text = "".join(rng.choice(["A", "C"], size))
        for start in range(40, size - 40, 97):
            strand = "+" if rng.random() < 0.5 else "-"
            mark = SITE if strand == "+" else reverse_complement(SITE)
            text = text[:start] + mark + text[start + len(mark) :]
            site = start if strand == "+" else start + len(mark) - 1
            sites.append(Locus(contig, site, strand, "x"))

        records.append((contig, text))

    write_fasta(home / "genome.fa.gz", records)
    write_loci(home / "promoters.tsv", sites)
    return home


def test_scores_of_the_other_strand_are_mirrored(home: Path) -> None:
    torch.manual_seed(1)
    network = DilatedCnn().eval()
    rng = np.random.default_rng(2)
    codes = rng.integers(5, size=(2, 300)).astype(np.uint8)
    forward, reverse = (
        network.predict(strand, 20) for strand in (codes, other_strand(codes))
    )
    assert forward.shape == (2, 2, 260)
    assert forward == pytest.approx(reverse[:, ::-1, ::-1], abs=1e-6)


def test_the_command_scores_each_base(home: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(SETTINGS))
    words = ["train", "cnn-scan", config, "--minutes", 0.01]
    words += ["--reference", home / "genome.fa.gz", "--scan", home / "genome.fa.gz"]
    words += ["--promoters", home / "promoters.tsv", "-o", tmp_path / "x.tsv"]
    invoke(*words)
    table = pd.read_csv(tmp_path / "x.tsv", sep="\t")
    assert len(table) == 2 * (90 + 40 + 200)
    assert table["score"].between(0, 1).all()
    assert (table["tss"] // 10 * 10 == table["start"]).all()


def test_a_scan_is_that_of_single_windows(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cnn_scan, "SCORED", 64)
    monkeypatch.setattr(cnn_scan, "CONTEXT", 16)
    network = DilatedCnn().eval()
    with Reference(home / "genome.fa.gz") as genome:
        scores = scan_scores(network, genome)("valid", 100, 350)
        codes = base_codes(genome.fetch(Interval("valid", 84, 500)))
        for start in range(0, 250, 64):
            window = codes[None, start : start + 96]
            expected = network.predict(window, 16)[0]
            size = min(64, 250 - start)
            assert scores[:, start : start + size] == pytest.approx(
                expected[:, :size], abs=1e-6
            )
