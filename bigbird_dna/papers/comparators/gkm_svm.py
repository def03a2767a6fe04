"""gkm-SVM (Ghandi et al., PLoS Computational Biology 10:e1003711, 2014): an SVM on exact gapped k-mers.

Gapped k-mers are words of l bases with k informative positions. The kernel of two windows is the number of
matching pairs of their gapped k-mers. Two words of l bases that differ at m positions have C(l − m, k) gapped
k-mers in common. The kernel is thus c′ᵀ B c for the counts c of all 4^l words, where the matrix B depends on
m only. B is a sum of products over the l positions: a character that varies at j positions, a product of
columns of a 4 × 4 Hadamard matrix, is an eigenvector with eigenvalue 4^(l − k) C(l − j, k − j), or 0 if j >
k. The products of the features Λ^½ H c therefore equal the kernel, without listing gapped k-mers or pairs of
windows (the paper counts pairs).

The kernel is normalized to 1 for a window with itself; words have 11 bases with 7 informative positions. The
support vector machine, one per label, is linear in these features, with squared hinge loss and unpenalized
offset. The strength of fitting and the map from scores to probabilities are chosen on held-out windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, vstack
from scipy.special import comb

from bigbird_dna.baselines.kmers import base_codes, other_strand
from bigbird_dna.baselines.windows import LabeledWindows, Rows, all_labels, blocks
from bigbird_dna.console import progress
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import UNKNOWN
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.papers.comparators.interface import ScoringComparator, fit_sigmoid

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

# Axes: N windows, L bases, F features: characters that vary at most at k positions.

STRENGTHS = (
    0.1,
    1.0,
    10.0,
)  # weight of the loss per window, relative to half the squared weights
MOST = 5000  # most training windows of a class per label
_ITERATIONS = 200
_PRECISION = 1e-9  # relative change of the loss per step at which the optimizer stops

_ONE_PLACE = (
    np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2
)
_TWO_PLACES = np.kron(_ONE_PLACE, _ONE_PLACE)


class GappedKmers:
    """Gapped k-mers: words of `length` bases with `known` informative positions."""

    def __init__(self, length: int, known: int) -> None:
        self.length, self.known = length, known
        # Number of positions at which each character varies.
        varying = np.zeros(1, np.int64)
        for _ in range(length):
            varying = (varying + np.array([[0], [1], [1], [1]])).ravel()
        self._characters = np.flatnonzero(varying <= known)
        j = varying[self._characters]
        eigenvalues = 4.0 ** (length - known) * comb(length - j, known - j)
        self._roots = np.sqrt(eigenvalues)  # (F,)

    @property
    def features(self) -> int:
        return len(self._characters)

    def words(self, weights: Floats) -> Floats:
        """Convert weights of features (F,) to weights of words (4^length,): H Λ^½ w."""
        spread = np.zeros(4**self.length)
        spread[self._characters] = self._roots * weights
        return _transformed(spread, self.length)

    def of_words(self, sums: Floats) -> Floats:
        """Convert counts of words (4^length,) to features (F,): Λ^½ H c."""
        return np.asarray(
            self._roots * _transformed(sums, self.length)[self._characters]
        )

    def count(self, sequences: Sequence[str], *, both_strands: bool) -> Any:
        """Count the words without N in windows, (N, 4^length), as a SciPy CSR matrix of float64."""
        codes = base_codes(sequences)
        strands = [codes, other_strand(codes)] if both_strands else [codes]
        numbers, known = map(np.hstack, zip(*map(self._numbers, strands), strict=True))
        ends = np.append(0, np.cumsum(known.sum(axis=1)))
        shape = (len(codes), 4**self.length)
        matrix = csr_matrix((np.ones(ends[-1]), numbers[known], ends), shape=shape)
        matrix.sum_duplicates()
        return matrix

    def norms(self, counts: Any) -> Floats:
        """Return the norm (N,) of each window's vector of gapped k-mers; 1 if it has none."""
        # Common gapped k-mers of words by the number of positions at which they differ.
        common = comb(self.length - np.arange(self.length + 1), self.known)
        low_bits = int("01" * self.length, 2)
        norms = np.ones(counts.shape[0])
        for row in np.flatnonzero(np.diff(counts.indptr)):
            part = slice(counts.indptr[row], counts.indptr[row + 1])
            words, times = counts.indices[part].astype(np.int32), counts.data[part]
            differing = words[:, None] ^ words
            positions = np.bitwise_count((differing | differing >> 1) & low_bits)
            norms[row] = np.sqrt(times @ common[positions] @ times)
        return norms

    def _numbers(self, codes: Bytes) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Return the word at each position, (N, L − length + 1), and whether it has no N."""
        places = max(codes.shape[1] - self.length + 1, 0)
        numbers = np.zeros((len(codes), places), np.int32)
        known = np.ones((len(codes), places), np.bool_)
        for offset in range(self.length):
            column = codes[:, offset : offset + places]
            numbers = numbers * 4 + (column & 3)
            known &= column != UNKNOWN
        return numbers, known


def _transformed(values: Floats, places: int) -> Floats:
    """Apply H, a 4 × 4 Hadamard matrix / 2, at each position of words, (4^places,); H is its own inverse."""
    # Two positions per matrix product; each product moves its positions behind all others, so the original
    # order is restored after the last product.
    for first in range(0, places, 2):
        factor = _ONE_PLACE if first + 1 == places else _TWO_PLACES
        values = (values.reshape(len(factor), -1).T @ factor).ravel()
    return values


class SvmModel(NamedTuple):
    """Linear model: the score is the weighted sum of a window's words divided by its norm, plus offset."""

    words: NDArray[np.float32]  # (4^l,)
    offset: float

    def scores(self, counts: Any, norms: Floats) -> Floats:
        return np.asarray(counts @ self.words) / norms + self.offset


def fit_svms(
    kmers: GappedKmers,
    counts: Any,
    norms: Floats,
    labels: Bytes,
    strengths: Iterable[float],
) -> Iterator[SvmModel]:
    """Minimize ½ |w|² + strength · Σ max(0, 1 − y f(x))² over windows with labels (N,) of both classes, for
    each strength; each fit starts from the solution of the previous strength."""
    signs = np.where(labels == 1, 1.0, -1.0)
    transposed = counts.T.tocsr()

    def loss(values: Floats, strength: float) -> tuple[float, Floats]:
        weights, offset = values[:-1], values[-1]
        scores = counts @ kmers.words(weights) / norms + offset
        margin = np.maximum(0, 1 - signs * scores)
        slope = -2 * strength * signs * margin  # of the loss in the score
        gradient = weights + kmers.of_words(transposed @ (slope / norms))
        value = 0.5 * float(weights @ weights) + strength * float(margin @ margin)
        return value, np.append(gradient, slope.sum())

    solution = np.zeros(kmers.features + 1)
    options = {"maxiter": _ITERATIONS, "maxcor": 10, "ftol": _PRECISION, "gtol": 1e-6}
    for strength in strengths:
        solution = minimize(
            loss, solution, (strength,), jac=True, method="L-BFGS-B", options=options
        ).x
        words = kmers.words(solution[:-1]).astype(np.float32)
        yield SvmModel(words, float(solution[-1]))


class GkmSvm(ScoringComparator):
    """gkm-SVM on words of `length` bases with `known` informative positions, of one or both strands.

    A label is fitted to at most `MOST` of its windows and as many other windows, drawn by seed. Labels whose
    training windows are of one class are NaN.
    """

    def __init__(
        self,
        length: int = 11,
        known: int = 7,
        *,
        both_strands: bool = False,
        seed: int = 1,
    ) -> None:
        super().__init__()
        self.kmers = GappedKmers(length, known)
        self.both_strands, self.seed = both_strands, seed
        self._svms: dict[int, SvmModel] = {}  # by label
        self._strengths: list[float | None] = []

    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        """Fit each label; strengths and probability maps are chosen on the held-out windows."""
        truth, held_labels = all_labels(learned), all_labels(held_out)
        if learned.length < self.kmers.length:
            raise DataError(
                f"gkm-svm: windows of {learned.length} bp are shorter than words of {self.kmers.length} bp"
            )
        held_counts, held_norms = self._counted(held_out, np.arange(held_out.shape[0]))
        labels = truth.shape[1]
        self.sigmoids = np.full((labels, 2), np.nan)
        self._strengths = [None] * labels
        for label in progress(range(labels), "gkm-SVM", labels, "labels"):
            rows = _sample(truth[:, label], (self.seed, 9, label))
            if not len(rows):
                continue
            counts, norms = self._counted(learned, rows)
            tests = held_labels[:, label]
            strengths = STRENGTHS if 0 < tests.sum() < len(tests) else (1.0,)
            svms = fit_svms(self.kmers, counts, norms, truth[rows, label], strengths)
            best = -np.inf
            for strength, svm in zip(strengths, svms, strict=True):
                scores = svm.scores(held_counts, held_norms)
                area = float(np.nan_to_num(auroc(tests, scores).value))
                if area > best:
                    best, self._strengths[label] = area, strength
                    self._svms[label] = svm
                    self.sigmoids[label] = fit_sigmoid(scores, tests)
        if not self._svms:
            raise DataError("gkm-svm: all training windows are of one class")
        return self

    def scores(self, sequences: Sequence[str]) -> Floats:
        counts = self.kmers.count(sequences, both_strands=self.both_strands)
        norms = self.kmers.norms(counts)
        table = np.full((len(sequences), len(self.sigmoids)), np.nan)
        for label, svm in self._svms.items():
            table[:, label] = svm.scores(counts, norms)
        return table

    def chosen(self) -> dict[str, Any]:
        return {
            "word": self.kmers.length,
            "known": self.kmers.known,
            "strengths": self._strengths,
        }

    def _counted(self, windows: LabeledWindows, rows: Rows) -> tuple[Any, Floats]:
        parts = [
            self.kmers.count(
                windows.sequences(rows[part]), both_strands=self.both_strands
            )
            for part in blocks(len(rows), self.AT_ONCE)
        ]
        counts = vstack(parts, format="csr")
        return counts, self.kmers.norms(counts)


def _sample(labels: Bytes, seed: tuple[int, ...]) -> Rows:
    """Return sorted rows: at most `MOST` positives and as many negatives; none if a class is missing."""
    rng = np.random.default_rng(seed)
    positive, negative = np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)
    if not len(negative):
        return negative
    size = min(MOST, len(positive))
    positive = rng.permutation(positive)[:size]
    return np.sort(np.append(positive, rng.permutation(negative)[:size]))
