"""gkm-SVM (Ghandi et al., PLoS Computational Biology 10:e1003711, 2014): a machine on gapped k-mers.

The kernel is the exact one, of words of 11 bases of which 7 count, normalised to 1 for a window with itself.
The support vector machine, one for each label, is linear in the features of `gapped`, has a squared hinge
loss, and no penalty on its offset. Its strength of fitting is chosen on held-out windows, which also tell the
probability of a score.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bigbird_dna.baselines.comparators.calibration import Sigmoid, fit_sigmoid
from bigbird_dna.baselines.comparators.gapped import GappedKmers
from bigbird_dna.baselines.comparators.interface import (
    Comparator,
    Probabilities,
    Rows,
    Windows,
    all_labels,
    blocks,
)
from bigbird_dna.console import progress
from bigbird_dna.errors import DataError
from bigbird_dna.metrics.auroc import auroc

# Axes: N windows, F features.

STRENGTHS = (0.1, 1.0, 10.0)  # weight of the loss of a window against half the square of the weights
MOST = 5000  # windows of a class that a label is learnt from
_AT_ONCE = 1024
_ITERATIONS = 200
_PRECISION = 1e-9  # of the loss, relative: what one more step would change


class Machine(NamedTuple):
    """Score of a window: the mean weight of its words, by its norm, and an offset."""

    words: NDArray[np.float32]  # (4^l,)
    offset: float

    def scores(self, counts: Any, norms: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N,) for counts (N, 4^l)."""
        return np.asarray(counts @ self.words) / norms + self.offset


def fit_machines(
    kmers: GappedKmers,
    counts: Any,
    norms: NDArray[np.float64],
    labels: NDArray[np.uint8],
    strengths: Iterable[float],
) -> Iterator[Machine]:
    """Least ½ |w|² + strength · Σ max(0, 1 − y f(x))² over windows with labels (N,) of both classes.

    A machine for each strength; from the second on the solver starts at the one before.
    """
    from scipy.optimize import minimize

    signs = np.where(labels == 1, 1.0, -1.0)
    transposed = counts.T.tocsr()

    def loss(values: NDArray[np.float64], strength: float) -> tuple[float, NDArray[np.float64]]:
        weights, offset = values[:-1], values[-1]
        scores = counts @ kmers.words(weights) / norms + offset
        short = np.maximum(0, 1 - signs * scores)
        slope = -2 * strength * signs * short  # of the loss by the score
        along = weights + kmers.of_words(transposed @ (slope / norms))
        value = 0.5 * float(weights @ weights) + strength * float(short @ short)
        return value, np.append(along, slope.sum())

    found = np.zeros(kmers.features + 1)
    options = {"maxiter": _ITERATIONS, "maxcor": 10, "ftol": _PRECISION, "gtol": 1e-6}
    for strength in strengths:
        found = minimize(loss, found, (strength,), jac=True, method="L-BFGS-B", options=options).x
        yield Machine(kmers.words(found[:-1]).astype(np.float32), float(found[-1]))


class GkmSvm(Comparator):
    """gkm-SVM on words of `length` bases, of which `known` count; with `both_strands` those of either strand.

    A label is learnt from at most `MOST` of its windows, and as many of all others, drawn by seed. Labels
    whose training windows are of one class are NaN.
    """

    def __init__(
        self, length: int = 11, known: int = 7, *, both_strands: bool = False, seed: int = 1
    ) -> None:
        self.kmers = GappedKmers(length, known)
        self.both_strands, self.seed = both_strands, seed
        self._machines: list[tuple[Machine, Sigmoid] | None] = []  # by label
        self._strengths: list[float | None] = []

    def fit(self, learnt: Windows, held_out: Windows) -> Self:
        """Learn from windows, label by label; strengths and probabilities are chosen on those held out.

        Raises
        ------
        DataError
            No label has windows of both classes to learn from, or there are none to choose on.
        """
        truth = all_labels(learnt)
        if not held_out.shape[0]:
            raise DataError("gkm-svm: there are no held-out windows to choose on")
        if learnt.length < self.kmers.length:
            raise DataError(
                f"gkm-svm: windows of {learnt.length} bp are shorter than a word of {self.kmers.length} bp"
            )
        judged, judged_norms = self._counted(held_out, np.arange(held_out.shape[0]))
        judged_labels = all_labels(held_out)
        self._machines, self._strengths = [], []
        for label in progress(range(truth.shape[1]), "gkm-SVM", truth.shape[1], "labels"):
            rows = _drawn(truth[:, label], (self.seed, 9, label))
            if not len(rows):
                self._machines.append(None)
                self._strengths.append(None)
                continue
            counts, norms = self._counted(learnt, rows)
            own = judged_labels[:, label]
            tried = []
            strengths = STRENGTHS if 0 < own.sum() < len(own) else (1.0,)
            machines = fit_machines(self.kmers, counts, norms, truth[rows, label], strengths)
            for strength, machine in zip(strengths, machines, strict=True):
                scores = machine.scores(judged, judged_norms)
                tried.append((auroc(own, scores).value, strength, machine, scores))
            _, strength, machine, scores = max(tried, key=lambda one: np.nan_to_num(one[0], nan=0.0))
            self._machines.append((machine, fit_sigmoid(scores, own)))
            self._strengths.append(strength)
        if not self.covered(truth.shape[1]).any():
            raise DataError("gkm-svm: the training windows are all of one class")
        return self

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        """Probabilities (n, T)."""
        found = np.full((len(sequences), len(self._machines)), np.nan, np.float32)
        for rows in blocks(len(sequences), _AT_ONCE):
            counts = self.kmers.count([sequences[row] for row in rows], both_strands=self.both_strands)
            norms = self.kmers.norms(counts)
            for label, fitted in enumerate(self._machines):
                if fitted is not None:
                    machine, sigmoid = fitted
                    found[rows, label] = sigmoid(machine.scores(counts, norms))
        return found

    def covered(self, labels: int) -> NDArray[np.bool_]:
        """The labels whose training windows are of both classes."""
        return np.array([fitted is not None for fitted in self._machines])

    def chosen(self) -> dict[str, Any]:
        """Words, and the strength of each label."""
        return {"word": self.kmers.length, "known": self.kmers.known, "strengths": self._strengths}

    def _counted(self, windows: Windows, rows: Rows) -> tuple[Any, NDArray[np.float64]]:
        """Counts of words and norms of some windows."""
        from scipy.sparse import vstack

        parts = [
            self.kmers.count(windows.sequences(rows[part]), both_strands=self.both_strands)
            for part in blocks(len(rows), _AT_ONCE)
        ]
        counts = vstack(parts, format="csr")
        return counts, self.kmers.norms(counts)


def _drawn(labels: NDArray[np.uint8], seed: tuple[int, ...]) -> Rows:
    """Rows of both classes, ascending: at most `MOST` positives, and as many negatives; none of one class."""
    rng = np.random.default_rng(seed)
    positive, negative = np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)
    if not len(positive) or not len(negative):
        return np.zeros(0, np.intp)
    most = min(MOST, len(positive))
    return np.sort(np.concatenate([rng.permutation(rows)[:most] for rows in (positive, negative)]))
