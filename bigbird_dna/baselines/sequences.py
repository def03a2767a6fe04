"""Regressions on features of labeled sequences, for any kind of label."""

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from bigbird_dna.baselines.kmers import KmerTracks
from bigbird_dna.baselines.promoters import (
    KmerLogistic,
    LogisticBaseline,
    PositionLogistic,
    composition_and_length,
)
from bigbird_dna.data.predictions import COMPOSITION, KMER, POSITION
from bigbird_dna.training.losses import LabelLoss

Floats32 = npt.NDArray[np.float32]

# Axes: N sequences, F features, T outputs.

Floats = npt.NDArray[np.floating]


class Labeled(Protocol):
    """Sequences with labels (N, T)."""

    @property
    def sequences(self) -> list[str]: ...

    @property
    def labels(self) -> Floats32: ...


class SequenceRegression:
    """A regression on the features of `binary`, whose outputs are those of a network with the same `loss`.

    Binary labels: the logistic regression `binary`. Other kinds: regressions with an L2 penalty on
    standardized features (`KmerTracks`), whose penalties are chosen on the validation sequences.
    """

    def __init__(self, binary: LogisticBaseline, loss: LabelLoss) -> None:
        self.features = binary.features
        self.fitted: LogisticBaseline | KmerTracks = binary
        if loss.kind != "binary":
            self.fitted = KmerTracks(loss)

    def fit(self, learned: Labeled, valid: Labeled) -> Self:
        """Fit to training sequences."""
        if isinstance(self.fitted, LogisticBaseline):
            self.fitted.fit(learned.sequences, learned.labels[:, 0])
        else:
            x, x_valid = self._dense(learned.sequences), self._dense(valid.sequences)
            self.fitted.fit(x, learned.labels, x_valid, valid.labels)
        return self

    def _dense(self, sequences: Sequence[str]) -> Floats32:
        features = self.features(sequences)
        if issparse(features):
            features = features.toarray()
        return np.asarray(features, np.float32)

    def logits(self, sequences: Sequence[str]) -> Floats:
        """Return log-odds, or standardized numbers, (N, T)."""
        if isinstance(self.fitted, LogisticBaseline):
            return self.fitted.logits(sequences)[:, None]
        return self.fitted.logits(self._dense(sequences))

    @property
    def coefficients(self) -> Floats:
        """Outputs per unit of each feature, (F, T) or (F,)."""
        if isinstance(self.fitted, KmerTracks):
            return self.fitted.coefficients()[0]
        assert isinstance(self.fitted, KmerLogistic | PositionLogistic)
        return self.fitted.coefficients

    @property
    def intercept(self) -> Any:
        """Outputs of a sequence without features, a number or (T,)."""
        if isinstance(self.fitted, KmerTracks):
            return self.fitted.coefficients()[1]
        assert isinstance(self.fitted, KmerLogistic | PositionLogistic)
        return self.fitted.intercept


def sequence_regressions(
    loss: LabelLoss, k: int, seed: int, *, aligned: bool, both_strands: bool
) -> dict[str, SequenceRegression]:
    """Return the regressions for a kind of labels by name; `position` only for binary, `aligned` ones."""
    kmers = KmerLogistic(k, seed, both_strands=both_strands)
    composition = LogisticBaseline(composition_and_length, seed)
    regressions = {
        KMER: SequenceRegression(kmers, loss),
        COMPOSITION: SequenceRegression(composition, loss),
    }
    if aligned and loss.kind == "binary":
        regressions[POSITION] = SequenceRegression(PositionLogistic(seed), loss)
    return regressions
