"""Regressions of tracks on k-mers and spaced dyads: two trinucleotides with 0 to 12 bases between them.

Many factors bind two short parts at a fixed distance, such as Abf1 RTC and ACG (dyad analysis: van Helden et
al., Nucleic Acids Research 28:1808, 2000). No k-mer of five bases contains both. A regression on all dyads
would have 27,040 coefficients; here each track gets the few whose counts best explain what its k-mer
regression does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, vstack
from scipy.special import expit

from bigbird_dna.baselines.kmers import KmerTracks, base_codes, window_features
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
Floats = npt.NDArray[np.floating[Any]]

# Axes: N windows, L bases of a window, T tracks, D dyads of a track.

# Strengths of the L2 penalty on the weights of a track's dyads (for the sum of losses), strongest first.
DYAD_PENALTIES = (30.0, 10.0, 3.0)
_AT_ONCE = 512  # windows whose sequences are in memory at a time


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


class TrackWords:
    """Log-odds of tracks by their k-mers and dyads.

    The k-mers are frequencies in the central `sizes` bp of a window, bin and window; the dyads, of which each
    track has `each`, are counts in the bin.
    """

    def __init__(self, k: int, each: int, sizes: Sequence[int]) -> None:
        self.k, self.each, self.sizes = k, each, sizes
        self.kmers = KmerTracks()
        self.dyads = np.zeros((0, each), np.int64)  # (T, D) numbers of dyads
        self.weight = np.zeros((0, each), np.float32)  # (T, D)
        self.bias = np.zeros(0, np.float32)  # (T,) added to that of the k-mers

    def fit(self, train: LabeledWindows, valid: LabeledWindows) -> Self:
        """Fit to labeled windows; the penalties are chosen on the second ones."""
        x, x_valid = self._features(train), self._features(valid)
        y, y_valid = all_labels(train), all_labels(valid)
        self.kmers.fit(x, y, x_valid, y_valid)
        self.fit_dyads(train, self.kmers.logits(x), valid, self.kmers.logits(x_valid))
        return self

    def _features(self, windows: LabeledWindows) -> Floats32:
        parts = [
            window_features(windows.sequences(rows), self.sizes, self.k)
            for rows in blocks(windows.shape[0], _AT_ONCE)
        ]
        return np.concatenate(parts)

    def fit_dyads(
        self,
        train: LabeledWindows,
        logits: Floats,
        valid: LabeledWindows,
        valid_logits: Floats,
    ) -> None:
        """Choose and fit the dyads of tracks whose log-odds are known.

        Parameters
        ----------
        train, valid
            Windows with labels; dyads are counted in the central `sizes[0]` bp.
        logits, valid_logits
            Log-odds (N, T) of the windows by k-mers.

        Notes
        -----
        A dyad is chosen by the score statistic of a logistic regression to which it is added: the sum of its
        counts times the errors of the probabilities, over the standard deviation. The penalty of a track is
        that of the lowest loss on validation windows; the track gets no dyads if they do not decrease it.
        """
        size, tracks = self.sizes[0], logits.shape[1]
        self.dyads = np.zeros((tracks, self.each), np.int64)
        self.weight = np.zeros((tracks, self.each), np.float32)
        self.bias = np.zeros(tracks, np.float32)
        if not self.each:
            return

        labels, valid_labels = all_labels(train), all_labels(valid)
        score, variance = 0.0, 1.0  # one more count: rare dyads are no evidence
        for rows in blocks(train.shape[0], _AT_ONCE):
            counts = dyad_counts(train.sequences(rows), size)
            probability = expit(logits[rows].astype(np.float32))
            score += counts.T @ (labels[rows] - probability)
            variance += counts.power(2).T @ (probability * (1 - probability))

        statistic = np.abs(score / np.sqrt(variance))
        largest_first = np.argsort(-statistic, axis=0, kind="stable")
        self.dyads[:] = largest_first[: self.each].T

        columns = np.unique(self.dyads)
        x, x_valid = (
            vstack(
                [
                    dyad_counts(windows.sequences(rows), size)[:, columns]
                    for rows in blocks(windows.shape[0], _AT_ONCE)
                ],
                format="csr",
            )
            for windows in (train, valid)
        )
        for track in range(tracks):
            y, y_valid = labels[:, track], valid_labels[:, track]
            if not 0 < y.sum() < len(y) or not y_valid.any():
                continue

            own = np.searchsorted(columns, self.dyads[track])
            best = _fit_track(
                (x[:, own], logits[:, track], y),
                (x_valid[:, own], valid_logits[:, track], y_valid),
            )
            self.weight[track], self.bias[track] = best[:-1], best[-1]

    def log_odds(self, windows: Sequence[str]) -> tuple[Floats32, Floats32]:
        """Log-odds (N, T) by the k-mers alone, and with the dyads."""
        alone = self.kmers.logits(window_features(windows, self.sizes, self.k))
        if not self.each:
            return alone, alone
        return alone, alone + self.added(dyad_counts(windows, self.sizes[0]))

    def added(self, counts: Any) -> Floats32:
        """What the dyads add to log-odds (N, T), for counts of all dyads, CSR (N, DYADS)."""
        tracks = np.repeat(np.arange(len(self.dyads)), self.each)
        entries = self.weight.ravel(), (self.dyads.ravel(), tracks)
        table = csr_matrix(entries, shape=(DYADS, len(self.dyads)))
        return np.asarray((counts @ table).toarray() + self.bias, np.float32)

    def predict(self, windows: Sequence[str]) -> Floats32:
        """Return probabilities (N, T)."""
        return np.asarray(expit(self.log_odds(windows)[1]))


def _fit_track(train: tuple[Any, ...], valid: tuple[Any, ...]) -> Floats:
    """The weights and bias (D + 1,) with the lowest loss on validation windows: zero, or those of a penalty.

    Arguments are counts (N, D), log-odds (N,) and labels (N,).
    """
    counts, base, labels = train
    x = np.column_stack([counts.toarray(), np.ones(len(base))]).astype(np.float64)

    def loss(w: Floats, penalty: float) -> tuple[float, Floats]:
        logits = base + x @ w
        shrunk = penalty * np.append(w[:-1], 0)
        losses = np.logaddexp(0, logits) - labels * logits
        return losses.sum() + w @ shrunk / 2, x.T @ (expit(logits) - labels) + shrunk

    def valid_loss(w: Floats) -> float:
        counts, base, labels = valid
        logits = base + counts @ w[:-1] + w[-1]
        return float(np.mean(np.logaddexp(0, logits) - labels * logits))

    best = values = np.zeros(x.shape[1])
    for penalty in DYAD_PENALTIES:
        values = minimize(loss, values, (penalty,), jac=True, method="L-BFGS-B").x
        best = min(best, values, key=valid_loss)

    return best
