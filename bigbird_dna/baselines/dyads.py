"""Spaced dyads: two trinucleotides with 0 to 12 bases between them, as further terms of tracks' regressions.

Many factors bind two short parts at a fixed distance, such as Abf1 RTC and ACG (dyad analysis: van Helden et
al., Nucleic Acids Research 28:1808, 2000). No k-mer of five bases contains both. A regression on all dyads
would have 27,040 coefficients; here each track gets the few whose counts best explain what its k-mer
regression does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, vstack
from scipy.special import expit

from bigbird_dna.baselines.kmers import (
    KmerTracks,
    base_codes,
    probabilities,
    window_features,
)
from bigbird_dna.baselines.windows import LabeledWindows, all_labels, blocks
from bigbird_dna.genome.sequence import (
    DYADS,
    GAPS,
    PAIRS,
    canonical_kmers,
    known_before,
    words_ending,
)

Floats32 = npt.NDArray[np.float32]
Integers = npt.NDArray[np.integer[Any]]

# Axes: N windows, L bases of a window, T tracks, D dyads of a track.

# Strengths of the L2 penalty on the weights of a track's dyads (for the sum of losses), strongest first.
DYAD_PENALTIES = (30.0, 10.0, 3.0)
_AT_ONCE = 512  # windows whose sequences are in memory at a time

Floats = npt.NDArray[np.floating[Any]]
# Counts (N, D), log-odds (N,), labels (N,).
_Track = tuple[Floats, Floats, npt.NDArray[np.integer[Any]]]


def dyad_counts(windows: Sequence[str], size: int) -> Any:
    """Counts of dyads in the central `size` bp of windows of one length, CSR (N, DYADS); N has no dyads."""
    first = (len(windows[0]) - size) // 2 if windows else 0
    codes = base_codes([window[first : first + size] for window in windows])
    words = np.full((len(codes), max(codes.shape[1] - 2, 0)), -1, np.int64)
    for number, window in enumerate(codes):
        known = known_before(window)[2:] >= 3
        words[number, known] = words_ending(window, 3)[2:][known]
    canonical = canonical_kmers(6)
    rows, columns = [np.empty(0, np.intp)], [np.empty(0, np.intp)]
    for gap in range(min(GAPS, words.shape[1] - 3)):
        left, right = words[:, : -3 - gap], words[:, 3 + gap :]
        row, position = np.nonzero((left >= 0) & (right >= 0))
        pairs = 64 * left[row, position] + right[row, position]
        rows.append(row)
        columns.append(PAIRS * gap + canonical[pairs])
    entries = np.concatenate(rows), np.concatenate(columns)
    ones = np.ones(len(entries[0]), np.float32)
    # Repeated entries of a row are added up.
    return csr_matrix((ones, entries), shape=(len(windows), DYADS))


@dataclass(frozen=True, repr=False)
class TrackDyads:
    """What the log-odds of tracks gain over those of k-mer regressions: bias + weights · counts of dyads."""

    words: npt.NDArray[np.int32]  # (T, D), numbers of dyads (`genome.sequence.DYADS`)
    weight: Floats32  # (T, D)
    bias: Floats32  # (T,)

    @classmethod
    def none(cls, tracks: int, each: int = 0) -> Self:
        """`each` dyads of weight 0 per track."""
        shape = (tracks, each)
        return cls(
            np.zeros(shape, np.int32),
            np.zeros(shape, np.float32),
            np.zeros(tracks, np.float32),
        )

    def added(self, counts: Any) -> Floats32:
        """The gain (N, T) for counts of dyads, CSR (N, DYADS)."""
        columns, inverse = np.unique(self.words, return_inverse=True)
        table = np.zeros((len(columns), len(self.words)), np.float32)
        tracks = np.arange(len(self.words))[:, None]
        np.add.at(table, (inverse.reshape(self.words.shape), tracks), self.weight)
        return np.asarray(counts[:, columns] @ table + self.bias, np.float32)


def fit_dyads(
    each: int,
    size: int,
    learned: tuple[LabeledWindows, Floats],
    held_out: tuple[LabeledWindows, Floats],
) -> TrackDyads:
    """Choose and fit `each` dyads per track in the central `size` bp of windows with log-odds (N, T).

    A dyad is chosen by the score statistic of a logistic regression to which it is added: the sum of its
    counts times the errors of the probabilities, over the standard deviation. The penalty of a track is
    that of the lowest loss on held-out windows; the track gets no dyads if they do not decrease it.
    """
    windows, logits = learned
    tests, test_logits = held_out
    labels, test_labels = all_labels(windows), all_labels(tests)
    fitted = TrackDyads.none(logits.shape[1], each)
    if not each:
        return fitted
    fitted.words[:] = _choose(windows, size, logits, labels, each)
    columns, inverse = np.unique(fitted.words, return_inverse=True)
    counts = _columns(windows, size, columns)
    test_counts = _columns(tests, size, columns)
    for track, chosen in enumerate(inverse.reshape(fitted.words.shape)):
        y, y_test = labels[:, track], test_labels[:, track]
        if 0 < y.sum() < len(y) and y_test.any():
            *fitted.weight[track], fitted.bias[track] = _best(
                (counts[:, chosen].toarray(), logits[:, track], y),
                (test_counts[:, chosen].toarray(), test_logits[:, track], y_test),
            )
    return fitted


def _choose(
    windows: LabeledWindows,
    size: int,
    logits: Floats,
    labels: Integers,
    each: int,
) -> npt.NDArray[np.intp]:
    """The dyads (T, each) with the largest score statistics, largest first."""
    score, variance = 0.0, 1.0  # one more count: rare dyads are no evidence
    for rows in blocks(windows.shape[0], _AT_ONCE):
        counts = dyad_counts(windows.sequences(rows), size)
        probability = expit(logits[rows].astype(np.float32))
        score += counts.T @ (labels[rows] - probability)
        variance += counts.power(2).T @ (probability * (1 - probability))
    statistic = np.abs(score / np.sqrt(variance))
    return np.argsort(-statistic, axis=0, kind="stable")[:each].T


def _columns(windows: LabeledWindows, size: int, columns: Integers) -> Any:
    parts = [
        dyad_counts(windows.sequences(rows), size)[:, columns]
        for rows in blocks(windows.shape[0], _AT_ONCE)
    ]
    return vstack(parts, format="csr")


def _best(data: _Track, tests: _Track) -> Floats:
    """The weights and bias (D + 1,) with the lowest loss on held-out windows: zero, or those of a penalty."""
    counts, base, labels = data
    test_counts, test_base, test_labels = tests
    x = np.pad(counts.astype(np.float64), ((0, 0), (0, 1)), constant_values=1)
    x_test = np.pad(test_counts.astype(np.float64), ((0, 0), (0, 1)), constant_values=1)

    def loss(w: Floats, penalty: float) -> tuple[float, Floats]:
        logits, shrunk = base + x @ w, penalty * np.append(w[:-1], 0)
        losses = np.logaddexp(0, logits) - labels * logits
        return losses.sum() + w @ shrunk / 2, x.T @ (expit(logits) - labels) + shrunk

    def test_loss(w: Floats) -> float:
        logits = test_base + x_test @ w
        return float(np.mean(np.logaddexp(0, logits) - test_labels * logits))

    best = values = np.zeros(x.shape[1])
    for penalty in DYAD_PENALTIES:
        values = minimize(loss, values, (penalty,), jac=True, method="L-BFGS-B").x
        best = min(best, values, key=test_loss)
    return best


@dataclass
class TrackWords:
    """Regressions of tracks on frequencies of k-mers in the central `sizes` bp of a window: bin, then window;
    and on counts of `each` dyads per track in the bin."""

    k: int
    each: int
    sizes: Sequence[int]
    kmers: KmerTracks = field(default_factory=KmerTracks)
    dyads: TrackDyads = field(default_factory=lambda: TrackDyads.none(0))

    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        """Fit to labeled windows; the penalties are chosen on the second ones."""
        x, x_valid = self._features(learned), self._features(held_out)
        self.kmers.fit(x, all_labels(learned), x_valid, all_labels(held_out))
        self.dyads = fit_dyads(
            self.each,
            self.sizes[0],
            (learned, self.kmers.logits(x)),
            (held_out, self.kmers.logits(x_valid)),
        )
        return self

    def _features(self, windows: LabeledWindows) -> Floats32:
        parts = [
            window_features(windows.sequences(rows), self.sizes, self.k)
            for rows in blocks(windows.shape[0], _AT_ONCE)
        ]
        return np.concatenate(parts)

    def log_odds(self, windows: Sequence[str]) -> tuple[Floats32, Floats32]:
        """Log-odds (N, T) by the k-mers alone, and with the dyads."""
        alone = self.kmers.logits(window_features(windows, self.sizes, self.k))
        if not self.each:
            return alone, alone
        return alone, alone + self.dyads.added(dyad_counts(windows, self.sizes[0]))

    def predict(self, windows: Sequence[str]) -> Floats32:
        """Return probabilities (N, T)."""
        return probabilities(self.log_odds(windows)[1])
