"""Each comparator does what theory says on windows whose classes differ in one known thing.

A network in miniature has the shape of its large sister: which places it can relate to each other doesn't
depend on the number of its filters.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.baselines.comparators.cnnprom import CnnProm
from bigbird_dna.baselines.comparators.danq import DanQ
from bigbird_dna.baselines.comparators.deepromoter import DeePromoter
from bigbird_dna.baselines.comparators.deepsea import DeepSea
from bigbird_dna.baselines.comparators.gc import GcContent
from bigbird_dna.baselines.comparators.gkm_svm import GkmSvm
from bigbird_dna.baselines.comparators.interface import Comparator, all_labels
from bigbird_dna.baselines.comparators.kmers import PromoterKmers, TrackKmers
from bigbird_dna.baselines.comparators.known_motifs import KnownMotif
from bigbird_dna.baselines.comparators.motif_scan import MotifScan
from bigbird_dna.baselines.comparators.networks import NetworkComparator, NetworkSettings
from bigbird_dna.baselines.comparators.registry import NETWORKS
from bigbird_dna.baselines.comparators.residual import ResidualCnn
from bigbird_dna.reporting.metrics.auroc import auroc
from tests.baselines.planted import FIRST, LENGTH, Task, markov_sources, planted_motif, planted_pair

SMALL = {
    "cnnprom": (CnnProm, {"filters": 24, "dense": 16}),
    "deepromoter": (DeePromoter, {"filters": 16, "units": 16, "dense": 32}),
    "deepsea": (DeepSea, {"filters": (24, 32, 48), "dense": 48}),
    "danq": (DanQ, {"filters": 24, "units": 24, "dense": 48}),
    "residual-cnn": (ResidualCnn, {"channels": 24, "means": 4}),
}


class Miniature:
    """A network with few filters."""

    def __init__(self, name: str) -> None:
        self.build, self.sizes = SMALL[name]
        self.shortest = self.build.shortest

    def __call__(self, length: int, labels: int):
        return self.build(length, labels, **self.sizes)


def network(name: str, home: Path, *, whole: bool = False, **settings: object) -> NetworkComparator:
    build = NETWORKS[name] if whole else Miniature(name)
    given = NetworkSettings(**{"steps": 300, "batch_size": 32, "learning_rate": 2e-3, **settings})
    return NetworkComparator(build, given, name=name, checkpoints=home, identity={}, device="cpu")


TABLE: dict[str, Callable[[], Comparator]] = {
    "gc": lambda: GcContent((LENGTH,), balanced=True),
    "k-mers": lambda: PromoterKmers(5, 1),
    "k-mers on both strands": lambda: TrackKmers(5, (LENGTH,)),
    "gkm-svm": lambda: GkmSvm(8, 6),
    "motifs": lambda: MotifScan([[_motif(FIRST)]]),
}


def _motif(word: str) -> KnownMotif:
    counts = np.array([[20.0 * (letter == base) for base in "ACGT"] for letter in word])
    return KnownMotif("FACTOR", "planted", counts)


@cache
def task(make: Callable[..., Task], sizes: tuple[int, int, int]) -> Task:
    return make(sizes)


def figure(model: Comparator, found: Task) -> float:
    """AUROC on test windows."""
    model.fit(found.train, found.valid)
    rows = np.arange(found.test.shape[0])
    chances = np.asarray(model.predict(found.test.sequences(rows)), np.float64)
    return auroc(all_labels(found.test)[:, 0], chances[:, 0]).value


LEARNT = (1500, 300, 400)
NETWORK_LEARNT = (6000, 300, 400)


@pytest.mark.parametrize(("name", "least", "most"), [
    ("gc", 0.4, 0.6), ("k-mers", 0.9, 1), ("k-mers on both strands", 0.8, 1),
    ("gkm-svm", 0.95, 1), ("motifs", 0.99, 1),
])  # fmt: skip
def test_a_planted_motif(name: str, least: float, most: float) -> None:
    assert least <= figure(TABLE[name](), task(planted_motif, LEARNT)) <= most


@pytest.mark.parametrize("name", SMALL)
def test_every_network_finds_a_planted_motif(name: str, tmp_path: Path) -> None:
    assert figure(network(name, tmp_path), task(planted_motif, NETWORK_LEARNT)) >= 0.95


@pytest.mark.parametrize("name", TABLE)
def test_what_counts_words_cannot_tell_the_order_of_a_pair(name: str) -> None:
    assert 0.4 <= figure(TABLE[name](), task(planted_pair, LEARNT)) <= 0.6


@pytest.mark.parametrize(("name", "least", "most"), [
    # The maximum over the window forgets where a motif was.
    ("cnnprom", 0.4, 0.6),
    ("deepromoter", 0.9, 1), ("deepsea", 0.9, 1), ("danq", 0.9, 1), ("residual-cnn", 0.9, 1),
])  # fmt: skip
def test_networks_that_relate_places_tell_the_order_of_a_pair(
    name: str, least: float, most: float, tmp_path: Path
) -> None:
    assert least <= figure(network(name, tmp_path), task(planted_pair, NETWORK_LEARNT)) <= most


@pytest.mark.parametrize(("name", "least", "most"), [
    ("gc", 0.4, 0.6), ("k-mers", 0.97, 1), ("gkm-svm", 0.95, 1),
])  # fmt: skip
def test_two_sources_of_words(name: str, least: float, most: float) -> None:
    assert least <= figure(TABLE[name](), task(markov_sources, LEARNT)) <= most
