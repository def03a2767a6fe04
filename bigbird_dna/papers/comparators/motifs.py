"""Scans with matrices of known binding sites from JASPAR, as a baseline based on known biology.

The score of a window is that of the best match of a factor's matrices on either strand: a log-odds in bits,
at the best position where all bases under the matrix are known. If a factor has several matrices, the matrix
that ranks its training windows best is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from bigbird_dna.baselines.kmers import base_codes
from bigbird_dna.baselines.windows import LabeledWindows, all_labels, blocks
from bigbird_dna.config.experiments import TAXA
from bigbird_dna.console import log, progress
from bigbird_dna.errors import DataError
from bigbird_dna.genome.motifs import (
    KnownMotif,
    jaspar_motifs,
    motifs_of_factor,
)
from bigbird_dna.genome.sequence import UNKNOWN
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.papers.comparators.interface import ScoringComparator, fit_sigmoid

Floats32 = NDArray[np.float32]
Floats = NDArray[np.float64]

# Axes: N windows, L bases, M matrices, W positions of a matrix.

_NOWHERE = -1e6  # contribution of an N to a match: far below any score


def best_matches(codes: NDArray[np.uint8], matrices: Sequence[Floats]) -> Floats32:
    """Return log-odds (N, M) of the best match of each matrix (W, 4) in windows (N, L), on either strand.

    If a matrix never covers known bases only, the score is the lowest score of the matrix.
    """
    lowest = np.array([matrix.min(axis=1).sum() for matrix in matrices], np.float32)
    best = np.tile(lowest, (len(codes), 1))
    widths = np.array([len(matrix) for matrix in matrices])
    hot = F.one_hot(torch.from_numpy(codes).long(), UNKNOWN + 1)
    hot = hot.transpose(1, 2).float()  # (N, 5, L)
    for width in np.unique(widths[widths <= codes.shape[1]]):
        chosen = np.flatnonzero(widths == width)
        forward = np.stack([matrices[index] for index in chosen.tolist()])  # (m, W, 4)
        both = np.concatenate([forward, forward[:, ::-1, ::-1]])
        filters = np.pad(both, ((0, 0), (0, 0), (0, 1)), constant_values=_NOWHERE)
        weight = torch.from_numpy(filters).float().transpose(1, 2)
        scores = F.conv1d(hot, weight).amax(2).numpy()
        strands = np.split(scores, 2, axis=1)
        best[:, chosen] = np.maximum(best[:, chosen], np.maximum(*strands))
    return best


class MotifScan(ScoringComparator):
    """Scan of the windows with the matrices of each label's factor; labels without a matrix are NaN.

    The fit determines the background (fraction of G and C), the matrix of each factor, and the map from
    scores to probabilities, which preserves the order of the scores.
    """

    def __init__(self, motifs: Sequence[Sequence[KnownMotif]]) -> None:
        super().__init__()
        # Many tracks have the same factor: scan each of its matrices only once.
        distinct = {id(motif): motif for known in motifs for motif in known}
        columns = {key: column for column, key in enumerate(distinct)}
        self.motifs = list(distinct.values())
        self.columns = [[columns[id(motif)] for motif in known] for known in motifs]
        self.background: list[float] = []
        self.best: dict[int, int] = {}  # by label, the column of its matrix

    def fit(self, learned: LabeledWindows, held_out: LabeledWindows) -> Self:
        count, labels = learned.shape
        self.background = _background(learned)
        every = range(len(self.motifs))
        steps = -(-count // self.AT_ONCE)
        parts = progress(blocks(count, self.AT_ONCE), "scanning", steps, "parts")
        scores = np.concatenate(
            [self._scan(learned.sequences(rows), every) for rows in parts]
        )
        truth = all_labels(learned)
        self.sigmoids = np.full((labels, 2), np.nan)
        for label, columns in enumerate(self.columns):
            if not columns:
                continue
            areas = [auroc(truth[:, label], scores[:, one]).value for one in columns]
            best = columns[int(np.argmax(np.nan_to_num(areas, nan=0.5)))]
            values = scores[:, best].astype(np.float64)
            self.best[label] = best
            self.sigmoids[label] = fit_sigmoid(values, truth[:, label])
        return self

    def _scan(self, sequences: Sequence[str], columns: Iterable[int]) -> Floats32:
        matrices = [self.motifs[column].log_odds(self.background) for column in columns]
        return best_matches(base_codes(sequences), matrices)

    def scores(self, sequences: Sequence[str]) -> Floats:
        used, inverse = np.unique([*self.best.values()], return_inverse=True)
        scores = np.full((len(sequences), len(self.columns)), np.nan)
        scores[:, [*self.best]] = self._scan(sequences, used.tolist())[:, inverse]
        return scores

    def chosen(self) -> dict[str, Any]:
        matrices: list[str | None] = [None] * len(self.columns)
        for label, column in self.best.items():
            matrices[label] = self.motifs[column].matrix
        return {
            "background": dict(zip("ACGT", self.background, strict=True)),
            "matrices": matrices,
        }


def _background(windows: LabeledWindows) -> list[float]:
    """Return the fractions of A, C, G and T in windows, averaged over both strands."""
    counts = np.zeros(UNKNOWN + 1, np.int64)
    for rows in blocks(windows.shape[0], MotifScan.AT_ONCE):
        codes = base_codes(windows.sequences(rows)).ravel()
        counts += np.bincount(codes, minlength=UNKNOWN + 1)
    known = counts[:UNKNOWN] + 1
    strong = float((known[1] + known[2]) / known.sum())
    return [(1 - strong) / 2, strong / 2, strong / 2, (1 - strong) / 2]


def make_scan(factors: Sequence[str], source: Path, taxon: str | None) -> MotifScan:
    """Return a scan with the JASPAR matrices of factors; `DataError`, with the `source` of the
    factors, if none of them has a matrix."""
    known = jaspar_motifs(taxon or TAXA[0])
    motifs = [motifs_of_factor(factor, known) for factor in factors]
    count = sum(map(bool, motifs))
    log(
        f"{count:,} of {len(motifs):,} tracks have a factor with a matrix, among {len(known):,} matrices"
    )
    if not count:
        raise DataError(f"JASPAR contains no matrix of the factors of {source}")
    return MotifScan(motifs)
