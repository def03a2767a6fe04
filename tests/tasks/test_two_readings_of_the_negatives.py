"""The two readings of "substitute 12 of 20 parts" are two tasks, on the promoters of DeePromoter's code."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.baselines.kmers import KmerLogistic
from bigbird_dna.data.promoter_windows import permute, substitute
from bigbird_dna.metrics.auroc import auroc


@pytest.mark.parametrize(("change", "known"), [(substitute, 0.97), (permute, 0.59)])
def test_a_regression_on_4_mers_tells_random_bases_but_hardly_another_order(
    shared_data: Path, change: Callable[[str, np.random.Generator], str], known: float
) -> None:
    """2,929 human TATA promoters of 300 bp; a fifth of them, with their negatives, is the test."""
    with gzip.open(shared_data / "epdnew/Hs_TATA_300bp.txt.gz", "rt") as stream:
        promoters = stream.read().split()
    assert len(promoters) == 2929 and {len(one) for one in promoters} == {300}
    rng = np.random.default_rng(1)
    promoters = rng.permutation(promoters).tolist()
    test, train = promoters[: len(promoters) // 5], promoters[len(promoters) // 5 :]
    learnt, judged = (own + [change(one, rng) for one in own] for own in (train, test))
    labels = [np.repeat([1, 0], len(own)) for own in (train, test)]
    model = KmerLogistic(4, seed=1).fit(learnt, labels[0])
    assert auroc(labels[1], model.predict(judged)).value == pytest.approx(known, abs=0.03)
