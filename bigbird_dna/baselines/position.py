"""The promoter baseline on single bases: logistic regression on the base at each position of the window.

It is a position weight matrix as long as the window: it knows where each base stands relative to the
transcription start site, and nothing of how bases depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.kmers import base_codes
from bigbird_dna.baselines.logistic import LogisticBaseline
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import UNKNOWN

# Axes: N windows, L bases of a window.

BASES = 4


def position_features(sequences: Sequence[str]) -> Any:
    """Which base stands at each position: a CSR matrix float32 (N, 4 L) of zeros and ones.

    Column `4 p + c` is base c at position p with A, C, G, T = 0, 1, 2, 3; an N has no one.

    Raises
    ------
    DataError
        The sequences differ in length.
    """
    from scipy.sparse import csr_matrix

    lengths = {len(sequence) for sequence in sequences}
    if len(lengths) > 1:
        raise DataError(
            f"windows of {min(lengths):,} and of {max(lengths):,} bp: the baseline 'position' needs windows "
            "of one length"
        )
    codes = base_codes(sequences)
    known = codes != UNKNOWN
    columns = BASES * np.arange(codes.shape[1], dtype=np.int32) + codes
    ends = np.concatenate([[0], np.cumsum(known.sum(axis=1, dtype=np.int64))])
    ones = np.ones(ends[-1], np.float32)
    return csr_matrix((ones, columns[known], ends), shape=(len(codes), BASES * codes.shape[1]))


class PositionLogistic(LogisticBaseline):
    """Logistic regression on the base at each position of windows of one length.

    Windows have to be aligned, as those around a transcription start site are.
    """

    name = "position"
    penalties: ClassVar = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
    # Scaling the columns of zeros and ones did not improve validation AUROC on yeast promoters.
    standardized = False

    def features(self, sequences: Sequence[str]) -> Any:
        """The columns of `position_features`."""
        return position_features(sequences)

    def fitted_features(self, sequences: Sequence[str]) -> Any:
        """Features for `predict`; `DataError` for windows of another length than those learned from."""
        x = super().fitted_features(sequences)
        if x.shape[0] and x.shape[1] != self.coefficients.size:
            raise DataError(
                f"windows of {x.shape[1] // BASES:,} bp: the baseline 'position' was fitted to windows of "
                f"{len(self.coefficients):,} bp"
            )
        return x

    @property
    def coefficients(self) -> NDArray[np.float64]:
        """What each base at each position adds to the log-odds, (L, 4) with columns A, C, G, T."""
        return np.asarray(self._regression().coef_, np.float64).reshape(-1, BASES)

    @property
    def intercept(self) -> float:
        """Log-odds of a window of N only."""
        return float(self._regression().intercept_[0])

    def _regression(self) -> Any:
        if self._pipeline is None:
            raise ValueError(f"the {self.name} model has not been fitted")
        return self._pipeline[-1]
