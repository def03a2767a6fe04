"""A small genome and a tokenizer of it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.tokens.tokenizer import DnaTokenizer


def random_dna(length: int, seed: int) -> str:
    """Bases whose frequencies are uneven enough for merges to be worth it."""
    rng = np.random.default_rng(seed)
    return "".join(rng.choice(list("ACGT"), length, p=[0.35, 0.15, 0.2, 0.3]))


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> DnaTokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    return DnaTokenizer.train([random_dna(500, seed) for seed in range(60)], path, 96, 6)


@pytest.fixture(scope="session")
def make_reference(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Reference]:
    """Write a reference of the given contigs."""

    def make(**contigs: str) -> Reference:
        path: Path = tmp_path_factory.mktemp("reference") / "reference.fa.gz"
        write_fasta(path, contigs.items())
        return Reference(path)

    return make


@pytest.fixture(scope="session")
def reference(make_reference: Callable[..., Reference]) -> Reference:
    """Contigs a (9 kb), b (6 kb, N from 2,000 to 4,000), c (50 bp) and d (2,150 bp, 150 of them N)."""
    b = random_dna(2000, 2) + "N" * 2000 + random_dna(2000, 3)
    d = random_dna(1000, 5) + "N" * 150 + random_dna(1000, 6)
    return make_reference(a=random_dna(9000, 1), b=b, c=random_dna(50, 4), d=d)
