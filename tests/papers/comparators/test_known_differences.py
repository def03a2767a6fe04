"""Each comparator does what theory says on windows whose classes differ in one known thing.

A network in miniature has the shape of its large sister: which places it can relate to each other doesn't
depend on the number of its filters.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigbird_dna.baselines.kmers import KmerLogistic
from bigbird_dna.baselines.windows import NearestWindow, TextWindows, all_labels
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.papers.comparators.architectures import (
    NETWORKS,
    CnnProm,
    DanQ,
    DeePromoter,
    DeepSea,
    ResidualCnn,
)
from bigbird_dna.papers.comparators.gkm_svm import GkmSvm
from bigbird_dna.papers.comparators.interface import Comparator, NetworkSettings
from bigbird_dna.papers.comparators.motifs import KnownMotif, MotifScan
from bigbird_dna.papers.comparators.networks import NetworkComparator
from bigbird_dna.papers.comparators.simple import GcContent, PromoterLogistic, TrackKmers
from tests.golden.messages import fails
from tests.papers.comparators.planted import (
    LENGTH,
    WORD,
    Task,
    markov_sources,
    planted_both,
    planted_motif,
    planted_pair,
)
from tests.toys import random_dna

SMALL = {
    "cnnprom": (CnnProm, {"filters": 24, "dense": 16}),
    "deepromoter": (DeePromoter, {"filters": 16, "units": 16, "dense": 32}),
    "deepsea": (DeepSea, {"filters": (48, 64, 64), "dense": 48}),
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


def network(name: str, home: Path, steps: int, *, whole: bool = False) -> NetworkComparator:
    build = NETWORKS[name] if whole else Miniature(name)
    settings = NetworkSettings(steps=steps, batch_size=32, learning_rate=1e-3 if whole else 3e-3)
    return NetworkComparator(build, settings, name=name, checkpoints=home, windows={}, device="cpu")


TABLE: dict[str, Callable[[], Comparator]] = {
    "gc": lambda: GcContent((LENGTH,), balanced=True),
    "k-mers": lambda: PromoterLogistic(KmerLogistic(5, 1)),
    "k-mers on both strands": lambda: TrackKmers(5, (LENGTH,)),
    "gkm-svm": lambda: GkmSvm(8, 6),
    "motifs": lambda: MotifScan([[_motif(WORD)]]),
}


def _motif(word: str) -> KnownMotif:
    counts = np.array([[20.0 * (letter == base) for base in "ACGT"] for letter in word])
    return KnownMotif("FACTOR", "planted", counts)


@cache
def task(make: Callable[..., Task], sizes: tuple[int, int, int]) -> Task:
    return make(sizes)


def figures(model: Comparator, found: Task) -> list[float]:
    """AUROC of each label on test windows."""
    model.fit(found.train, found.valid)
    rows = np.arange(found.test.shape[0])
    chances = np.asarray(model.predict(found.test.sequences(rows)), np.float64)
    return [auroc(*pair).value for pair in zip(all_labels(found.test).T, chances.T, strict=True)]


def figure(model: Comparator, found: Task) -> float:
    """AUROC of the only label."""
    (only,) = figures(model, found)
    return only


LEARNT = (1500, 300, 400)
NETWORK_LEARNT = (6000, 300, 400)


def test_the_nearest_window_knows_the_labels_of_relatives_and_nothing_else() -> None:
    """Labels that no sequence tells: half of the test windows are worn copies of training windows."""
    rng, length = np.random.default_rng(5), 200
    learnt = [random_dna(length, seed) for seed in range(300)]
    labels = rng.integers(0, 2, 300)
    copies = [
        "".join(c if rng.random() > 0.1 else rng.choice(list("ACGT")) for c in one) for one in learnt[:80]
    ]
    others = [random_dna(length, 1000 + seed) for seed in range(80)]
    known = TextWindows(learnt, labels)
    for balanced, share in ((True, 0.5), (False, labels.mean())):
        model = NearestWindow(balanced=balanced).fit(known, known)
        near, far = (np.asarray(model.predict(some))[:, 0] for some in (copies, others))
        assert auroc(labels[:80], near).value == 1 and np.abs(near - share).min() > 0.25
        assert np.abs(far - share).max() < 0.1
    # A word that stands in both of two short windows is a relation of theirs, and so is a pair in its order.
    assert figure(NearestWindow(balanced=True), task(planted_pair, LEARNT)) > 0.9
    with fails(DataError):
        NearestWindow().fit(TextWindows([], np.zeros((0, 1))))


QUICK = [("cnnprom", 150, False), ("danq", 300, False), ("residual-cnn", 200, False)]
LONG = [("deepromoter", 400, False), ("deepsea", 1000, False)]
LONG += [(name, 300, True) for name in ("cnnprom", "danq", "residual-cnn")]


@pytest.mark.parametrize(
    ("name", "steps", "whole"), QUICK + [pytest.param(*one, marks=pytest.mark.slow) for one in LONG]
)
def test_networks_find_a_word_and_the_order_of_a_pair(
    name: str, steps: int, whole: bool, tmp_path: Path
) -> None:
    """A network tells the word, and those that relate places the order of the pair."""
    model = network(name, tmp_path, steps, whole=whole)
    word, order = figures(model, task(planted_both, NETWORK_LEARNT))
    assert word >= 0.9
    # The maximum over the window forgets where a motif was.
    assert 0.4 <= order <= 0.6 if name == "cnnprom" else order >= 0.9


@pytest.mark.parametrize(("make", "name", "least", "most"), [
    (planted_motif, "gc", 0.4, 0.6), (planted_motif, "k-mers", 0.9, 1), (planted_motif, "gkm-svm", 0.95, 1),
    (planted_motif, "k-mers on both strands", 0.8, 1), (planted_motif, "motifs", 0.99, 1),
    (markov_sources, "gc", 0.4, 0.6), (markov_sources, "k-mers", 0.97, 1),
    (markov_sources, "gkm-svm", 0.95, 1),
])  # fmt: skip
def test_what_tells_a_word_or_a_source_of_words(make: Any, name: str, least: float, most: float) -> None:
    assert least <= figure(TABLE[name](), task(make, LEARNT)) <= most


@pytest.mark.parametrize("name", TABLE)
def test_what_counts_words_cannot_tell_the_order_of_a_pair(name: str) -> None:
    assert 0.4 <= figure(TABLE[name](), task(planted_pair, LEARNT)) <= 0.6
