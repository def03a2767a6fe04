"""Spaced dyads: two trinucleotides with 0 to 12 bases between them, as further terms of tracks' regressions.

Many factors bind two short parts at a fixed distance, such as Abf1 RTC and ACG (dyad analysis: van Helden et
al., Nucleic Acids Research 28:1808, 2000). No k-mer of five bases contains both. A regression on all dyads
would have 27,040 coefficients; here each track gets the few whose counts best explain what its k-mer
regression does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bigbird_dna.baselines.kmers import KmerTracks, base_codes, window_features
from bigbird_dna.baselines.windows import LabeledWindows, Rows, all_labels, blocks
from bigbird_dna.genome.sequence import (
    DYADS,
    GAPS,
    PAIRS,
    UNKNOWN,
    canonical_kmers,
    words_ending,
)

# Axes: N windows, L bases of a window, T tracks, D dyads of a track.

# Strengths of the L2 penalty on the weights of a track's dyads (for the sum of losses), strongest first.
DYAD_PENALTIES = (30.0, 10.0, 3.0)
_AT_ONCE = 512  # windows whose sequences are in memory at a time

Floats = npt.NDArray[np.floating[Any]]
_Track = tuple[
    Floats, Floats, npt.NDArray[np.integer[Any]]
]  # counts (N, D), log-odds (N,), labels (N,)
CountBlocks = Callable[
    [], Iterator[Any]
]  # SciPy CSR matrices of counts, (some N, DYADS), as often as called


def dyad_counts(windows: Sequence[str], size: int) -> Any:
    """Counts of dyads in the central `size` bp of windows of one length, CSR (N, DYADS); N has no dyads."""
    from scipy.sparse import csr_matrix

    first = (len(windows[0]) - size) // 2 if windows else 0
    codes = base_codes([window[first : first + size] for window in windows])
    ends = [words_ending(row, 3)[2:] for row in codes]
    words = np.stack(ends) if ends else np.zeros((0, 0), np.int64)
    unknown = codes == UNKNOWN
    words[unknown[:, 2:] | unknown[:, 1:-1] | unknown[:, :-2]] = -1
    canonical = canonical_kmers(6)
    rows, columns = [np.empty(0, np.intp)], [np.empty(0, np.intp)]
    for gap in range(min(GAPS, words.shape[1] - 3)):
        left, right = words[:, : -3 - gap], words[:, 3 + gap :]
        row, place = np.nonzero((left >= 0) & (right >= 0))
        rows.append(row)
        columns.append(
            PAIRS * gap + canonical[64 * left[row, place] + right[row, place]]
        )
    row, column = np.concatenate(rows), np.concatenate(columns)
    # Repeated entries of a row are added up.
    return csr_matrix(
        (np.ones(len(row), np.float32), (row, column)), shape=(len(windows), DYADS)
    )


@dataclass(frozen=True, repr=False)
class TrackDyads:
    """What the log-odds of tracks gain over those of k-mer regressions: bias + weights · counts of dyads."""

    words: npt.NDArray[np.int32]  # (T, D), numbers of dyads (`genome.sequence.DYADS`)
    weight: npt.NDArray[np.float32]  # (T, D)
    bias: npt.NDArray[np.float32]  # (T,)

    @classmethod
    def none(cls, tracks: int, each: int = 0) -> Self:
        """`each` dyads of weight 0 per track."""
        shape = (tracks, each)
        return cls(
            np.zeros(shape, np.int32),
            np.zeros(shape, np.float32),
            np.zeros(tracks, np.float32),
        )

    @classmethod
    def fit(
        cls,
        each: int,
        known: tuple[CountBlocks, Floats, npt.NDArray[np.integer[Any]]],
        held_out: tuple[CountBlocks, Floats, npt.NDArray[np.integer[Any]]],
    ) -> Self:
        """Choose and fit `each` dyads per track from counts, log-odds (N, T) and labels (N, T) of training
        windows.

        A dyad is chosen by the score statistic of a logistic regression to which it is added: the sum of its
        counts times the errors of the probabilities, over the standard deviation. The penalty of a track is
        that of the lowest loss on held-out windows; the track gets no dyads if they do not decrease it.
        """
        counts, logits, labels = known
        found = cls.none(logits.shape[1], each)
        if not each:
            return found
        found.words[:] = _chosen(counts(), logits, labels, each)
        columns, inverse = np.unique(found.words, return_inverse=True)
        own, valid = (_columns(blocks(), columns) for blocks in (counts, held_out[0]))
        for track, chosen in enumerate(inverse.reshape(found.words.shape)):
            data, tests = (
                (part[:, chosen].toarray(), base[:, track], all_labels[:, track])
                for part, base, all_labels in (
                    (own, logits, labels),
                    (valid, *held_out[1:]),
                )
            )
            if 0 < data[2].sum() < len(data[2]) and tests[2].any():
                *found.weight[track], found.bias[track] = _best(data, tests)
        return found

    def added(self, counts: Any) -> npt.NDArray[np.float32]:
        """The gain (N, T) for counts of dyads, CSR (N, DYADS)."""
        columns, inverse = np.unique(self.words, return_inverse=True)
        table = np.zeros((len(columns), len(self.words)), np.float32)
        tracks = np.arange(len(self.words))[:, None]
        np.add.at(table, (inverse.reshape(self.words.shape), tracks), self.weight)
        return np.asarray(counts[:, columns] @ table + self.bias, np.float32)


def _chosen(
    blocks: Iterator[Any],
    logits: Floats,
    labels: npt.NDArray[np.integer[Any]],
    each: int,
) -> npt.NDArray[np.intp]:
    """The dyads (T, each) with the largest score statistics, largest first."""
    from scipy.special import expit

    score, variance, first = 0.0, 1.0, 0  # one more count: rare dyads are no evidence
    for block in blocks:
        rows = slice(first, first := first + block.shape[0])
        probability = expit(logits[rows].astype(np.float32))
        score += block.T @ (labels[rows] - probability)
        variance += block.multiply(block).T.tocsr() @ (probability * (1 - probability))
    return np.argsort(-np.abs(score / np.sqrt(variance)), axis=0, kind="stable")[
        :each
    ].T


def _columns(blocks: Iterator[Any], columns: npt.NDArray[np.integer[Any]]) -> Any:
    from scipy.sparse import vstack

    return vstack([block[:, columns] for block in blocks], format="csr")


def _best(data: _Track, tests: _Track) -> Floats:
    """The weights and bias (D + 1,) with the lowest loss on held-out windows: zero, or those of a penalty."""
    from scipy.optimize import minimize
    from scipy.special import expit

    x, held_out = (
        np.column_stack([part[0], np.ones(len(part[0]))]).astype(np.float64)
        for part in (data, tests)
    )
    best = values = np.zeros(x.shape[1])
    for penalty in DYAD_PENALTIES:

        def loss(w: Floats, penalty: float = penalty) -> tuple[float, Floats]:
            logits, shrunk = data[1] + x @ w, penalty * np.append(w[:-1], 0)
            losses = np.logaddexp(0, logits) - data[2] * logits
            return losses.sum() + w @ shrunk / 2, x.T @ (
                expit(logits) - data[2]
            ) + shrunk

        values = minimize(loss, values, jac=True, method="L-BFGS-B").x
        best = min(
            best, values, key=lambda w: _mean_loss(tests[1] + held_out @ w, tests[2])
        )
    return best


def _mean_loss(logits: Floats, labels: npt.NDArray[np.integer[Any]]) -> float:
    return float(np.mean(np.logaddexp(0, logits) - labels * logits))


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
        (x, y), (x_valid, y_valid) = (
            (self._features(windows), all_labels(windows))
            for windows in (learned, held_out)
        )
        self.kmers.fit(x, y, x_valid, y_valid)
        self.dyads = TrackDyads.fit(
            self.each,
            (partial(self._counts, learned), self.kmers.logits(x), y),
            (partial(self._counts, held_out), self.kmers.logits(x_valid), y_valid),
        )
        return self

    def _features(self, windows: LabeledWindows) -> npt.NDArray[np.float32]:
        parts = map(windows.sequences, _rows(windows))
        return np.concatenate(
            [window_features(some, self.sizes, self.k) for some in parts]
        )

    def _counts(self, windows: LabeledWindows) -> Iterator[Any]:
        return (
            dyad_counts(windows.sequences(rows), self.sizes[0])
            for rows in _rows(windows)
        )

    def log_odds(
        self, windows: Sequence[str]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Log-odds (N, T) by the k-mers alone, and with the dyads."""
        alone = self.kmers.logits(window_features(windows, self.sizes, self.k))
        added = (
            self.dyads.added(dyad_counts(windows, self.sizes[0]))
            if self.each
            else np.float32(0)
        )
        return alone, alone + added


def _rows(windows: LabeledWindows) -> Iterator[Rows]:
    return blocks(windows.shape[0], _AT_ONCE)
