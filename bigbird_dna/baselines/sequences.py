"""Regressions on features of labeled sequences, for any kind of label."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from bigbird_dna.baselines.kmers import KmerTracks
from bigbird_dna.baselines.promoters import (
    LogisticBaseline,
    composition_features,
    kmer_regression,
    position_regression,
)
from bigbird_dna.data.predictions import COMPOSITION, KMER, POSITION
from bigbird_dna.training.losses import LabelLoss

Floats32 = npt.NDArray[np.float32]
Floats = npt.NDArray[np.floating]

# Axes: N sequences, F features, T outputs.


class SequenceRegression:
    """A regression on the features of `binary`, whose outputs are those of a network with the same `loss`.

    Binary labels: the logistic regression `binary`. Other kinds: regressions with an L2 penalty on
    standardized features (`KmerTracks`), whose penalties are chosen on the validation sequences.
    """

    def __init__(self, binary: LogisticBaseline, loss: LabelLoss) -> None:
        self.binary = binary
        self.others = None if loss.kind == "binary" else KmerTracks(loss)

    def fit(self, train: Any, valid: Any) -> Self:
        """Fit to training sequences; both have `sequences` and `labels` (N, T)."""
        if self.others is None:
            self.binary.fit(train.sequences, train.labels[:, 0])
        else:
            x, x_valid = self._dense(train.sequences), self._dense(valid.sequences)
            self.others.fit(x, train.labels, x_valid, valid.labels)
        return self

    def _dense(self, sequences: Sequence[str]) -> Floats32:
        features = self.binary.features(sequences)
        if issparse(features):
            features = features.toarray()
        return np.asarray(features, np.float32)

    def logits(self, sequences: Sequence[str]) -> Floats:
        """Return log-odds, or standardized numbers, (N, T)."""
        if self.others is None:
            return self.binary.logits(sequences)[:, None]
        return self.others.logits(self._dense(sequences))

    def coefficients(self) -> tuple[Floats, Any]:
        """Return outputs per unit of each feature, (F,) or (F, T), and those of a sequence without any."""
        regression = self.binary if self.others is None else self.others
        return regression.coefficients()


def sequence_regressions(
    loss: LabelLoss, k: int, seed: int, *, aligned: bool, both_strands: bool
) -> dict[str, SequenceRegression]:
    """Return the regressions for a kind of labels by name; `position` only for binary, `aligned` ones."""
    regressions = {
        KMER: kmer_regression(k, seed, both_strands=both_strands),
        COMPOSITION: LogisticBaseline(composition_features, seed),
    }
    if aligned and loss.kind == "binary":
        regressions[POSITION] = position_regression(seed)
    return {name: SequenceRegression(one, loss) for name, one in regressions.items()}
