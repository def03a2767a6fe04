"""The best match of a factor's known matrices in a window, on either strand: what a biologist would look at.

A score is a log-odds in bits, that of the best place where the whole matrix lies on known bases of the
window. Where a factor has several matrices, the one that ranks its training windows best counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from bigbird_dna.baselines.comparators.calibration import Sigmoid, fit_sigmoid
from bigbird_dna.baselines.comparators.interface import Comparator, Probabilities, Windows, all_labels, blocks
from bigbird_dna.baselines.comparators.known_motifs import KnownMotif
from bigbird_dna.baselines.kmers import base_codes
from bigbird_dna.console import progress
from bigbird_dna.errors import DataError
from bigbird_dna.genome.sequence import UNKNOWN
from bigbird_dna.metrics.auroc import auroc

# Axes: N windows, L bases, M matrices, W places of a matrix.

_AT_ONCE = 1024  # windows
_NOWHERE = -1e6  # what an N adds to a match: far below any


def best_matches(codes: NDArray[np.uint8], matrices: Sequence[NDArray[np.float64]]) -> NDArray[np.float32]:
    """Log-odds (N, M) of the best match of each matrix (W, 4) in windows (N, L), on either strand.

    A window in which a matrix lies nowhere on known bases alone has the lowest score that the matrix gives.
    """
    found = np.empty((len(codes), len(matrices)), np.float32)
    lowest = np.array([matrix.min(axis=1).sum() for matrix in matrices])
    widths = np.array([len(matrix) for matrix in matrices])
    with torch.inference_mode():
        hot = F.one_hot(torch.from_numpy(codes).long(), UNKNOWN + 1).transpose(1, 2).float()  # (N, 5, L)
        for width in np.unique(widths):
            chosen = np.flatnonzero(widths == width)
            if width > codes.shape[1]:
                found[:, chosen] = lowest[chosen]
                continue
            forward = np.stack([matrices[one] for one in chosen.tolist()])  # (m, W, 4)
            both = np.concatenate([forward, forward[:, ::-1, ::-1]])
            filters = np.pad(both, ((0, 0), (0, 0), (0, 1)), constant_values=_NOWHERE).transpose(0, 2, 1)
            scores = F.conv1d(hot, torch.from_numpy(np.ascontiguousarray(filters)).float()).amax(2).numpy()
            found[:, chosen] = np.maximum(scores[:, : len(chosen)], scores[:, len(chosen) :])
    return np.asarray(np.maximum(found, lowest), np.float32)


class MotifScan(Comparator):
    """The scan of each label's windows with the matrices of its factor; labels without any are NaN.

    Learnt are the background, the share of G and C, which of several matrices counts, and the probability of
    a score. The order of the probabilities is that of the scores.
    """

    def __init__(self, motifs: Sequence[Sequence[KnownMotif]]) -> None:
        """`motifs`: those of each label's factor."""
        self.motifs = [list(known) for known in motifs]
        # Many tracks have the same factor: each of its matrices is scanned with once.
        self._motifs = list({id(motif): motif for known in self.motifs for motif in known}.values())
        self._matrices: list[NDArray[np.float64]] = []  # log-odds of each of these
        self._columns: dict[int, int] = {}  # by label: its matrix that counts
        self._sigmoids: dict[int, Sigmoid] = {}
        self._background: list[float] = []

    def fit(self, learnt: Windows, held_out: Windows) -> Self:
        """Score the windows that are learnt from; nothing is chosen on those held out."""
        count, labels = learnt.shape
        if labels != len(self.motifs):
            raise ValueError(f"matrices of {len(self.motifs)} labels, windows of {labels}")
        if not count:
            raise DataError("motifs: there are no training windows")
        self._background = _background(learnt)
        self._matrices = [motif.log_odds(self._background) for motif in self._motifs]
        parts = progress(blocks(count, _AT_ONCE), "scanning", -(-count // _AT_ONCE), "parts")
        scores = np.concatenate(
            [best_matches(base_codes(learnt.sequences(rows)), self._matrices) for rows in parts]
        )
        truth = all_labels(learnt)
        numbers = {id(motif): number for number, motif in enumerate(self._motifs)}
        for label, known in enumerate(self.motifs):
            own = [numbers[id(motif)] for motif in known]
            if not own:
                continue
            figures = [auroc(truth[:, label], scores[:, one]).value for one in own] if len(own) > 1 else [0.5]
            best = own[int(np.argmax(np.nan_to_num(figures, nan=0.5)))]
            self._columns[label] = best
            self._sigmoids[label] = fit_sigmoid(scores[:, best].astype(np.float64), truth[:, label])
        return self

    def predict(self, sequences: Sequence[str]) -> Probabilities:
        """Probabilities (n, T)."""
        found = np.full((len(sequences), len(self.motifs)), np.nan, np.float32)
        used = sorted(set(self._columns.values()))
        for rows in blocks(len(sequences), _AT_ONCE):
            codes = base_codes([sequences[row] for row in rows])
            matches = best_matches(codes, [self._matrices[one] for one in used])
            scores = dict(zip(used, matches.T, strict=True))
            for label, column in self._columns.items():
                found[rows, label] = self._sigmoids[label](scores[column].astype(np.float64))
        return found

    def covered(self, labels: int) -> NDArray[np.bool_]:
        """The labels whose factor has a matrix."""
        return np.array([bool(known) for known in self.motifs])

    def chosen(self) -> dict[str, Any]:
        """The background, and each label's matrix, or none."""
        return {
            "background": dict(zip("ACGT", self._background, strict=True)),
            "matrices": [
                self._motifs[self._columns[label]].matrix if label in self._columns else None
                for label in range(len(self.motifs))
            ],
        }


def _background(windows: Windows) -> list[float]:
    """Shares of A, C, G and T in windows, the same on both strands."""
    counts = np.zeros(UNKNOWN + 1, np.int64)
    for rows in blocks(windows.shape[0], _AT_ONCE):
        counts += np.bincount(base_codes(windows.sequences(rows)).ravel(), minlength=UNKNOWN + 1)
    known = counts[:UNKNOWN] + 1
    strong = float((known[1] + known[2]) / known.sum())
    return [(1 - strong) / 2, strong / 2, strong / 2, (1 - strong) / 2]
